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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from headrace.core import supersession
from headrace.core.cap import Cap
from headrace.core.config import Discard, LogConfig
from headrace.core.entry import Append, Arrive
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import (
    BATCH_MAX,
    CHUNK_NOTES_BYTES_MAX,
    TRANSACTION_CHUNKS_MAX,
    TRANSACTIONS_PENDING_MAX,
)
from headrace.core.log import Log
from headrace.core.record import block
from headrace.core.state import not_found
from headrace.core.transaction import LOCAL, Caller, Chunk, Commit, CommitPart, has_arrived, notes
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import Appender
from headrace.engine.logs.batch_checks import check_logs, check_room
from headrace.engine.logs.chunks import Chunks, ChunkSummary, StagedTotals
from headrace.engine.logs.commit_barrier import CommitBarrier
from headrace.engine.logs.commit_history import CommitHistory
from headrace.engine.logs.control import Logs
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.lifecycle import Streams
from headrace.formats import layout
from headrace.formats.frame import check_append
from headrace.formats.staged import encode_staged
from headrace.observe import log_line
from headrace.storage.staging import Staging

_RETRY_S = 5.0
_SWEEP_S = 600.0
_PENDING = Cap("transactions_pending", TRANSACTIONS_PENDING_MAX)


class BatchCommitted(msgspec.Struct, frozen=True):
    """What became of a commit."""

    batch: int
    """The highest batch of the transaction that is committed."""
    rows: int
    repeated: bool
    """This batch was committed before."""


class GivenUp(msgspec.Struct, frozen=True):
    """What an operator gave up with a transaction."""

    chunks: int
    """Chunks that were staged."""
    batch: int | None
    """The batch that was decided and not wholly in its logs, if there was one."""
    missing: int
    """How many of its records are in no log."""


class Transactions:
    """All transactions of an engine."""

    def __init__(
        self,
        kernel: Kernel,
        staging: Staging,
        logs: Logs,
        appender: Appender,
        streams: Streams,
        barrier: CommitBarrier,
        is_gone: Callable[[str], bool],
    ) -> None:
        self._kernel = kernel
        self._staging = staging
        self._logs = logs
        self._appender = appender
        self._streams = streams
        self._barrier = barrier
        self._chunks = Chunks(kernel, staging)
        self.is_gone = is_gone
        """Whether a key is not configured any more."""
        self._history = CommitHistory()
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
        found = await self._kernel.pool.run(self._staging.load)
        self._chunks.open(found.chunks)
        arrived: list[Commit] = []
        for commit in found.commits:
            self._history.note(commit)
            if commit.transaction in found.done:
                pass
            elif commit.parts and all(path in self._chunks for path in _paths(commit)):
                self._pending[commit.transaction] = commit
                self._barrier.go_on(commit.transaction, {part.log for part in commit.parts})
            else:
                # From before this was noted: files went only when everything was there.
                arrived.append(commit)
        if arrived:
            await self._kernel.pool.run(self._staging.finish, arrived)
        for commit in found.commits:
            if commit.transaction not in self._pending:
                await self._tidy(commit)
        await self._kernel.pool.run(self._staging.remove, found.stale)

    async def resume(self) -> None:
        """Bring into their logs what was committed and is not there yet; end what is in doubt."""
        for transaction in [*self._pending, *self._doubted]:
            try:
                async with self._alone(transaction):
                    if commit := self._pending.get(transaction):
                        await self._finish(commit)
            except (Refused, Corrupt, OSError) as error:
                log_line("warning", f"transaction {transaction} has to wait", problem=str(error))

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
                log_line("error", "staged chunks cannot be removed", problem=str(error))
            await asyncio.sleep(_RETRY_S)

    async def sweep(self) -> None:
        """Remove chunks that waited too long, and forget what nobody will ask about again."""
        for transaction, paths in self._chunks.late().items():
            async with self._alone(transaction):
                if transaction not in self._pending:
                    await self._chunks.remove([path for path in paths if path in self._chunks])
        past = self._history.past(self._kernel.clock.now_ms())
        await self._forget([each for each in past if each.transaction not in self._locks])

    async def _forget(self, commits: Sequence[Commit]) -> None:
        """Whoever sends these again gets them in again."""
        past = [commit for commit in commits if commit.transaction not in self._pending]
        for commit in past:
            self._history.forget(commit.transaction)
        paths = [layout.staged_done(commit.transaction, commit.batch) for commit in past]
        await self._kernel.pool.run(self._staging.remove, paths)

    # --- whose they are --------------------------------------------------------------------------

    def check(self, transaction: str, by: Caller) -> None:
        """Refuse whoever has no business with this transaction."""
        key = self._key_of(transaction)
        if key is None or key == by.key:
            return
        if key and not self.is_gone(key):
            raise _foreign()
        newest, logs = self._history.get(transaction), self._kernel.state.logs
        for part in newest.parts if newest is not None else ():
            if part.log in logs and not by.may_write(logs[part.log].name):
                raise _foreign()

    def _key_of(self, transaction: str) -> str | None:
        """Whose it is: who staged for it first. None when nothing is known of it."""
        newest = self._history.get(transaction)
        return self._chunks.key_of(transaction) if newest is None else newest.key

    def _check_own(self, transaction: str, by: Caller) -> None:
        """After an await: somebody else may have come first."""
        if self._key_of(transaction) not in (None, by.key):
            raise _foreign()

    async def _admit(self, transaction: str, by: Caller) -> None:
        """Refuse whoever has no business with this transaction; take over what is left of a key
        that is not configured any more.
        """
        self.check(transaction, by)
        if self._key_of(transaction) in (None, by.key):
            return
        async with self._alone(transaction):
            self.check(transaction, by)
            if pending := self._pending.get(transaction):
                await self._finish(pending)
            newest = self._history.get(transaction)
            if newest is not None and newest.key != by.key:
                taken = msgspec.structs.replace(newest, key=by.key)
                await self._kernel.pool.run(self._staging.rewrite, taken)
                self._history.note(taken)
            staged = self._chunks.key_of(transaction)
            if staged == "":
                self._chunks.give(transaction, by.key)
            elif staged not in (None, by.key):
                await self._chunks.remove(self._chunks.of(transaction, BATCH_MAX))

    # --- staging ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> StagedTotals:
        """What is staged at this moment."""
        return self._chunks.waiting

    def last(self, transaction: str) -> int | None:
        """The highest batch that is committed."""
        newest = self._history.get(transaction)
        return newest.batch if newest is not None else None

    async def stage(
        self, transaction: str, batch: int, name: str, chunk: Chunk, by: Caller = LOCAL
    ) -> bool:
        """Keep a chunk for its commit; False when its batch is committed already.

        The same chunk again changes nothing; another one under its name is refused.
        """
        self._kernel.check_open()
        await self._admit(transaction, by)
        if self._history.has(transaction, batch):
            return False
        content = await self._kernel.pool.run(encode_staged, chunk)
        self._check_own(transaction, by)
        if self._history.has(transaction, batch):
            return False
        kept = await self._chunks.keep(transaction, batch, name, by.key, chunk, content)
        if self._history.has(transaction, batch):
            return False
        if not kept:
            raise Refused(Code.INVALID, f"chunk {name} was dropped while it was staged")
        return True

    async def abort(self, transaction: str, batch: int, by: Caller = LOCAL) -> int:
        """Remove the chunks of a batch that will not be committed; returns how many there were."""
        await self._admit(transaction, by)
        async with self._alone(transaction):
            self._check_own(transaction, by)
            last = self.last(transaction)
            if last is not None and batch <= last:
                return 0
            paths = self._chunks.of(transaction, batch, batch)
            await self._chunks.remove(paths)
            return len(paths)

    async def give_up(self, transaction: str) -> GivenUp:
        """Forget all of a transaction, also a batch that is decided and cannot arrive.

        For operators: whoever sends that batch again brings all of it again.
        """
        async with self._alone(transaction):
            pending = self._pending.get(transaction)
            missing = sum(part.rows for _, part in self._left(pending)) if pending else 0
            paths = self._chunks.of(transaction, BATCH_MAX)
            await self._kernel.pool.run(self._staging.forget, transaction)
            self._history.forget(transaction)
            await self._chunks.remove(paths)
            if pending is not None:
                del self._pending[transaction]
                self._barrier.end(transaction)
            return GivenUp(len(paths), pending.batch if pending else None, missing)

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
        by: Caller = LOCAL,
    ) -> BatchCommitted:
        """Bring these chunks into their logs, in this order: the first commit of a batch wins.

        `create` is the config of logs that are not there yet.
        """
        _check_names(names)
        await self._admit(transaction, by)
        async with self._alone(transaction):
            self._kernel.check_open()
            if pending := self._pending.get(transaction):
                await self._finish(pending)
            self._check_own(transaction, by)
            newest = self._history.get(transaction)
            if newest is not None and newest.has(batch):
                return BatchCommitted(newest.batch, newest.rows, repeated=True)
            paths = [self._chunks.path(transaction, batch, name, by.key) for name in names]
            brought = await self._look(paths, names, by)
            await self._make_room(newest, by)
            wanted = sorted({each.log for each in brought})
            logs = await self._resolve(wanted, owner, create, by)
            parts = [
                CommitPart(layout.chunk_of(path), logs[each.log].id, each.records)
                for path, each in zip(paths, brought, strict=True)
            ]
            earlier = newest.batches if newest is not None else ()
            now_ms = self._kernel.clock.now_ms()
            commit = Commit(transaction, batch, parts, now_ms, once, by.key, earlier)
            await self._decide(commit, logs, brought, owner)
            self._history.note(commit)
            self._pending[transaction] = commit
            await self._finish(commit, newest)
            return BatchCommitted(batch, commit.rows, repeated=False)

    async def _make_room(self, newest: Commit | None, by: Caller) -> None:
        _PENDING.check(len(self._pending))
        if newest is None:
            now_ms = self._kernel.clock.now_ms()
            spent = self._history.make_room(by.key, now_ms, self._locks)
            if spent is not None:
                await self._forget([spent])

    async def _look(
        self, paths: Sequence[str], names: Sequence[str], by: Caller
    ) -> list[ChunkSummary]:
        """What these chunks bring."""
        brought: list[ChunkSummary] = []
        for path, name in zip(paths, names, strict=True):
            found = await self._chunks.look(path, name)
            if not by.may_write(found.log):  # (another's chunk: where it goes is not to be told)
                raise Refused(Code.FORBIDDEN, f"this key may not write what chunk {name} brings")
            brought.append(found)
        return brought

    async def _resolve(
        self, names: Iterable[str], owner: str, create: LogConfig | None, by: Caller
    ) -> dict[str, Log]:
        """These logs; those that are not there are created, if they may be."""
        kernel = self._kernel
        logs: dict[str, Log] = {}
        for name in names:
            log = kernel.state.by_name.get(name)
            if log is None and create is not None:
                log, _ = await self._logs.put(name, owner, create, by.key)
            if log is None:
                raise not_found(name)
            logs[name] = log
        return logs

    async def _decide(
        self, commit: Commit, logs: Mapping[str, Log], brought: Sequence[ChunkSummary], owner: str
    ) -> None:
        """The batch is committed when this returns.

        Its logs were asked, and will not change their mind before it is there: who could make them
        do so waits until `_finish` ends.
        """
        rejecting = {log.id for log in logs.values() if log.config.discard is Discard.REJECT}
        ids = {log.id for log in logs.values()}
        await self._barrier.begin(commit.transaction, ids, alone=rejecting)
        try:
            check_logs(self._kernel, self._streams.expiry, logs, brought, owner)
            for path, each in zip(_paths(commit), brought, strict=True):
                await self._check_form(logs[each.log], path)
            check_room(self._kernel, logs, brought)
            await self._forget_notes(commit, logs.values())
            # The decision names logs and was made by what they are: a crash must not keep it and
            # take them, or make them what they were before.
            await self._kernel.journal.wait_synced(self._kernel.journal.tail)
            self._kernel.check_open()
        except BaseException:
            self._barrier.end(commit.transaction)
            raise
        try:
            await self._kernel.pool.run(self._staging.decide, commit)
        except BaseException:
            self._doubted[commit.transaction] = commit
            raise

    async def _check_form(self, log: Log, path: str) -> None:
        """Refuse records that their stream would not take."""
        stream = log.stream
        if stream is not None and (stream.registry is not None or stream.profile is not None):
            chunk = await self._chunks.read(path)
            normalise = await self._streams.prepare(log, chunk.drafts)
            if normalise is not None:
                normalised = Append(log.id, block(normalise(chunk.drafts), 1, 0))
                check_append(normalised, CHUNK_NOTES_BYTES_MAX)

    async def _forget_notes(self, commit: Commit, logs: Iterable[Log]) -> None:
        """Logs may have notes of a transaction that had this name before and was forgotten."""
        kernel = self._kernel
        entries = [
            Arrive(log.id, commit.transaction, commit.batch, -1)
            for log in logs
            if has_arrived(log.arrived, commit.transaction, commit.batch, 0)
            and log.id in kernel.open_logs
        ]
        if entries:
            await kernel.commit_synced(entries, together=True)

    # --- bringing --------------------------------------------------------------------------------

    async def _finish(self, commit: Commit, before: Commit | None = None) -> None:
        """Bring what is left of a committed batch into its logs."""
        kernel = self._kernel
        paths = _paths(commit)
        for index, part in self._left(commit):
            chunk = await self._chunks.read(paths[index])
            if (live := kernel.open_logs.get(part.log)) is not None:
                note = Arrive(part.log, commit.transaction, commit.batch, index)
                await self._append(live, chunk, note)
        await kernel.journal.wait_synced(kernel.journal.tail)
        await kernel.pool.run(self._staging.finish, [commit])
        del self._pending[commit.transaction]
        self._barrier.end(commit.transaction)
        await self._tidy(commit, before)

    def _left(self, commit: Commit) -> Iterator[tuple[int, CommitPart]]:
        """The chunks of a committed batch that are not in their logs yet.

        (A log that was dropped took with it what it would have got.)
        """
        for index, part in enumerate(commit.parts):
            live = self._kernel.open_logs.get(part.log)
            if live is not None and not has_arrived(
                live.log.arrived, commit.transaction, commit.batch, index
            ):
                yield index, part

    async def _append(self, live: OpenLog, chunk: Chunk, note: Arrive) -> None:
        kernel, log = self._kernel, live.log
        if not kernel.admission.open:
            await kernel.wait_admitted(log.name, None, patient=True)
        normalise = None
        if log.stream is not None:
            normalise = await self._streams.prepare(log, chunk.drafts)
        kernel.check_open()
        if log.id not in kernel.open_logs or (log.stream is not None and log.stream.deleted):
            return
        beside = notes(log.arrived, note, self._pending)
        if log.stream is not None:
            await self._streams.append_chunk(live, chunk.drafts, beside, normalise)
            return
        if log.config.ttl_ms:
            kernel.expire_now(live)
        now_ms = kernel.clock.now_ms()
        admitted = supersession.bring(log, live.keyed, chunk.drafts, now_ms)
        position = self._appender.enqueue(live, admitted, now_ms, beside)
        last = admitted.append.block.last
        (shown,) = kernel.show_when_committed(position, [(live, last)]).values()
        await asyncio.shield(shown)

    # --- tidying ---------------------------------------------------------------------------------

    async def _tidy(self, commit: Commit, before: Commit | None = None) -> None:
        """A batch is in its logs: the chunks of it and of those before it are of no use."""
        await self._chunks.remove(self._chunks.of(commit.transaction, commit.batch))
        if before is not None:
            old = layout.staged_done(before.transaction, before.batch)
            await self._kernel.pool.run(self._staging.remove, [old])

    @asynccontextmanager
    async def _alone(self, transaction: str) -> AsyncIterator[None]:
        """Commits of one transaction come one after another, none behind one in doubt."""
        lock, users = self._locks.get(transaction) or (asyncio.Lock(), 0)
        self._locks[transaction] = (lock, users + 1)
        try:
            async with lock:
                if doubted := self._doubted.get(transaction):
                    await self._kernel.pool.run(self._staging.revoke, doubted)
                    del self._doubted[transaction]
                    self._barrier.end(transaction)
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


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names) or not 0 < len(names) <= TRANSACTION_CHUNKS_MAX:
        raise Refused(
            Code.INVALID,
            f"a commit names each of its chunks once, 1 to {TRANSACTION_CHUNKS_MAX} of them",
            field="chunks",
        )


def _foreign() -> Refused:
    return Refused(Code.FORBIDDEN, "this transaction belongs to another key")
