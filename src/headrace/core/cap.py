"""Caps: named bounds on what there may be, of the whole server or of one key, and the counts by key
that are compared with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple, TypeVar

from headrace.core.errors import Code, Refused

K = TypeVar("K", bound=Hashable)


class Cap(NamedTuple):
    """A named bound; a max of 0 means unlimited."""

    limit: str
    max: int

    def has_room(self, held: int, more: int = 1) -> bool:
        """Whether so many more are not too many."""
        return not self.max or held + more <= self.max

    def check(self, held: int, more: int = 1) -> None:
        """Refuse so many more when they are too many."""
        if not self.has_room(held, more):
            raise Refused(
                Code.THROTTLED,
                f"{self.limit} is reached: at most {self.max}",
                limit=self.limit,
                max=self.max,
            )


def add_to(counts: Counter[K], key: K, number: int) -> None:
    """Count so many more for a key, or fewer; a key that has nothing left is not kept."""
    counts[key] += number
    if not counts[key]:
        del counts[key]
