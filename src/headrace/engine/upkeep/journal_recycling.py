"""Recycling journal files: spares to go on in, so that a sync changes nothing but bytes.

A journal file that nobody needs any more is written over with zeroes and waits for its next turn;
where there is none, a new one is made while the open file fills up. Without a spare the journal
goes on in an empty file, which is slower and nothing else.
"""

from __future__ import annotations

from headrace.core.limits import SPARE_BYTES_MAX, SPARES_MAX
from headrace.engine.ports import Ids, Pool, Sealer
from headrace.formats import layout
from headrace.storage.disk import Disk
from headrace.storage.journal import Journal
from headrace.storage.replay import journal_files
from headrace.storage.sealing import SealFailed

_OVERSHOOT = 64
"""A journal file ends with the append that fills it: this part of its size is added for that."""


class JournalRecycling:
    """Keeps a few blank files ready for the journal."""

    def __init__(
        self, journal: Journal, disk: Disk, sealer: Sealer, pool: Pool, ids: Ids, file_bytes: int
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._sealer = sealer
        self._pool = pool
        self._ids = ids
        self._due_bytes = file_bytes // 2
        self._size_bytes = min(file_bytes + file_bytes // _OVERSHOOT, SPARE_BYTES_MAX)

    def due(self, file_bytes: int) -> bool:
        """Whether the open file is so large that the next one should be ready."""
        return file_bytes >= self._due_bytes and not self._journal.spares

    async def retire(self, position: int) -> None:
        """Nobody needs the journal below `position`: its files become spares, or go."""
        for path in await self._pool.run(self._retire, position):
            await self._zero_fill(path)

    def _retire(self, position: int) -> list[str]:
        files = [f for f in journal_files(self._disk) if f.stop is not None and f.stop <= position]
        kept: list[str] = []
        for file in files:
            few = len(self._journal.spares) + len(kept) < SPARES_MAX
            if few and self._disk.size(file.path) <= 2 * self._size_bytes:
                kept.append(layout.spare_file(self._ids.token()))
                self._disk.rename(file.path, kept[-1])
            else:
                self._disk.remove(file.path)
        if files:
            # Before anything is written over: the old name must not come back with other bytes.
            self._disk.sync_folder(layout.JOURNAL)
        return kept

    async def restock(self) -> None:
        """Make a spare if the journal will need one soon."""
        if self.due(self._journal.tail - self._journal.file_start):
            await self._zero_fill(layout.spare_file(self._ids.token()))

    async def _zero_fill(self, path: str) -> None:
        try:
            await self._sealer.blank(path, self._size_bytes)
        except (OSError, SealFailed):
            await self._pool.run(self._disk.remove, path)  # the disk may be full
            raise
        self._journal.spares.append(path)

    async def clear(self) -> None:
        """Leave none behind."""
        while self._journal.spares:
            await self._pool.run(self._disk.remove, self._journal.spares.popleft())
