"""Following a stream over server-sent events: data, and behind each of them where it leads."""

from __future__ import annotations

import re
from base64 import b64encode

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    PROMOTED_EVENT_BYTES,
    PROMOTED_EVENT_RECORDS,
    READ_BYTES_DEFAULT,
    STREAM_PAGE_RECORDS,
    STREAM_SSE_S,
)
from headrace.core.log import Log
from headrace.core.read import Page
from headrace.core.selector import ColumnSelector
from headrace.core.stream_state import JSON, media_type
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, Over
from headrace.delivery.events import CaughtUp, Ended, Event, Lost, Records
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK, EventStream, chunk
from headrace.engine.open_log import OpenLog
from headrace.engine.ports import Clock
from headrace.engine.streams.ingest_rules import StreamIngest
from headrace.surfaces.streams.errors import encode_error
from headrace.surfaces.streams.events import next_cursor, render_array, render_raw
from headrace.surfaces.streams.positions import content_type_of, format_position

_HEARTBEAT_S = 15.0
_LINES = re.compile(rb"\r\n|\r|\n")


class StreamView:
    """How a stream is told: equal views share bytes."""

    __slots__ = ("_clock", "_cursor", "_encoding", "_ingest", "_log", "chunked", "selector")

    bytes_max = READ_BYTES_DEFAULT
    strong = False
    gets_superseded = False
    heartbeat_s = _HEARTBEAT_S

    def __init__(
        self, log: Log, selector: ColumnSelector, cursor: str, clock: Clock, ingest: StreamIngest
    ) -> None:
        self._log = log
        self._clock = clock
        self._ingest = ingest
        self.selector = selector
        self.chunked = True
        media = media_type(content_type_of(log))
        self._encoding = "json" if media == JSON else "text" if media[:5] == "text/" else "base64"
        ahead = cursor != next_cursor(None, clock.now_ms(), 0)
        self._cursor = cursor if ahead else None
        """A cursor beyond the current one, which a client has from elsewhere."""

    @property
    def records_max(self) -> int:
        """Fewer where they may have to be made current: there is room for so much in an event."""
        is_old = self._ingest.version(self._log) > 1
        return PROMOTED_EVENT_RECORDS if is_old else STREAM_PAGE_RECORDS

    def _same(self) -> tuple[object, ...]:
        return self._log.id, self.selector, self._cursor, self.chunked

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamView) and self._same() == other._same()

    def __hash__(self) -> int:
        return hash(self._same())

    @property
    def headers(self) -> list[tuple[str, str]]:
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")]
        if self._encoding == "base64":
            headers.append(("stream-sse-data-encoding", "base64"))
        return headers

    def encode(self, name: str, event: Event, position: int) -> bytes:
        match event:
            case Records(page=page):
                told = self._records(page, position)
            case Lost(gap=gap):
                told = self.control(
                    position,
                    gap={"first": gap.first, "last": gap.last, "reason": gap.reason.value},
                )
            case Ended():
                told = self.control(position, closed=True)
            case CaughtUp() if self.selector.key is not None:
                told = self.control(position, up_to_date=True)
            case _:
                return b""  # what there is to say was said with the data
        return self.wrap(told)

    def _records(self, page: Page, position: int) -> bytes:
        try:
            made = self._ingest.promoted(self._log, page, PROMOTED_EVENT_BYTES)
            if made.next != page.next:
                raise Refused(Code.INVALID, "lens failed: this is too much for an event")
        except Refused as refused:  # whoever comes back begins before these records again
            return b"event: error\n" + _line(encode_error(refused)) + b"\n"
        return self._data(made) + self.control(position, up_to_date=page.caught_up)

    def wrap(self, told: bytes) -> bytes:
        return chunk(told) if self.chunked else told

    def _data(self, page: Page) -> bytes:
        if self._encoding == "json":
            lines = [render_array(page).replace(b"\n", b" ").replace(b"\r", b" ")]
        elif self._encoding == "text":
            lines = _LINES.split(render_raw(page))
        else:
            lines = [b64encode(render_raw(page))]
        return b"event: data\n" + b"".join([_line(line) for line in lines]) + b"\n"

    def control(
        self,
        position: int,
        *,
        up_to_date: bool = False,
        closed: bool = False,
        gap: dict[str, object] | None = None,
    ) -> bytes:
        """Where the reader is now, in an event of its own."""
        said: dict[str, object] = {"streamNextOffset": format_position(self._log, position)}
        if not closed:
            said["streamCursor"] = next_cursor(None, self._clock.now_ms(), 0)
            if self._cursor is not None:
                said["streamCursor"] = max(str(said["streamCursor"]), self._cursor, key=int)
        if up_to_date or closed:
            said["upToDate"] = True
        if closed:
            said["streamClosed"] = True
        if gap is not None:
            said["streamGap"] = gap
        return b"event: control\n" + _line(msgspec.json.encode(said)) + b"\n"


def _line(text: bytes) -> bytes:
    """A line of data. Readers take off one space at its start, so that needs another one."""
    return b"data: %b\n" % text if text[:1] == b" " else b"data:%b\n" % text


class StreamSink(EventStream):
    """One reader that stays, for a minute or until the stream ends."""

    __slots__ = ("_live", "_start", "_view")

    def __init__(self, hub: Hub, live: OpenLog, view: StreamView, after: int) -> None:
        super().__init__(hub, _HEARTBEAT_S, STREAM_SSE_S)
        self._live = live
        self._view = view
        self._start = after

    def preamble(self) -> bytes:
        return b""

    def closing_frame(self, ending: Ending) -> bytes:
        """The last control event said where to go on, so there is nothing to add."""
        return LAST_CHUNK if self.chunked else b""

    # --- the connection ---------------------------------------------------------------------------

    def on_open(self) -> None:
        self._view.chunked = self.chunked
        live = self._live
        if self._start == live.visible and not self._hub.engine.streams.is_closed(live):
            self.write(self._view.wrap(self._view.control(self._start, up_to_date=True)))
        write = self.transport.write
        self.followers.add(
            Follower(self, live, self._view, self._start, write, owes_caught_up=False)
        )

    def on_log_ended(self, follower: Follower) -> None:
        self.end(Over())
