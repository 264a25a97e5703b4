"""Which subscriptions may follow a stream, found without asking all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.streams.active_subscriptions import Active


class FollowerIndex:
    """Who may follow a stream: by its name, or by what names of a pattern begin with.

    A name is looked up once for each length of such beginnings, however many there are.
    """

    def __init__(self) -> None:
        self._named: dict[str, dict[int, Active]] = {}
        self._patterns: dict[str, dict[int, Active]] = {}
        """By what their names begin with."""
        self._lengths: Counter[int] = Counter()
        """Of those beginnings."""

    def add(self, active: Active) -> None:
        for name, link in active.subscription.links.items():
            if link.named:
                self.name(active, name)
        if active.pattern is not None:
            prefix = active.pattern.prefix
            if prefix not in self._patterns:
                self._lengths[len(prefix)] += 1
            _put(self._patterns, prefix, active)

    def remove(self, active: Active) -> None:
        for name in active.subscription.links:
            self.unname(active, name)
        if active.pattern is not None:
            prefix = active.pattern.prefix
            _take(self._patterns, prefix, active)
            if prefix not in self._patterns:
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]

    def name(self, active: Active, name: str) -> None:
        """It follows this stream by name from here on."""
        _put(self._named, name, active)

    def unname(self, active: Active, name: str) -> None:
        _take(self._named, name, active)

    def find(self, name: str) -> list[Active]:
        """Those who may follow a stream, in the order in which they were made."""
        found = dict(self._named.get(name, ()))
        for length in self._lengths:
            if length <= len(name):
                found |= self._patterns.get(name[:length], {})
        return [found[id] for id in sorted(found)]


def _put(held: dict[str, dict[int, Active]], name: str, active: Active) -> None:
    held.setdefault(name, {})[active.live.log.id] = active


def _take(held: dict[str, dict[int, Active]], name: str, active: Active) -> None:
    if name in held:
        held[name].pop(active.live.log.id, None)
        if not held[name]:
            del held[name]
