"""What goes out: notifications as CloudEvents 1.0, control frames, heartbeats, the closing frame.

A page is encoded without a look into its payloads: the stored JSON is cut, not parsed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from headrace.core.bounded_cache import BoundedCache
from headrace.core.limits import (
    FRAME_KEPT_BYTES,
    FRAMES_SHARED,
)
from headrace.core.read import Page
from headrace.core.record import Block
from headrace.core.selector import Selector
from headrace.delivery.events import Event, PlainView, Records
from headrace.delivery.sse import chunk, event
from headrace.surfaces.notifications.names import format_id
from headrace.surfaces.notifications.records import StoredParts, read_identifier, split
from headrace.surfaces.notifications.schema import POLYGON
from headrace.surfaces.notifications.shapes import PolygonForm, format_polygon
from headrace.surfaces.notifications.wis2 import Wis2Source, format_wis2, is_wis2

LIVE, REPLAY, CONTROL = b"live-notification", b"replay", b"replay-control"
HEARTBEAT, ERROR, CLOSING = b"heartbeat", b"error", b"connection-closing"


def format_second(now_ms: int) -> str:
    """An instant in UTC, to the second: `2026-02-25T18:58:23Z`."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_instant(at_ns: int) -> str:
    """An instant in UTC, to the microsecond."""
    second, ns = divmod(at_ns, 1_000_000_000)
    whole = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{ns // 1000:06d}Z"


class EventForm(msgspec.Struct, frozen=True, cache_hash=True):
    """How notifications of a type are written for one kind of reader."""

    event_type: str
    source: str
    """Where the server is, as readers know it."""
    polygons: PolygonForm
    ids: bool = False
    """Whether events have ids, for who comes back with the last of them."""
    wis2: bool = False
    """Whether each is a WIS2 notification message instead of a CloudEvent."""

    def encode(self, name: bytes, page: Page) -> bytes:
        """The frames of a page. Several watchers may get one of them, one after the other."""
        found: list[bytes] = []
        for piece in page.slices:
            block = piece.block
            is_plain = block.seqs is None and block.stamps is None and block.nanos is None
            first, at_ns = block.first, block.ts_ms * 1_000_000 + block.ns
            for at in piece.picks:
                if is_plain:
                    key = self, name, first + at, at_ns
                else:
                    key = self, name, block.seq_at(at), block.ns_at(at)
                frame = _frames.get(key)
                if frame is None:
                    frame = self._encode_one(name, block, at)
                    if len(frame) <= FRAME_KEPT_BYTES:
                        _frames.keep(key, frame)
                found.append(frame)
        return b"".join(found)

    def _encode_one(self, name: bytes, block: Block, at: int) -> bytes:
        opening, middle, closing = self._around
        seq = block.seq_at(at)
        parts = split(block.data_at(at))
        if self.wis2:
            data = self._encode_wis2(seq, block.ts_at(at), parts)
        else:
            when = format_instant(block.ns_at(at)).encode()
            said = (opening, seq, middle, when, closing, self._encode_data(parts))
            data = b"%b%d%b%b%b%b}" % said
        id = format_id(self.event_type, seq).encode() if self.ids else None
        return event(name, data, id)

    @property
    def _around(self) -> tuple[bytes, bytes, bytes]:
        """What stands before the sequence number, between it and the time, and before the data."""
        type, source = _inside(self.event_type), _inside(self.source)
        return (
            b'{"specversion":"1.0","id":"%b@' % type,
            b'","type":"int.ecmwf.aviso.%b","source":"%b","time":"' % (type, source),
            b'","datacontenttype":"application/json","dataschema":"%b/schema/%b","data":'
            % (source, type),
        )

    def _encode_data(self, parts: StoredParts) -> bytes:
        identifier = parts.identifier
        if parts.box is not None:
            values: dict[str, Any] = dict(read_identifier(parts))
            values[POLYGON] = format_polygon(values[POLYGON], self.polygons)
            identifier = msgspec.json.encode(values)
        return b'{"identifier":%b,"payload":%b}' % (identifier, parts.payload)

    def _encode_wis2(self, seq: int, ts_ms: int, parts: StoredParts) -> bytes:
        payload = parts.payload
        if is_wis2(_decode_payload(payload)):
            return payload
        stored = Wis2Source(
            self.event_type, seq, ts_ms, read_identifier(parts), msgspec.Raw(payload)
        )
        return msgspec.json.encode(format_wis2(stored, self.source))


def _decode_payload(payload: bytes) -> object:
    """What a payload says; None for what JSON can write and nobody can hold, as 1e400."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None


_frames: BoundedCache[tuple[EventForm, bytes, int, int], bytes] = BoundedCache(FRAMES_SHARED)
"""Frames that were made last, by form, name, seq and time of commit."""


def _inside(text: str) -> bytes:
    """A text as it stands between quotes."""
    return msgspec.json.encode(text)[1:-1]


class NotificationView(PlainView, frozen=True, cache_hash=True, kw_only=True):
    """Notifications as they come: equal views share bytes."""

    form: EventForm
    selector: Selector
    chunked: bool
    gets_superseded: bool = True

    def encode(self, name: str, told: Event, position: int) -> bytes:
        if not isinstance(told, Records):
            return b""  # a heartbeat says that all is well, and the closing frame what is not
        frames = self.form.encode(LIVE, told.page)
        return chunk(frames) if self.chunked else frames


class ControlFrames:
    """Frames about a stream, for one reader."""

    __slots__ = ("request_id", "topic")

    def __init__(self, topic: str, request_id: str) -> None:
        self.topic = topic
        self.request_id = request_id

    def established(self, now_ms: int, closes_in_s: int, id: str | None) -> bytes:
        """The first frame of a watch that begins now, behind the notification of this id."""
        return _frame(
            LIVE,
            id,
            type="connection_established",
            topic=self.topic,
            timestamp=format_second(now_ms),
            connection_will_close_in_seconds=closes_in_s,
            request_id=self.request_id,
        )

    def replay_started(self, now_ms: int, **about: object) -> bytes:
        """The first frame of a stream that begins in the past."""
        return _frame(
            CONTROL,
            type="replay_started",
            topic=self.topic,
            **about,
            timestamp=format_second(now_ms),
            request_id=self.request_id,
        )

    def replay_completed(self, now_ms: int) -> bytes:
        return _frame(
            CONTROL,
            type="replay_completed",
            topic=self.topic,
            timestamp=format_second(now_ms),
            request_id=self.request_id,
        )

    def limit_reached(self, now_ms: int, max_allowed: int) -> bytes:
        """More notifications are wanted than one stream delivers of the past."""
        return _frame(
            CONTROL,
            type="notification_replay_limit_reached",
            topic=self.topic,
            max_allowed=max_allowed,
            message=f"This stream delivers at most {max_allowed} notifications of the past",
            timestamp=format_second(now_ms),
            request_id=self.request_id,
        )

    def heartbeat(self, now_ms: int) -> bytes:
        return _frame(HEARTBEAT, timestamp=format_second(now_ms), topic=self.topic)

    def failed(self, message: str) -> bytes:
        """The stream cannot go on."""
        return _frame(
            ERROR,
            error="stream_processing_failed",
            message=message,
            topic=self.topic,
            request_id=self.request_id,
        )

    def closing(self, now_ms: int, reason: CloseReason) -> bytes:
        """The last frame."""
        return _frame(
            CLOSING,
            reason=reason,
            timestamp=format_second(now_ms),
            message=_CLOSING[reason],
            topic=self.topic,
            request_id=self.request_id,
        )


CloseReason = Literal["end_of_stream", "max_duration_reached", "server_shutdown"]
_CLOSING: dict[CloseReason, str] = {
    "end_of_stream": "Stream completed",
    "max_duration_reached": "Connection reached maximum duration",
    "server_shutdown": "Server is shutting down gracefully",
}


def _frame(name: bytes, id: str | None = None, /, **members: object) -> bytes:
    return event(name, msgspec.json.encode(members), None if id is None else id.encode())
