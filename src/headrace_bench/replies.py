"""Replies as they arrive, read with the least work that still notices every failure."""

from __future__ import annotations

import re
from typing import ClassVar, Protocol

from headrace_bench.errors import BenchError
from headrace_bench.wire import STREAM_FIELD

EXCERPT_BYTES_MAX = 300
_LENGTH = b"\r\ncontent-length:"
_CHUNKED = b"\r\ntransfer-encoding: chunked"
_NEXT_OFFSET = re.compile(rb"\r\nstream-next-offset: *([^\r\n]+)\r\n", re.IGNORECASE)
_UP_TO_DATE = re.compile(rb"\r\nstream-up-to-date: *true\r\n", re.IGNORECASE)
_NO_CONTENT = b"HTTP/1.1 204 "
_PONG = b"+PONG\r\n"
# One stream: the array, the pair, the name's length, the name and how many entries. Each of them:
# the pair, the id's length, the id, the fields, and two lines for each of name and value.
_ENTRIES_HEAD_LINES = 5
_ENTRY_LINES = 8
_ENTRY_FIELDS = b"\r\n*2\r\n$%d\r\n%s\r\n" % (len(STREAM_FIELD), STREAM_FIELD)


class Reply(Protocol):
    @property
    def held(self) -> bytes | bytearray: ...

    def feed(self, chunk: bytes) -> bool:
        """Take bytes; true once the reply is whole."""

    def succeeded(self) -> bool: ...

    def clear(self) -> None: ...


class Page(Reply, Protocol):
    def cursor(self) -> str:
        """Where the next page starts; empty if this page says nothing about it."""

    def is_last(self) -> bool:
        """Whether the page says itself that nothing is behind it."""

    @property
    def body_bytes(self) -> int: ...


class HttpReply:
    """One HTTP/1.1 reply: only the status line and the length are looked at."""

    def __init__(self) -> None:
        self.held: bytes | bytearray = b""
        self._body_start = 0
        self._stop = 0
        """Where it ends; of a reply in chunks, where the next chunk starts."""
        self._chunks: list[slice] | None = None

    def feed(self, chunk: bytes) -> bool:
        # Most replies come in one piece: nothing is gathered then.
        if not self.held:
            self.held = chunk
        else:
            if isinstance(self.held, bytes):
                self.held = bytearray(self.held)
            self.held += chunk
        held = self.held
        if not self._stop:
            head_stop = held.find(b"\r\n\r\n")
            if head_stop < 0:
                return False
            length = parse_length(held[:head_stop])
            self._body_start = head_stop + 4
            self._stop = self._body_start + (length or 0)
            self._chunks = [] if length is None else None
        return len(held) >= self._stop if self._chunks is None else self._take_chunks(self._chunks)

    def _take_chunks(self, chunks: list[slice]) -> bool:
        """Find the chunks that are whole; true once the empty one that ends them is."""
        held = self.held
        while (line_stop := held.find(b"\r\n", self._stop)) >= 0:
            start = line_stop + 2
            stop = start + int(held[self._stop : line_stop], 16)
            if len(held) < stop + 2:
                return False
            self._stop = stop + 2
            if stop == start:
                return True
            chunks.append(slice(start, stop))
        return False

    @property
    def head(self) -> bytes | bytearray:
        return self.held[: self._body_start]

    @property
    def body(self) -> bytes | bytearray:
        if self._chunks is not None:
            return b"".join([self.held[chunk] for chunk in self._chunks])
        return self.held[self._body_start : self._stop]

    @property
    def body_bytes(self) -> int:
        if self._chunks is not None:
            return sum(chunk.stop - chunk.start for chunk in self._chunks)
        return self._stop - self._body_start

    def succeeded(self) -> bool:
        return self.held.startswith(b"HTTP/1.1 2")

    def clear(self) -> None:
        self.held = b""
        self._body_start = self._stop = 0
        self._chunks = None


class HttpPage(HttpReply):
    """A page of a topic: where it ends is in its body."""

    CURSOR: ClassVar = b'"next_from_seq":'

    def cursor(self) -> str:
        start = self.held.rfind(self.CURSOR)
        if start < 0:
            return ""
        start += len(self.CURSOR)
        # What follows is a number, then a comma or the closing brace.
        return self.held[start : start + 24].replace(b"}", b",").split(b",", 1)[0].strip().decode()

    def is_last(self) -> bool:
        return False


class FeedPage(HttpPage):
    """A page of a feed."""

    CURSOR: ClassVar = b'"cursor":{"sequenceNumber":'


class StreamPage(HttpReply):
    """A page of a stream: where it ends is in its head."""

    def cursor(self) -> str:
        found = _NEXT_OFFSET.search(self.head)
        return found[1].decode() if found else ""

    def is_last(self) -> bool:
        return _UP_TO_DATE.search(self.head) is not None


class RespLines:
    """Replies of one line each: numbers, statuses and errors."""

    def __init__(self, count: int) -> None:
        self.held = bytearray()
        self._lines = count

    def feed(self, chunk: bytes) -> bool:
        self.held += chunk
        return self.held.count(b"\r\n") >= self._lines

    def succeeded(self) -> bool:
        return not self._errors()

    def clear(self) -> None:
        self.held.clear()

    def _errors(self) -> int:
        return self.held.startswith(b"-") + self.held.count(b"\n-")


class RespReplies(RespLines):
    """The bulk replies to a pipeline: two lines each, or one line for an error."""

    def __init__(self, count: int) -> None:
        super().__init__(2 * count)

    def feed(self, chunk: bytes) -> bool:
        self.held += chunk
        return self.held.count(b"\r\n") + self._errors() >= self._lines


class RespEntries:
    """The reply to an XREADGROUP of one stream whose entries have one field; texts of one line."""

    def __init__(self) -> None:
        self.held = bytearray()

    def feed(self, chunk: bytes) -> bool:
        self.held += chunk
        lines = self.held.count(b"\r\n")
        if not self.held.startswith(b"*1"):
            # Nothing to read (a null), or an error.
            return lines > 0
        if lines < _ENTRIES_HEAD_LINES:
            return False
        count = self.held.split(b"\r\n", _ENTRIES_HEAD_LINES)[_ENTRIES_HEAD_LINES - 1]
        return lines >= _ENTRIES_HEAD_LINES + _ENTRY_LINES * int(count[1:])

    def succeeded(self) -> bool:
        return self.held.startswith(b"*")

    def clear(self) -> None:
        self.held.clear()


class RespPage:
    """The reply to an XRANGE with a PING behind it."""

    def __init__(self) -> None:
        self.held = bytearray()

    def feed(self, chunk: bytes) -> bool:
        self.held += chunk
        return self.held.endswith(_PONG)

    def succeeded(self) -> bool:
        return self.held.startswith(b"*")

    def clear(self) -> None:
        self.held.clear()

    def cursor(self) -> str:
        stop = self.held.rfind(_ENTRY_FIELDS)
        if stop < 0:
            return ""
        return self.held[self.held.rfind(b"\r\n", 0, stop) + 2 : stop].decode()

    def is_last(self) -> bool:
        return False

    @property
    def body_bytes(self) -> int:
        return len(self.held)


def parse_length(head: bytes | bytearray) -> int | None:
    """The Content-Length of a reply's head; a 204 has none and no body. None for chunks."""
    if head.startswith(_NO_CONTENT):
        return 0
    start = head.find(_LENGTH)
    if start < 0:
        head = head.lower()
        start = head.find(_LENGTH)
    if start >= 0:
        return int(head[start + len(_LENGTH) :].split(b"\r\n", 1)[0])
    if _CHUNKED in head:
        return None
    raise BenchError(f"a reply without Content-Length: {head[:EXCERPT_BYTES_MAX]!r}")


def format_excerpt(reply: Reply) -> str:
    """The beginning of a reply, for an error message."""
    return bytes(reply.held[:EXCERPT_BYTES_MAX]).decode(errors="replace")
