"""Long blocking work in units, so that others get a thread in between."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from time import perf_counter

from headrace.engine.ports import Pool
from headrace.search.companions import TimeUp

_TURN_S = 0.02
"""Work gives its thread back after this long."""


class Deadline:
    """When the time of a request is up; never, unless that is said."""

    def __init__(self, timeout_ms: float = inf) -> None:
        self.started = perf_counter()
        self._at = self.started + timeout_ms / 1e3

    @property
    def over(self) -> bool:
        return perf_counter() >= self._at

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - perf_counter())

    def check(self) -> None:
        """Raise when it is."""
        if self.over:
            raise TimeUp

    @property
    def took_ms(self) -> int:
        return round((perf_counter() - self.started) * 1e3)


async def in_slices(pool: Pool, work: Iterator[object]) -> None:
    """Run through an iterator in threads, a few units at a time.

    It must not hold a lock between two units: who waits for that may have its thread.
    """
    while not await pool.run(_turn, work):
        pass


def _turn(work: Iterator[object]) -> bool:
    """Some units; whether it is done."""
    until = perf_counter() + _TURN_S
    return all(perf_counter() < until for _ in work)
