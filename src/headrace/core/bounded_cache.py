"""A cache with a bound: what was worked out before, by what it was worked out from."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """At most so many values. When there is no room, all go: that costs a hit nothing, and whoever
    fills it on purpose gains no more than that others are worked out once more.
    """

    __slots__ = ("_count_max",)

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def keep(self, key: K, value: V) -> None:
        """Have this at hand from now on, for a while."""
        if len(self) >= self._count_max:
            self.clear()
        self[key] = value
