"""Dead letters: jobs that failed too often move to another log, and back again when asked.

A move is an append there and a delete here in one frame of the journal: after a crash a job is in
one of the two places, never in both or in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from headrace.core import dead_letter, lease, ranges, supersession
from headrace.core import state as core_state
from headrace.core.batching import batches
from headrace.core.config import Kind, LogConfig
from headrace.core.deletion import delete_seqs
from headrace.core.entry import Delete
from headrace.core.errors import Code, Refused
from headrace.core.limits import MOVE_BYTES_MAX, READ_BYTES_MAX, READ_SCANNED_MAX
from headrace.core.log import check_owner
from headrace.core.read import Slice
from headrace.core.record import Blobs, Drafts, draft
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import Appender
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.reader import Reader
from headrace.engine.open_log import OpenLog, keyed_by
from headrace.formats.frame import check_append

_PAGE_RECORDS = 1000
T = TypeVar("T", "_Letter", "_Planned")


class _Letter(msgspec.Struct, frozen=True, gc=False):
    """One record on its way."""

    seq: int
    size_bytes: int
    data: bytes
    meta: bytes | None
    tag: str | None
    node: str | None
    key: str | None


class _Planned(msgspec.Struct, frozen=True, gc=False):
    """One record that is to go; what it holds is read when it does."""

    seq: int
    size_bytes: int


class Redriven(msgspec.Struct, frozen=True):
    """What a re-drive did."""

    redriven: int
    skipped: int
    left: int


class DeadLetters:
    """Moves records between logs of one engine."""

    def __init__(
        self, kernel: Kernel, fetcher: Fetcher, reader: Reader, appender: Appender
    ) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._reader = reader
        self._appender = appender

    async def move_spent(self, live: OpenLog, spent: list[int]) -> bool:
        """Move the first of these jobs, as many as go at a time, to where the queue wants its dead
        letters; says whether any went.

        When that place is full or cannot be made they stay, to be tried again.
        """
        kernel, log = self._kernel, live.log
        pieces = await self._fetcher.fetch(live, spent, MOVE_BYTES_MAX)
        kernel.check_alive(live)
        # Whatever happened while they were read: they must still be there, and nobody's.
        there = (letter for letter in _letters(pieces) if letter.seq in log.jobs.returned)
        letters = next(_loads(there), [])
        name = log.config.dead_letter
        if not letters or name is None:
            return False
        limit = log.config.max_deliveries
        metas: Blobs = [dead_letter.stamp(item.meta, log.name, limit, item.seq) for item in letters]
        entry = lease.dead_letter(log, [item.seq for item in letters], _size(letters))
        create = LogConfig() if log.config.auto_create else None
        try:
            await self._move(live, name, _drafts(letters, metas), entry, create)
        except Refused as refused:
            if refused.code is Code.READ_ONLY:
                raise
            return False
        return True

    async def redrive(
        self,
        live: OpenLog,
        count_max: int,
        to: str | None,
        authorise: Callable[[str], None],
    ) -> Redriven:
        """Move up to so many of the oldest records to `to`, or to the queue in their stamps."""
        kernel = self._kernel
        routes, skipped = await self._plan(live, count_max, to)
        for target in routes:
            authorise(target)
        moved = 0
        loads = ((target, load) for target, seqs in routes.items() for load in _loads(seqs))
        for target, load in loads:
            pieces = await self._fetcher.fetch(live, [item.seq for item in load])
            letters = list(_letters(pieces))
            kernel.check_alive(live)
            # What somebody claimed or deleted since it was read is left alone.
            free = [item for item in letters if self._is_free(live, item.seq)]
            sizes = ((item.seq, item.size_bytes) for item in free)
            entry = delete_seqs(live.log, sizes, live.visible + 1)
            if entry is None:
                continue
            letters = [item for item in free if ranges.contains(entry.ranges, item.seq)]
            metas = [dead_letter.strip(item.meta)[0] for item in letters]
            try:
                await self._move(live, target, _drafts(letters, metas), entry, None)
                moved += entry.count
            except Refused as refused:
                if refused.code is Code.READ_ONLY or to is not None:
                    raise
                skipped += len(letters)
        return Redriven(moved, skipped, live.log.count)

    async def _plan(
        self, live: OpenLog, count_max: int, to: str | None
    ) -> tuple[dict[str, list[_Planned]], int]:
        """Which records go where, and how many can go nowhere."""
        routes: dict[str, list[_Planned]] = {}
        planned = skipped = after = scanned = 0
        while planned < count_max and scanned < READ_SCANNED_MAX:
            page = await self._reader.read(
                live, after, records_max=_PAGE_RECORDS, bytes_max=READ_BYTES_MAX
            )
            for letter in _letters(page.slices):
                target = to if to is not None else dead_letter.strip(letter.meta)[1]
                if planned == count_max:
                    break
                if target is None or not self._may_go(live, letter, target):
                    skipped += 1
                    continue
                routes.setdefault(target, []).append(_Planned(letter.seq, letter.size_bytes))
                planned += 1
            after, scanned = page.next, scanned + page.scanned
            if page.caught_up:
                break
        return routes, skipped

    def _may_go(self, live: OpenLog, letter: _Letter, target: str) -> bool:
        log = self._kernel.state.by_name.get(target)
        return (
            log is not None
            and log.config.kind is Kind.QUEUE
            and log.id != live.log.id
            and self._is_free(live, letter.seq)
        )

    def _is_free(self, live: OpenLog, seq: int) -> bool:
        """Whether nobody works on this record."""
        queue = live.log.queue
        return queue is None or seq not in queue.leases

    async def _move(
        self, live: OpenLog, name: str, drafts: Drafts, entry: Delete, create: LogConfig | None
    ) -> None:
        """Append there and delete here, together; what comes of it is durable and seen after."""
        kernel, now_ms = self._kernel, self._kernel.clock.now_ms()
        if kernel.journal.failure is not None:
            raise kernel.journal.refusal()
        known = kernel.state.by_name.get(name)
        if known is not None:
            check_owner(known, live.log.owner)
            target = kernel.open_logs[known.id]
            kernel.expire_now(target)
            admitted = supersession.append(target.log, target.keyed, drafts, None, now_ms)
        elif create is not None:
            owner, created_by = live.log.owner, live.log.created_by
            kernel.caps.check_logs(kernel.state, owner, created_by)
            made = core_state.create(kernel.state, name, owner, create, now_ms, created_by)
            new = core_state.new_log(made)
            admitted = supersession.append(new, keyed_by(create), drafts, None, now_ms)
            check_append(admitted.append)
            kernel.commit([made], sync=True)
            target = kernel.open_logs[made.log]
        else:
            raise core_state.not_found(name)
        position = self._appender.enqueue(target, admitted, now_ms, (entry,))
        ends = ((target, admitted.append.block.last), (live, live.visible))
        for shown in kernel.show_when_committed(position, ends).values():
            await shown


def _loads(items: Iterable[T]) -> Iterator[list[T]]:
    """What moves in one frame each: at least one record, and not much more than a few bytes."""
    return batches(items, lambda item: item.size_bytes, MOVE_BYTES_MAX)


def _letters(pieces: list[Slice]) -> Iterator[_Letter]:
    for piece in pieces:
        block = piece.block
        for at in piece.picks:
            yield _Letter(
                block.seq_at(at),
                block.measure(at, at + 1),
                block.data_at(at),
                block.metas[at] if block.metas else None,
                block.tags[at] if block.tags else None,
                block.nodes[at] if block.nodes else None,
                block.keys[at] if block.keys else None,
            )


def _size(letters: list[_Letter]) -> int:
    return sum(letter.size_bytes for letter in letters)


def _drafts(letters: list[_Letter], metas: Blobs) -> Drafts:
    tags = [letter.tag for letter in letters]
    nodes = [letter.node for letter in letters]
    keys = [letter.key for letter in letters]
    return draft(
        [letter.data for letter in letters],
        metas if any(meta is not None for meta in metas) else None,
        tags if any(tag is not None for tag in tags) else None,
        nodes if any(node is not None for node in nodes) else None,
        keys if any(key is not None for key in keys) else None,
    )
