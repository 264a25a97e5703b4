"""Replies as they arrive, read with the least work that still notices every failure."""

from __future__ import annotations

from typing import Protocol

from headrace.bench.errors import BenchError
from headrace.bench.wire import STREAM_FIELD

EXCERPT_BYTES_MAX = 300
_LENGTH = b"\r\ncontent-length:"
_NO_CONTENT = b"HTTP/1.1 204 "
_PONG = b"+PONG\r\n"
# One stream: the array, the pair, the name's length, the name and how many entries. Each of them:
# the pair, the id's length, the id, the fields, and two lines for each of name and value.
_ENTRIES_HEAD_LINES = 5
_ENTRY_LINES = 8
_CURSOR = b'"next_from_seq":'
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


class HttpReply:
    """One HTTP/1.1 reply: only the status line and the length are looked at."""

    def __init__(self) -> None:
        self.held: bytes | bytearray = b""
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> bool:
        # Most replies come in one piece: nothing is gathered then.
        if not self.held:
            self.held = chunk
        else:
            if isinstance(self.held, bytes):
                self.held = bytearray(self.held)
            self.held += chunk
        held = self.held
        if not self._size_bytes:
            head_stop = held.find(b"\r\n\r\n")
            if head_stop < 0:
                return False
            self._size_bytes = head_stop + 4 + parse_length(held[:head_stop])
        return len(held) >= self._size_bytes

    @property
    def body(self) -> bytes | bytearray:
        return self.held[self.held.find(b"\r\n\r\n") + 4 : self._size_bytes]

    def succeeded(self) -> bool:
        return self.held.startswith(b"HTTP/1.1 2")

    def clear(self) -> None:
        self.held = b""
        self._size_bytes = 0


class HttpPage(HttpReply):
    def cursor(self) -> str:
        start = self.held.rfind(_CURSOR)
        if start < 0:
            return ""
        start += len(_CURSOR)
        # What follows is a number, then a comma or the closing brace.
        return self.held[start : start + 24].replace(b"}", b",").split(b",", 1)[0].strip().decode()


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


def parse_length(head: bytes | bytearray) -> int:
    """The Content-Length of a reply's head; a 204 has none and no body."""
    if head.startswith(_NO_CONTENT):
        return 0
    start = head.find(_LENGTH)
    if start < 0:
        start = head.lower().find(_LENGTH)
    if start >= 0:
        return int(head[start + len(_LENGTH) :].split(b"\r\n", 1)[0])
    raise BenchError(f"a reply without Content-Length: {head[:EXCERPT_BYTES_MAX]!r}")


def format_excerpt(reply: Reply) -> str:
    """The beginning of a reply, for an error message."""
    return bytes(reply.held[:EXCERPT_BYTES_MAX]).decode(errors="replace")
