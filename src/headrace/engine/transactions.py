"""Transactions in operation: chunks are staged, a commit decides, and the chunks come into their
logs.

The decision is the last moment at which anything can be refused: it asks the logs first, and from
then on nothing comes between that could let them change their mind. What is decided happens,
whatever crashes: each chunk is appended together with a note of how far the transaction has come in
that log, and its file is removed only when everything is there and synced. So whoever goes on knows
what is left, and a batch that is sent again changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from headrace.core import log as one
from headrace.core.config import Discard, LogConfig
from headrace.core.entry import Arrive
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import (
    TRANSACTION_CHUNKS_MAX,
    TRANSACTION_ONCE_MS,
    TRANSACTIONS_MAX,
    TRANSACTIONS_PENDING_MAX,
)
from headrace.core.log import Log, check_owner
from headrace.core.names import SYSTEM, reserved
from headrace.core.state import not_found
from headrace.core.stream import same_type
from headrace.core.transaction import Chunk, Commit, Part, has_arrived, notes
from headrace.engine.chunks import Brought, Chunks, Waiting
from headrace.engine.live import Live
from headrace.engine.underway import UnderWay
from headrace.formats import layout
from headrace.observe import say
from headrace.storage.staging import Staging

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_RETRY_S = 5.0
_SWEEP_S = 600.0


class Committed(msgspec.Struct, frozen=True):
    """What became of a commit."""

    batch: int
    """The highest batch of the transaction that is committed."""
    rows: int
    repeated: bool
    """This batch, or a later one, was committed before."""


class Transactions:
    """All transactions of an engine."""

    def __init__(self, engine: Engine, staging: Staging) -> None:
        self._engine = engine
        self._staging = staging
        self._chunks = Chunks(engine, staging)
        self.under_way = UnderWay()
        self._newest: dict[str, Commit] = {}
        self._pending: dict[str, Commit] = {}
        """Committed, and not wholly in their logs yet."""
        self._doubted: dict[str, Commit] = {}
        """The disk failed at the decision: nobody was told of it, but a start might find it. Until
        it is taken back, they are under way.
        """
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    # --- starting --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take in what the disk holds; `resume` goes on with what is left to do."""
        found = await self._engine.pool.run(self._staging.load)
        self._chunks.open(found.chunks)
        for commit in found.commits:
            self._newest[commit.transaction] = commit
            # Files go only when everything is there: one that is gone speaks for all.
            if commit.parts and all(path in self._chunks for path in _paths(commit)):
                self._pending[commit.transaction] = commit
                self.under_way.go_on(commit.transaction, {part.log for part in commit.parts})
            else:
                await self._tidy(commit)
        await self._engine.pool.run(self._staging.remove, found.stale)

    async def resume(self) -> None:
        """Bring into their logs what was committed and is not there yet; end what is in doubt."""
        for transaction in [*self._pending, *self._doubted]:
            try:
                async with self._alone(transaction):
                    if commit := self._pending.get(transaction):
                        await self._finish(commit)
            except (Refused, Corrupt, OSError) as error:
                say("warning", f"transaction {transaction} has to wait", problem=str(error))

    async def run(self) -> None:
        """Go on with what was left, and remove chunks that nobody commits."""
        loop = asyncio.get_running_loop()
        sweep_at = loop.time()
        while True:
            try:
                await self.resume()
                if loop.time() >= sweep_at:
                    sweep_at = loop.time() + _SWEEP_S
                    await self.sweep()
            except OSError as error:
                say("error", "staged chunks cannot be removed", problem=str(error))
            await asyncio.sleep(_RETRY_S)

    async def sweep(self) -> None:
        """Remove chunks that waited too long, and forget what nobody will ask about again."""
        for transaction, paths in self._chunks.late().items():
            async with self._alone(transaction):
                if transaction not in self._pending:
                    await self._chunks.remove([path for path in paths if path in self._chunks])
        now_ms = self._engine.clock.now_ms()
        past = [
            commit
            for commit in self._newest.values()
            if commit.once
            and commit.transaction not in self._pending
            and now_ms - commit.at_ms > TRANSACTION_ONCE_MS
        ]
        for commit in past:
            self._newest.pop(commit.transaction, None)
        paths = [layout.staged_commit(commit.transaction, commit.batch) for commit in past]
        await self._engine.pool.run(self._staging.remove, paths)

    # --- staging ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> Waiting:
        """What is staged at this moment."""
        return self._chunks.waiting

    def last(self, transaction: str) -> int | None:
        """The highest batch that is committed."""
        newest = self._newest.get(transaction)
        return newest.batch if newest is not None else None

    async def stage(self, transaction: str, batch: int, name: str, chunk: Chunk) -> bool:
        """Keep a chunk for its commit; False when its batch is committed already.

        The same chunk again changes nothing; another one under its name is refused.
        """
        self._engine.check_open()
        last = self.last(transaction)
        if last is not None and batch <= last:
            return False
        await self._chunks.stage(layout.staged_chunk(transaction, batch, name), name, chunk)
        return True

    async def abort(self, transaction: str, batch: int) -> int:
        """Remove the chunks of a batch that will not be committed; returns how many there were."""
        async with self._alone(transaction):
            last = self.last(transaction)
            if last is not None and batch <= last:
                return 0
            paths = self._chunks.of(transaction, lambda number: number == batch)
            await self._chunks.remove(paths)
            return len(paths)

    # --- deciding --------------------------------------------------------------------------------

    async def commit(
        self,
        transaction: str,
        batch: int,
        names: Sequence[str],
        *,
        owner: str,
        create: LogConfig | None,
        once: bool = False,
        check: Callable[[str], None] = lambda log: None,
    ) -> Committed:
        """Bring these chunks into their logs, in this order: the first commit of a batch wins.

        `check` is asked about every log; `create` is the config of those that are not there yet.
        """
        async with self._alone(transaction):
            self._engine.check_open()
            if pending := self._pending.get(transaction):
                await self._finish(pending)
            newest = self._newest.get(transaction)
            if newest is not None and batch <= newest.batch:
                return Committed(newest.batch, newest.rows, repeated=True)
            self._check_caps(newest, names)
            brought = await self._look(transaction, batch, names)
            for each in brought:
                check(each.log)
            logs = await self._resolve(sorted({each.log for each in brought}), owner, create)
            parts = [
                Part(name, logs[each.log].id, each.records)
                for name, each in zip(names, brought, strict=True)
            ]
            commit = Commit(transaction, batch, parts, self._engine.clock.now_ms(), once)
            await self._decide(commit, logs, brought, owner)
            self._newest.pop(transaction, None)
            self._newest[transaction] = self._pending[transaction] = commit
            await self._finish(commit, newest)
            return Committed(batch, commit.rows, repeated=False)

    def _check_caps(self, newest: Commit | None, names: Sequence[str]) -> None:
        if len(set(names)) != len(names) or len(names) > TRANSACTION_CHUNKS_MAX:
            raise Refused(
                Code.INVALID,
                f"a commit names each chunk once, and at most {TRANSACTION_CHUNKS_MAX}",
                field="chunks",
            )
        held = [(self._pending, TRANSACTIONS_PENDING_MAX, "transactions_pending")]
        if newest is None:
            held.append((self._newest, TRANSACTIONS_MAX, "transactions"))
        for known, most, limit in held:
            if len(known) >= most:
                raise Refused(
                    Code.THROTTLED,
                    f"there are {most} such transactions, the most this server keeps",
                    limit=limit,
                    max=most,
                )

    async def _look(self, transaction: str, batch: int, names: Sequence[str]) -> list[Brought]:
        return [
            await self._chunks.look(layout.staged_chunk(transaction, batch, name), name)
            for name in names
        ]

    async def _resolve(
        self, names: Iterable[str], owner: str, create: LogConfig | None
    ) -> dict[str, Log]:
        """These logs; those that are not there are created, if they may be."""
        engine = self._engine
        logs: dict[str, Log] = {}
        for name in names:
            log = engine.state.by_name.get(name)
            if log is None and create is not None:
                log, _ = await engine.logs.put(name, owner, create)
            if log is None:
                raise not_found(name)
            logs[name] = log
        return logs

    async def _decide(
        self, commit: Commit, logs: Mapping[str, Log], brought: Sequence[Brought], owner: str
    ) -> None:
        """The batch is committed when this returns.

        Its logs were asked, and will not change their mind before it is there: who could make them
        do so waits until `_finish` ends.
        """
        rejecting = {log.id for log in logs.values() if log.config.discard is Discard.REJECT}
        ids = {log.id for log in logs.values()}
        await self.under_way.begin(commit.transaction, ids, alone=rejecting)
        try:
            self._check_logs(logs, brought, owner)
            for path, each in zip(_paths(commit), brought, strict=True):
                await self._check_form(logs[each.log], path)
            self._check_room(logs, brought)
            await self._forget_notes(commit, logs.values())
            # The decision names logs and was made by what they are: a crash must not keep it and
            # take them, or make them what they were before.
            await self._engine.journal.wait_synced(self._engine.journal.tail)
            self._engine.check_open()
        except BaseException:
            self.under_way.end(commit.transaction)
            raise
        try:
            await self._engine.pool.run(self._staging.decide, commit)
        except BaseException:
            self._doubted[commit.transaction] = commit
            raise

    def _check_logs(self, logs: Mapping[str, Log], brought: Sequence[Brought], owner: str) -> None:
        """Refuse unless all of them are there, and of the right kind."""
        engine = self._engine
        for name, log in logs.items():
            stream = log.stream
            if log.id not in engine.lives or (stream and not engine.streams.is_there(log)):
                raise not_found(name)
            if log.owner == SYSTEM:
                raise reserved(name)
            if stream is None:
                check_owner(log, owner)
        for each in brought:
            stream = logs[each.log].stream
            media = None if stream is None or stream.is_json else stream.content_type
            is_same = media == each.media or (media and each.media and same_type(media, each.media))
            if not is_same or (stream is not None and stream.closed):
                raise Refused(
                    Code.LOG_INCOMPATIBLE,
                    f'"{each.log}" is closed, or holds something else than was staged',
                    topic=each.log,
                )

    async def _check_form(self, log: Log, path: str) -> None:
        """Refuse records that their stream would not take."""
        stream = log.stream
        if stream is not None and (stream.registry is not None or stream.profile is not None):
            chunk = await self._chunks.read(path)
            form = await self._engine.streams.prepare(log, chunk.drafts)
            if form is not None:
                form(chunk.drafts)

    def _check_room(self, logs: Mapping[str, Log], brought: Sequence[Brought]) -> None:
        """Refuse what does not fit into a log, or into the server."""
        engine, growth_bytes = self._engine, 0
        records, sizes_bytes = Counter[str](), Counter[str]()
        for each in brought:
            records[each.log] += each.records
            sizes_bytes[each.log] += each.size_bytes
        for name, log in logs.items():
            if log.config.ttl_ms and log.id in engine.lives:
                engine.expire_now(engine.lives[log.id])
            one.check_room(log, records[name], sizes_bytes[name])
            growth_bytes += one.growth_bytes(log, records[name], sizes_bytes[name])
        engine.caps.check_growth(engine.state, growth_bytes)

    async def _forget_notes(self, commit: Commit, logs: Iterable[Log]) -> None:
        """Logs may have notes of a transaction that had this name before and was forgotten."""
        engine = self._engine
        entries = [
            Arrive(log.id, commit.transaction, commit.batch, -1)
            for log in logs
            if has_arrived(log.arrived, commit.transaction, commit.batch, 0)
            and log.id in engine.lives
        ]
        if entries:
            await engine.journal.wait_synced(engine.commit(entries, sync=True, together=True))

    # --- bringing --------------------------------------------------------------------------------

    async def _finish(self, commit: Commit, before: Commit | None = None) -> None:
        """Bring what is left of a committed batch into its logs."""
        engine = self._engine
        for index, (part, path) in enumerate(zip(commit.parts, _paths(commit), strict=True)):
            live = engine.lives.get(part.log)
            if live is None or has_arrived(
                live.log.arrived, commit.transaction, commit.batch, index
            ):
                continue  # (a log that was dropped took with it what it would have got)
            chunk = await self._chunks.read(path)
            note = Arrive(part.log, commit.transaction, commit.batch, index)
            await self._append(live, chunk, note)
        await engine.journal.wait_synced(engine.journal.tail)
        del self._pending[commit.transaction]
        self.under_way.end(commit.transaction)
        await self._tidy(commit, before)

    async def _append(self, live: Live, chunk: Chunk, note: Arrive) -> None:
        engine, log = self._engine, live.log
        if not engine.door.open:
            await engine.wait_at_door(log.name, None, patient=True)
        form = None
        if log.stream is not None:
            form = await engine.streams.prepare(log, chunk.drafts)
        engine.check_open()
        if log.id not in engine.lives or (log.stream is not None and log.stream.deleted):
            return
        beside = notes(log.arrived, note, self._pending)
        if log.stream is not None:
            await engine.streams.append_chunk(live, chunk.drafts, beside, form)
            return
        if log.config.ttl_ms:
            engine.expire_now(live)
        now_ms = engine.clock.now_ms()
        entry = one.bring(log, chunk.drafts, now_ms)
        position = engine.appender.enqueue(live, entry, now_ms, beside)
        (shown,) = engine.show_when_committed(position, [(live, entry.block.last)]).values()
        await asyncio.shield(shown)

    # --- tidying ---------------------------------------------------------------------------------

    async def _tidy(self, commit: Commit, before: Commit | None = None) -> None:
        """A batch is in its logs: the chunks of it and of those before it are of no use."""
        past = self._chunks.of(commit.transaction, lambda batch: batch <= commit.batch)
        await self._chunks.remove(past)
        if before is not None:
            old = layout.staged_commit(before.transaction, before.batch)
            await self._engine.pool.run(self._staging.remove, [old])

    @asynccontextmanager
    async def _alone(self, transaction: str) -> AsyncIterator[None]:
        """Commits of one transaction come one after another, none behind one in doubt."""
        lock, users = self._locks.get(transaction) or (asyncio.Lock(), 0)
        self._locks[transaction] = (lock, users + 1)
        try:
            async with lock:
                if doubted := self._doubted.get(transaction):
                    await self._engine.pool.run(self._staging.revoke, doubted)
                    del self._doubted[transaction]
                    self.under_way.end(transaction)
                yield
        finally:
            lock, users = self._locks[transaction]
            if users > 1:
                self._locks[transaction] = (lock, users - 1)
            else:
                del self._locks[transaction]


def _paths(commit: Commit) -> list[str]:
    return [
        layout.staged_chunk(commit.transaction, commit.batch, part.chunk) for part in commit.parts
    ]
