"""Who is served next when not all can be at once: rounds over bands of priority, with ageing."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import msgspec

from headrace.core.limits import AGE_PRIORITY_MAX, AGE_PRIORITY_PER_S

T = TypeVar("T")

BANDS = (750, 500, 250, 0)
"""The lowest priority of each band but the last, which takes the rest."""
WEIGHTS = (8, 4, 2, 1, 1)
"""How often each band is served while all of them wait."""


def band_of(priority: float) -> int:
    """0 is served most often."""
    return next((band for band, low in enumerate(BANDS) if priority >= low), len(BANDS))


def aged(priority: int, waited_ms: int) -> float:
    """The priority of what has waited so long: nothing waits for ever."""
    return priority + min(AGE_PRIORITY_MAX, waited_ms * AGE_PRIORITY_PER_S / 1000)


class _Turn(msgspec.Struct, Generic[T]):
    item: T
    priority: int
    since_ms: int
    lowered: bool

    def band(self, now_ms: int) -> int:
        band = band_of(aged(self.priority, now_ms - self.since_ms)) + self.lowered
        return min(band, len(WEIGHTS) - 1)


class Rounds(Generic[T]):
    """Items that wait their turn.

    Bands are served in proportion to their weights and never starve each other; inside a band the
    first come is the first served. What has waited long moves up.
    """

    def __init__(self) -> None:
        self._bands: tuple[deque[_Turn[T]], ...] = tuple(deque() for _ in WEIGHTS)
        self._credit = [0] * len(WEIGHTS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, item: T, priority: int, now_ms: int, *, lowered: bool = False) -> None:
        """Line up; `lowered` puts it one band below its own."""
        turn = _Turn(item, priority, now_ms, lowered)
        self._bands[turn.band(now_ms)].append(turn)
        self._count += 1

    def take(self, now_ms: int) -> tuple[T, int] | None:
        """Whose turn it is, and how long it waited."""
        if not self._count:
            return None
        self._promote(now_ms)
        waiting = [band for band, turns in enumerate(self._bands) if turns]
        for band in waiting:
            self._credit[band] += WEIGHTS[band]
        chosen = max(waiting, key=lambda band: (self._credit[band], -band))
        self._credit[chosen] -= sum(WEIGHTS[band] for band in waiting)
        turn = self._bands[chosen].popleft()
        self._count -= 1
        if not self._bands[chosen]:
            self._credit[chosen] = 0  # no saving up while there is nothing to serve
        return turn.item, now_ms - turn.since_ms

    def _promote(self, now_ms: int) -> None:
        """Move up those at the front of their band whose age has lifted them over its border.

        They go in front there: none of that band has waited as long.
        """
        for band in range(1, len(WEIGHTS)):
            turns = self._bands[band]
            lifted: list[tuple[int, _Turn[T]]] = []
            while turns:
                higher = turns[0].band(now_ms)
                if higher >= band:
                    break
                lifted.append((higher, turns.popleft()))
            for higher, turn in reversed(lifted):
                self._bands[higher].appendleft(turn)
