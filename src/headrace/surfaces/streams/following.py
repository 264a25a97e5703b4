"""Following a stream over server-sent events: data, and behind each of them where it leads."""

from __future__ import annotations

import asyncio
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
from headrace.core.read import Page, Wanted
from headrace.core.stream import JSON, media_type
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, Over
from headrace.delivery.events import CaughtUp, Event, Lost, Records
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK, EventStream, chunk
from headrace.engine.live import Live
from headrace.engine.ports import Clock
from headrace.engine.shapes import Shapes
from headrace.surfaces.streams.errors import refuse
from headrace.surfaces.streams.events import next_cursor, render_array, render_raw
from headrace.surfaces.streams.positions import content_type_of, format_position

_HEARTBEAT_S = 15.0
_LOOK_S = 0.05
_LINES = re.compile(rb"\r\n|\r|\n")


class StreamLook:
    """How a stream is told: equal looks share bytes."""

    __slots__ = ("_clock", "_cursor", "_encoding", "_key", "_log", "_shapes", "chunked", "wanted")

    bytes_max = READ_BYTES_DEFAULT
    strong = False
    heartbeat_s = _HEARTBEAT_S

    def __init__(self, log: Log, wanted: Wanted, cursor: str, clock: Clock, shapes: Shapes) -> None:
        self._log = log
        self._clock = clock
        self._shapes = shapes
        self.wanted = wanted
        self.chunked = True
        media = media_type(content_type_of(log))
        self._encoding = "json" if media == JSON else "text" if media[:5] == "text/" else "base64"
        ahead = cursor != next_cursor(None, clock.now_ms(), 0)
        self._cursor = cursor if ahead else None
        """A cursor beyond the current one, which a client has from elsewhere."""

    @property
    def records_max(self) -> int:
        """Fewer where they may have to be made current: there is room for so much in an event."""
        is_old = self._shapes.version(self._log) > 1
        return PROMOTED_EVENT_RECORDS if is_old else STREAM_PAGE_RECORDS

    def _same(self) -> tuple[object, ...]:
        return self._log.id, self.wanted, self._cursor, self.chunked

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamLook) and self._same() == other._same()

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
            case CaughtUp() if self.wanted.key is not None:
                told = self.control(position, up_to_date=True)
            case _:
                return b""  # what there is to say was said with the data
        return self.wrap(told)

    def _records(self, page: Page, position: int) -> bytes:
        try:
            made = self._shapes.promoted(self._log, page, PROMOTED_EVENT_BYTES)
            if made.next != page.next:
                raise Refused(Code.INVALID, "lens failed: this is too much for an event")
        except Refused as refused:  # whoever comes back begins before these records again
            return b"event: error\n" + _line(refuse(refused)[2]) + b"\n"
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


class Crowd:
    """All who follow one stream: they hear together that it has ended."""

    __slots__ = ("_live", "sinks")

    def __init__(self, live: Live) -> None:
        self._live = live
        self.sinks: dict[StreamSink, None] = {}
        live.listen(self._notice)

    def _notice(self) -> None:
        stream = self._live.log.stream
        if stream is not None and (stream.closed or stream.deleted):
            for sink in tuple(self.sinks):
                sink.notice()

    def close(self) -> None:
        self._live.unlisten(self._notice)


class Crowds:
    """Who follows which stream."""

    def __init__(self) -> None:
        self._crowds: dict[Live, Crowd] = {}

    def join(self, live: Live, sink: StreamSink) -> None:
        if live not in self._crowds:
            self._crowds[live] = Crowd(live)
        self._crowds[live].sinks[sink] = None

    def leave(self, live: Live, sink: StreamSink) -> None:
        crowd = self._crowds[live]
        crowd.sinks.pop(sink, None)
        if not crowd.sinks:
            del self._crowds[live]
            crowd.close()


class StreamSink(EventStream):
    """One reader that stays, for a minute or until the stream ends."""

    __slots__ = ("_crowds", "_live", "_look", "_start", "_streams")

    def __init__(self, hub: Hub, crowds: Crowds, live: Live, look: StreamLook, after: int) -> None:
        super().__init__(hub, _HEARTBEAT_S, STREAM_SSE_S)
        self._streams = hub.engine.streams
        self._crowds = crowds
        self._live = live
        self._look = look
        self._start = after

    def preamble(self) -> bytes:
        return b""

    def closing_frame(self, ending: Ending) -> bytes:
        """The last control event said where to go on, so there is nothing to add."""
        return LAST_CHUNK if self.chunked else b""

    # --- the connection ---------------------------------------------------------------------------

    def on_open(self) -> None:
        self._look.chunked = self.chunked
        live = self._live
        follower = Follower(self, live, self._look, self._start, self._deliver, owes=False)
        self._crowds.join(live, self)
        if self._start == live.visible and not self._streams.is_closed(live):
            self.write(self._look.wrap(self._look.control(self._start, up_to_date=True)))
        self.followers.add(follower)
        self.notice()

    def on_end(self) -> None:
        super().on_end()
        self._crowds.leave(self._live, self)

    # --- the stream -------------------------------------------------------------------------------

    def _deliver(self, frame: bytes) -> None:
        if frame:
            self.transport.write(frame)
        if self._streams.is_over(self._live):
            self._finish()

    def notice(self) -> None:
        """Something changed: when that was the end, it may be the end here, too."""
        if self._streams.is_over(self._live) and not self.closed and not self._finish():
            # Records are still on their way to this reader, who hears of the end behind them.
            asyncio.get_running_loop().call_later(_LOOK_S, self.notice)

    def _finish(self) -> bool:
        """Say that nothing more will come, and close, once everything has come."""
        stream = self._live.log.stream
        if stream is not None and stream.deleted:
            self.end(Over())
            return True
        position = max((follower.position for follower in self.followers), default=None)
        if position != self._live.visible or self.blocked:
            return False
        self.write(self._look.wrap(self._look.control(position, closed=True)))
        self.end(Over())
        return True
