"""Ids of requests that brought none: ULIDs, by which a request is found in the log.

26 characters of Crockford's base 32, in the order in which they were made: the milliseconds of the
time, twelve characters of the process, and four that count within the millisecond.
"""

from __future__ import annotations

from secrets import randbits
from time import time

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]


def _format(number: int, pairs: int) -> str:
    return "".join(_PAIRS[number >> 10 * at & 1023] for at in reversed(range(pairs)))


class RequestIds:
    """Makes ids for one process; a clock that goes back repeats none of them."""

    __slots__ = ("_count", "_ms", "_prefix", "_process")

    def __init__(self) -> None:
        self._process = _format(randbits(60), 6)
        self._ms = 0
        self._count = -1
        self._prefix = _format(0, 5) + self._process

    def make(self, now_ms: int) -> str:
        self._count += 1
        if now_ms > self._ms or self._count >> 20:
            self._ms = max(now_ms, self._ms + 1)
            self._count = 0
            self._prefix = _format(self._ms, 5) + self._process
        return self._prefix + _PAIRS[self._count >> 10] + _PAIRS[self._count & 1023]


_ids = RequestIds()


def new_request_id() -> str:
    return _ids.make(int(time() * 1000))
