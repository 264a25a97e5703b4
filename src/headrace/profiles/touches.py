"""Touches: which keys changed when, as far back as is remembered.

Time is counted in generations: what changed within one bucket of time is one. The last generation
of each key is remembered exactly, for so many keys; whoever asks about a time before that is told
that something may have changed. Nobody is ever told that nothing changed when something did.
"""

from __future__ import annotations

from collections.abc import Iterable


class Touches:
    """What changed in one stream."""

    __slots__ = (
        "_everyone",
        "_floor",
        "_half",
        "_newer",
        "_older",
        "_older_last",
        "_pending_max",
        "everyone_pending",
        "generation",
        "overflows",
        "pending",
        "tables",
    )

    def __init__(self, keys_max: int, pending_max: int) -> None:
        self._half = max(1, keys_max // 2)
        self._pending_max = min(pending_max, self._half)
        self.generation = 0
        self.pending: set[int] = set()
        """Touched in the generation to come."""
        self.tables: set[int] = set()
        """Tables that are touched, too, in that one or in one behind it."""
        self.everyone_pending = False
        self.overflows = 0
        self._everyone = 0
        """The last generation that may have touched any key."""
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}
        """The last generation of each key, in two halves: the older one is forgotten at once."""
        self._older_last = 0
        self._floor = 0
        """Nothing is known of generations up to this one."""

    def __len__(self) -> int:
        """Keys that are remembered, those in both halves twice."""
        return len(self._newer) + len(self._older)

    @property
    def settled(self) -> bool:
        return not self.pending and not self.tables and not self.everyone_pending

    def touch(self, id: int) -> None:
        if len(self.pending) < self._pending_max:
            self.pending.add(id)
        elif id not in self.pending:
            self.overflow()

    def touch_table(self, id: int) -> None:
        """Touch what is told less often; there are few of them."""
        if len(self.tables) < self._pending_max:
            self.tables.add(id)
        elif id not in self.tables:
            self.overflow()

    def overflow(self) -> None:
        """Too much changed to say what: everybody is touched."""
        self.everyone_pending = True

    def flush(self, *, tables: bool = True) -> tuple[set[int], bool]:
        """Close a generation, perhaps without tables; returns the ids it touched, and whether that
        is everyone.
        """
        pending, everyone = self.pending, self.everyone_pending
        if tables or everyone:
            pending |= self.tables
            self.tables = set()
        self.generation += 1
        if everyone:
            self._everyone = self.generation
            self.overflows += 1
        else:
            self._remember(pending)
        self.pending, self.everyone_pending = set(), False
        return pending, everyone

    def _remember(self, ids: set[int]) -> None:
        if len(self._newer) + len(ids) > self._half:
            self._floor, self._older_last = self._older_last, self.generation - 1
            self._older, self._newer = self._newer, {}
        self._newer.update(dict.fromkeys(ids, self.generation))

    def is_touched(self, ids: Iterable[int], after: int) -> bool:
        """Whether one of these may have been touched behind this generation."""
        if after < self._floor or after < self._everyone:
            return True
        newer, older = self._newer.get, self._older.get
        return any((newer(id) or older(id, 0)) > after for id in ids)

    def is_anything_touched(self, after: int) -> bool:
        return self.generation > after
