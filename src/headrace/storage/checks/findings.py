"""What a check says: a problem, or a note about something that is odd but as it should be."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Advance = Callable[[int], None]
"""Called with the number of bytes looked at since the last call."""


class _Said(msgspec.Struct, frozen=True):
    where: str
    """The file, relative to the data directory; or the work that failed."""
    place: str
    """Where in it: a byte, a row, a log; empty for all of it."""
    what: str

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.where}{place}: {self.what}"


class Problem(_Said, frozen=True, tag=True):
    """Something is not what it was or not what it should be."""


class Note(_Said, frozen=True, tag=True):
    """Worth knowing, and no damage."""


Finding = Problem | Note


def byte(offset: int) -> str:
    return f"byte {offset}"


def row(number: int) -> str:
    return f"row {number}"


def log(name: str) -> str:
    return f'log "{name}"'
