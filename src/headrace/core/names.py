"""Names of logs: one namespace, one character set, checked at the edge before any use."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from headrace.core.errors import Code, Refused
from headrace.core.limits import NAMES_CHUNK

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Those of ASCII and of Latin-1, and what ends a line elsewhere."""
METRICS_STREAM = "__stream_metrics__"


def parse_name(text: str) -> str:
    """A log name as a user may write it; refuses everything else."""
    if _NAME.match(text) is None:
        raise Refused(
            Code.INVALID,
            "a name has 1 to 255 characters of A-Z a-z 0-9 . _ : - "
            "and starts with a letter or digit",
            name=text[:300],
        )
    return text


def check_printable(text: str, what: str) -> None:
    """Refuse what would garble a terminal, a log or a header."""
    if has_controls(text):
        raise Refused(Code.INVALID, f"{what} has no control characters")


def has_controls(text: str) -> bool:
    """Whether there are control characters in a text."""
    return _CONTROLS.search(text) is not None


class SortedNames:
    """Names in order, in chunks: one more of a million moves a few hundred, and listing sorts
    nothing.
    """

    __slots__ = ("_chunks", "_count", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[list[str]] = []
        self._firsts: list[str] = []
        """What each chunk is found by: nothing in it sorts before, nothing in the next after."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: str) -> None:
        at = bisect_right(self._firsts, name) - 1
        if at < 0:
            if not self._chunks:
                self._chunks.append([])
                self._firsts.append("")
            at = 0
        chunk = self._chunks[at]
        insort(chunk, name)
        self._count += 1
        if len(chunk) > NAMES_CHUNK:
            half = chunk[len(chunk) // 2 :]
            del chunk[len(chunk) // 2 :]
            self._chunks.insert(at + 1, half)
            self._firsts.insert(at + 1, half[0])

    def remove(self, name: str) -> None:
        at = bisect_right(self._firsts, name) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        self._count -= 1
        if not chunk and at:
            del self._chunks[at], self._firsts[at]

    def range(self, after: str, prefix: str) -> Iterator[str]:
        """Names with this prefix that sort after `after`, ascending."""
        low = max(prefix, after + "\0") if after else prefix
        at = max(0, bisect_right(self._firsts, low) - 1)
        start = bisect_left(self._chunks[at], low) if self._chunks else 0
        for chunk in self._chunks[at:]:
            for name in chunk[start:]:
                if not name.startswith(prefix):
                    return
                yield name
            start = 0
