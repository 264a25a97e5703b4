"""Server-sent events out of bytes, however these are cut. Without I/O, bounded in memory."""

from __future__ import annotations

import re

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.limits import FLAGS_CLIENT_EVENT_BYTES_MAX, FLAGS_CLIENT_PAUSE_S_MAX

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class OversizedEvent(Exception):
    """An event is larger than any that a server may send."""


class StreamedEvent(msgspec.Struct, frozen=True):
    """One event as it came."""

    name: str
    data: str


class EventParser:
    """Takes the bytes of one stream; what has no end yet is kept, up to a bound."""

    def __init__(self, bytes_max: int = FLAGS_CLIENT_EVENT_BYTES_MAX) -> None:
        self.retry_s = 0.0
        """How long the server asks to wait before the next connection."""
        self._bytes_max = bytes_max
        self._line = bytearray()
        self._is_first_line = True
        self._after_return = False
        """Whether the last byte was a CR, which a LF that follows belongs to."""
        self._name = ""
        self._data: list[str] = []
        self._kept_bytes = 0
        """Of the lines of the event that has not ended."""

    def feed(self, data: bytes) -> list[StreamedEvent]:
        """The events that end in these bytes; OversizedEvent when one grows too large."""
        events: list[StreamedEvent] = []
        if not data:
            return events
        start = int(self._after_return and data.startswith(b"\n"))
        for end in _LINE_END.finditer(data, start):
            self._extend_line(data[start : end.start()])
            start = end.end()
            line, self._line = bytes(self._line), bytearray()
            if (event := self._take_line(line)) is not None:
                events.append(event)
        self._after_return = data.endswith(b"\r")
        self._extend_line(data[start:])
        return events

    def _extend_line(self, part: bytes) -> None:
        if self._kept_bytes + len(self._line) + len(part) > self._bytes_max:
            raise OversizedEvent(f"an event has more than {self._bytes_max} bytes")
        self._line += part

    def _take_line(self, line: bytes) -> StreamedEvent | None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._end_event()
        name, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"event":
                self._name = value
            case b"data":
                self._data.append(value)
                self._kept_bytes += len(line)
            case b"retry":
                if (
                    retry_ms := parse_digits(value, int(FLAGS_CLIENT_PAUSE_S_MAX * 1000))
                ) is not None:
                    self.retry_s = retry_ms / 1000
        return None

    def _end_event(self) -> StreamedEvent | None:
        """An empty line ends an event; without data there was none."""
        event = StreamedEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._kept_bytes = "", [], 0
        return event
