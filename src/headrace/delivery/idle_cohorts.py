"""Cohorts that have caught up and wait for what their selectors pick: found by an index of these.

Where many followers of a log want different records, most of them want nothing of a batch. They
move on behind it together, without a look at each.
"""

from __future__ import annotations

from headrace.core.limits import LINGERING_SELECTORS_MAX
from headrace.core.selector import Selector
from headrace.core.selector_index import Picked, SelectorIndex
from headrace.delivery.cohort import Cohort
from headrace.engine.open_log import OpenLog


class IdleCohorts:
    """The idle cohorts of one log."""

    def __init__(self) -> None:
        self.position = 0
        """Where all of them are."""
        self._by_selector: dict[Selector, dict[Cohort, None]] = {}
        self._index = SelectorIndex()
        self._lingering: dict[Selector, None] = {}
        """Still in the index, though none of their cohorts is idle: those that want a record are
        back in a moment. The first are the ones that left first.
        """
        self._picked: dict[Selector, Picked] = {}
        """What was found for those that were idle before this pass, behind `_picked_after`."""
        self._picked_after = 0

    def __bool__(self) -> bool:
        return bool(self._by_selector)

    def add(self, cohort: Cohort) -> bool:
        """Take a cohort in that is at rest; False if it cannot be found, or is elsewhere."""
        selector = cohort.view.selector
        if not selector.conditions or cohort.view.strong or not cohort.at_rest:
            return False
        if self and self.position != cohort.position:
            return False
        self.position = cohort.position
        cohort.idle = True
        self._by_selector.setdefault(selector, {})[cohort] = None
        self._lingering.pop(selector, None)
        self._index.add(selector)
        return True

    def remove(self, cohort: Cohort) -> None:
        """Let a cohort go on by itself."""
        selector, cohort.position, cohort.idle = cohort.view.selector, self.position, False
        del self._by_selector[selector][cohort]
        if not self._by_selector[selector]:
            del self._by_selector[selector]
            self._lingering[selector] = None
            if len(self._lingering) > LINGERING_SELECTORS_MAX:
                first = next(iter(self._lingering))
                del self._lingering[first]
                self._index.remove(first)

    def remove_all(self) -> list[Cohort]:
        """Let all of them go on by themselves."""
        return self._remove(*self._by_selector)

    def move(self, live: OpenLog, upto: int) -> list[Cohort]:
        """Move on behind records in memory; those who want some of them stay, and are returned."""
        after = self._picked_after = self.position
        for block in live.tail.since(after + 1):
            picks = range(block.index(after + 1), block.stop_index(upto))
            for selector, picked in self._index.find(block, picks, live.log.config).items():
                if selector in self._by_selector:
                    self._picked.setdefault(selector, Picked({})).known[block.first] = picked
        wanting = self._remove(*self._picked)
        self.position = upto
        return wanting

    def _remove(self, *selectors: Selector) -> list[Cohort]:
        cohorts = [cohort for selector in selectors for cohort in self._by_selector[selector]]
        for cohort in cohorts:
            self.remove(cohort)
        return cohorts

    def selector(self, cohort: Cohort) -> Selector:
        """What a cohort wants; of what came just now, the index may have told already."""
        selector = cohort.view.selector
        if self._picked and cohort.position >= self._picked_after:
            return self._picked.get(selector, selector)
        return selector

    def forget(self) -> None:
        """Another pass begins: what was found is no longer the newest."""
        self._picked.clear()
