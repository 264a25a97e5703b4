"""Cohorts that have caught up and wait for what their selectors pick: found by an index of these.

Where many followers of a log want different records, most of them want nothing of a batch. They
move on behind it together, without a look at each.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.limits import LINGERING_SELECTORS_MAX, SELECTING_MS
from headrace.core.selector import Features, Selector
from headrace.core.selector_index import Picked, SelectorIndex
from headrace.delivery.cohort import Cohort
from headrace.engine.open_log import OpenLog


class IdleCohorts:
    """The idle cohorts of one log."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.position = 0
        """Where all of them are."""
        self._by_selector: dict[Selector, dict[Cohort, None]] = {}
        self._index = SelectorIndex()
        self._lingering: dict[Selector, None] = {}
        """Still in the index, though none of their cohorts is idle: those that want a record are
        back in a moment. The first are the ones that left first.
        """
        self._picked: dict[Selector, Picked] = {}
        """What was found for cohorts that were idle and have not got it yet, up to `position`."""

    def __bool__(self) -> bool:
        """Whether the position is somebody's."""
        return bool(self._by_selector or self._picked)

    def add(self, cohort: Cohort) -> bool:
        """Take a cohort in that is at rest; False if it cannot be found, or is elsewhere."""
        selector = cohort.view.selector
        if not selector.conditions or cohort.view.strong or not cohort.at_rest:
            return False
        if self and self.position != cohort.position:
            return False
        self.position = cohort.position
        cohort.idle = True
        self._picked.pop(selector, None)
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
                self._drop(next(iter(self._lingering)))

    def discard(self, cohort: Cohort) -> None:
        """A cohort has nobody left: its selector is not kept for its return."""
        if cohort.idle:
            self.remove(cohort)
        selector = cohort.view.selector
        if selector in self._lingering:
            self._drop(selector)

    def _drop(self, lingering: Selector) -> None:
        del self._lingering[lingering]
        self._picked.pop(lingering, None)
        self._index.remove(lingering)

    def remove_all(self) -> list[Cohort]:
        """Let all of them go on by themselves."""
        self._picked.clear()
        return self._remove(*self._by_selector)

    def move(self, live: OpenLog, upto: int) -> list[Cohort]:
        """Move on behind records in memory; those who want some of them stay, and are returned.

        To ask many selectors for which each question is hard would take too long in one go: those
        that were not asked by then stay, too, and their cohorts look for themselves.
        """
        after, wanted = self.position, dict[Selector, None]()
        unasked: set[Selector] = set()
        left_s = SELECTING_MS / 1e3

        def ask_hard(selector: Selector, features: Features) -> bool | None:
            nonlocal left_s
            if left_s <= 0:
                return None
            began = self._time()
            taken = selector.takes(features)
            left_s -= self._time() - began
            return taken

        for block in live.tail.since(after + 1):
            picks = range(block.index(after + 1), block.stop_index(upto))
            found = self._index.find(block, picks, live.log.config, ask_hard)
            for selector, picked in found.items():
                known = self._picked.get(selector)
                if known is None:
                    if selector not in self._by_selector or selector in unasked:
                        continue  # its cohorts go on by themselves
                    wanted[selector] = None
                if picked is None:
                    unasked.add(selector)
                    self._picked.pop(selector, None)
                    continue
                if known is None:
                    known = self._picked[selector] = Picked(after)
                known.add(block, picked)
        wanting = self._remove(*wanted)
        self.position = upto
        return wanting

    def _remove(self, *selectors: Selector) -> list[Cohort]:
        cohorts = [cohort for selector in selectors for cohort in self._by_selector[selector]]
        for cohort in cohorts:
            self.remove(cohort)
        return cohorts

    def picked(self, cohort: Cohort) -> Picked | None:
        """What a cohort wants of all that is behind it, up to our position, if that is known."""
        found = self._picked.get(cohort.view.selector)
        if found is None or cohort.view.strong or not found.after <= cohort.position:
            return None
        return found if cohort.position < self.position else None

    def forget(self) -> None:
        """Everybody has got what was found."""
        self._picked.clear()
