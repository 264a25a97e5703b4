"""Transactions in operation: chunks are staged, a commit decides, and the chunks come into their
logs.

What a commit has decided happens, whatever crashes: each chunk is appended together with a note of
how far the transaction has come in that log, and its file is removed only when everything is
there and synced. So whoever goes on knows what is left, and a batch that is sent again changes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from headrace.core import log as one
from headrace.core.config import LogConfig
from headrace.core.entry import Arrive
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import (
    STAGED_BYTES_MAX,
    STAGED_MS_MAX,
    TRANSACTION_CHUNKS_MAX,
    TRANSACTION_ONCE_MS,
    TRANSACTIONS_MAX,
    TRANSACTIONS_PENDING_MAX,
)
from headrace.core.log import check_owner
from headrace.core.names import SYSTEM, reserved
from headrace.core.state import not_found
from headrace.core.transaction import Chunk, Commit, Part, has_arrived
from headrace.engine.live import Live
from headrace.formats import layout
from headrace.formats.staged import checksum_of, encode_staged
from headrace.observe import say
from headrace.storage.staging import Staging

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_RETRY_S = 5.0
_SWEEP_S = 600.0


class _Staged(msgspec.Struct):
    """A chunk that waits."""

    size_bytes: int
    seen_at_ms: int
    checksum: int | None = None
    """None: found at the start, and not looked at since."""


class Waiting(msgspec.Struct, frozen=True):
    """All that is staged and not in its logs yet."""

    transactions: int = 0
    chunks: int = 0
    size_bytes: int = 0
    age_ms: int = 0
    """How long the oldest chunk has waited."""


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
        self._newest: dict[str, Commit] = {}
        self._pending: dict[str, Commit] = {}
        """Committed, and not wholly in their logs yet."""
        self._staged: dict[str, _Staged] = {}
        self._staged_bytes = 0
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    # --- starting --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take in what the disk holds; `resume` goes on with what is left to do."""
        found = await self._engine.pool.run(self._staging.load)
        now_ms = self._engine.clock.now_ms()
        for path, size_bytes in found.chunks.items():
            self._staged[path] = _Staged(size_bytes, now_ms)
            self._staged_bytes += size_bytes
        for commit in found.commits:
            self._newest[commit.transaction] = commit
            # Files go only when everything is there: one that is gone speaks for all.
            if commit.parts and all(path in self._staged for path in _paths(commit)):
                self._pending[commit.transaction] = commit
            else:
                await self._tidy(commit)
        await self._engine.pool.run(self._staging.remove, found.stale)

    async def resume(self) -> None:
        """Bring into their logs what was committed and is not there yet."""
        for transaction in list(self._pending):
            async with self._alone(transaction):
                try:
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
        now_ms = self._engine.clock.now_ms()
        late: dict[str, list[str]] = {}
        for path, staged in self._staged.items():
            if now_ms - staged.seen_at_ms > STAGED_MS_MAX:
                late.setdefault(_transaction(path), []).append(path)
        for transaction, paths in late.items():
            async with self._alone(transaction):
                if transaction not in self._pending:
                    await self._remove([path for path in paths if path in self._staged])
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
        if not self._staged:
            return Waiting()
        oldest_ms = min(staged.seen_at_ms for staged in self._staged.values())
        return Waiting(
            len(set(map(_transaction, self._staged))),
            len(self._staged),
            self._staged_bytes,
            max(0, self._engine.clock.now_ms() - oldest_ms),
        )

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
        path = layout.staged_chunk(transaction, batch, name)
        content = await self._engine.pool.run(encode_staged, chunk)
        checksum = checksum_of(content)
        known = self._staged.get(path)
        if known is not None and known.checksum == checksum:
            return True
        if known is not None and known.checksum is not None:
            raise Refused(Code.INVALID, f"chunk {name} was staged before with other records")
        if self._staged_bytes + len(content) > STAGED_BYTES_MAX:
            raise Refused(
                Code.THROTTLED,
                f"{STAGED_BYTES_MAX} bytes wait for their commits, the most this server keeps",
                limit="staged_bytes",
                max=STAGED_BYTES_MAX,
            )
        self._staged[path] = _Staged(len(content), self._engine.clock.now_ms(), checksum)
        self._staged_bytes += len(content) - (known.size_bytes if known else 0)
        try:
            await self._engine.pool.run(self._staging.put, path, content)
        except OSError:
            self._forget(path)
            raise
        return True

    async def abort(self, transaction: str, batch: int) -> int:
        """Remove the chunks of a batch that will not be committed; returns how many there were."""
        async with self._alone(transaction):
            last = self.last(transaction)
            if last is not None and batch <= last:
                return 0
            paths = self._of(transaction, lambda number: number == batch)
            await self._remove(paths)
            return len(paths)

    # --- committing ------------------------------------------------------------------------------

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
            logs = await self._look(transaction, batch, names)
            for log, _, _ in logs:
                check(log)
            wanted = {(log, is_json) for log, _, is_json in logs}
            ids = await self._resolve(sorted(wanted), owner, create)
            parts = [
                Part(name, ids[log], rows) for name, (log, rows, _) in zip(names, logs, strict=True)
            ]
            commit = Commit(transaction, batch, parts, self._engine.clock.now_ms(), once)
            await self._engine.pool.run(self._staging.decide, commit)
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

    async def _look(
        self, transaction: str, batch: int, names: Sequence[str]
    ) -> list[tuple[str, int, bool]]:
        """(log, rows, whether they are JSON) of each chunk."""
        found: list[tuple[str, int, bool]] = []
        for name in names:
            path = layout.staged_chunk(transaction, batch, name)
            if path not in self._staged:
                raise Refused(Code.INVALID, f"chunk {name} is not staged", field="chunks")
            try:
                chunk = await self._engine.pool.run(self._staging.read, path)
            except FileNotFoundError:
                raise Refused(Code.INVALID, f"chunk {name} is still on its way") from None
            await self._check_form(chunk)
            found.append((chunk.log, chunk.drafts.count, chunk.is_json))
        return found

    async def _check_form(self, chunk: Chunk) -> None:
        """Refuse records that their stream would not take."""
        log = self._engine.state.by_name.get(chunk.log)
        if log is not None and log.stream is not None and chunk.is_json:
            form = await self._engine.streams.prepare(log, chunk.drafts)
            if form is not None:
                form(chunk.drafts)

    async def _resolve(
        self, wanted: Iterable[tuple[str, bool]], owner: str, create: LogConfig | None
    ) -> dict[str, int]:
        """The ids of these logs; those that are not there are created, if they may be."""
        engine = self._engine
        ids: dict[str, int] = {}
        for name, is_json in wanted:
            log = engine.state.by_name.get(name)
            if log is None and create is not None:
                log, _ = await engine.logs.put(name, owner, create)
            if log is None:
                raise not_found(name)
            if log.owner == SYSTEM:
                raise reserved(name)
            if log.stream is None:
                check_owner(log, owner)
            elif not engine.streams.is_there(log):
                raise not_found(name)
            elif log.stream.closed or log.stream.is_json is not is_json:
                raise Refused(
                    Code.LOG_INCOMPATIBLE,
                    f'"{name}" is closed, or a stream of something else than was staged',
                    topic=name,
                )
            ids[name] = log.id
        return ids

    async def _finish(self, commit: Commit, before: Commit | None = None) -> None:
        """Bring what is left of a committed batch into its logs."""
        engine = self._engine
        for index, (part, path) in enumerate(zip(commit.parts, _paths(commit), strict=True)):
            live = engine.lives.get(part.log)
            if live is None or self._is_there(live, commit, index):
                continue  # (a log that was dropped took with it what it would have got)
            chunk = await engine.pool.run(self._staging.read, path)
            note = Arrive(part.log, commit.transaction, commit.batch, index)
            await self._append(live, chunk, note)
        await engine.journal.wait_synced(engine.journal.tail)
        del self._pending[commit.transaction]
        await self._tidy(commit, before)

    def _is_there(self, live: Live, commit: Commit, index: int) -> bool:
        return has_arrived(live.log.arrived, commit.transaction, commit.batch, index)

    async def _append(self, live: Live, chunk: Chunk, note: Arrive) -> None:
        engine, log = self._engine, live.log
        if not engine.door.open:
            await engine.wait_at_door(log.name, None, patient=True)
        form = None
        if log.stream is not None:
            form = await engine.streams.prepare(log, chunk.drafts)
        engine.check_open()
        if log.id not in engine.lives:
            return
        if log.stream is not None and log.stream.closed:
            say("error", "a stream was closed before its chunk came", log=log.name)
            return
        if log.stream is not None:
            try:
                await engine.streams.append_chunk(live, chunk.drafts, note, form)
            except Refused as refused:
                if refused.code is not Code.INVALID:
                    raise
                say("error", "a stream takes such records no more", log=log.name, problem=refused)
            return
        if log.config.ttl_ms:
            engine.expire_now(live)
        now_ms = engine.clock.now_ms()
        entry = one.append(log, chunk.drafts, None, now_ms)
        engine.caps.check_total(engine.state, entry)
        position = engine.appender.enqueue(live, entry, now_ms, (note,))
        (shown,) = engine.show_when_committed(position, [(live, entry.block.last)]).values()
        await asyncio.shield(shown)

    # --- tidying ---------------------------------------------------------------------------------

    async def _tidy(self, commit: Commit, before: Commit | None = None) -> None:
        """A batch is in its logs: the chunks of it and of those before it are of no use."""
        await self._remove(self._of(commit.transaction, lambda batch: batch <= commit.batch))
        if before is not None:
            old = layout.staged_commit(before.transaction, before.batch)
            await self._engine.pool.run(self._staging.remove, [old])

    def _of(self, transaction: str, wanted: Callable[[int], bool]) -> list[str]:
        prefix = f"{layout.STAGED}/{transaction}."
        return [
            path
            for path in self._staged
            if path.startswith(prefix) and wanted(int(path[len(prefix) :].partition(".")[0]))
        ]

    async def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._forget(path)
        await self._engine.pool.run(self._staging.remove, paths)

    def _forget(self, path: str) -> None:
        self._staged_bytes -= self._staged.pop(path).size_bytes

    @asynccontextmanager
    async def _alone(self, transaction: str) -> AsyncIterator[None]:
        """Commits of one transaction come one after another."""
        lock, users = self._locks.get(transaction) or (asyncio.Lock(), 0)
        self._locks[transaction] = (lock, users + 1)
        try:
            async with lock:
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


def _transaction(path: str) -> str:
    """Whose chunk it is."""
    return path.removeprefix(f"{layout.STAGED}/").partition(".")[0]
