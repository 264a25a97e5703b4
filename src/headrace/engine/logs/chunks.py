"""Chunks that wait for their commit: which there are, what they bring, how long they wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from headrace.core.cap import Cap, add_to
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    CHUNK_BYTES_MAX,
    STAGED_BYTES_MAX,
    STAGED_BYTES_PER_KEY_MAX,
    STAGED_CHUNK_BYTES_MIN,
    STAGED_MS_MAX,
)
from headrace.core.stream_state import BYTES
from headrace.core.transaction import Chunk
from headrace.engine.kernel import Kernel
from headrace.formats import layout
from headrace.formats.staged import checksum_of
from headrace.storage.staging import Staging

_BYTES_PER_KEY = Cap("staged_bytes_per_key", STAGED_BYTES_PER_KEY_MAX)
_BYTES = Cap("staged_bytes", STAGED_BYTES_MAX)


class ChunkSummary(msgspec.Struct, frozen=True):
    """What a chunk brings to its log."""

    log: str
    records: int
    size_bytes: int
    media: str | None
    """None: JSON."""


class _Staged(msgspec.Struct):
    """A chunk that waits."""

    batch: int
    size_bytes: int
    seen_at_ms: int
    checksum: int | None = None
    """None: found at the start, and not looked at since."""
    brought: ChunkSummary | None = None
    """None: the same, or it is still on its way to the disk."""


class StagedTotals(msgspec.Struct, frozen=True):
    """All that is staged and not in its logs yet."""

    transactions: int = 0
    chunks: int = 0
    size_bytes: int = 0
    age_ms: int = 0
    """How long the oldest chunk has waited."""


class _Held(msgspec.Struct):
    """What waits of one transaction."""

    key: str
    """Whose it is; nothing: it is from before that was noted."""
    chunks: dict[str, _Staged] = {}
    """By path."""


class Chunks:
    """All staged chunks of an engine, by transaction."""

    def __init__(self, kernel: Kernel, staging: Staging) -> None:
        self._kernel = kernel
        self._staging = staging
        self._held: dict[str, _Held] = {}
        self._bytes: Counter[str] = Counter()
        """What the chunks of each key count for."""
        self._writing: set[str] = set()
        """Chunks on their way to the disk."""

    def open(self, found: Mapping[str, int]) -> None:
        """Take in what the disk holds: paths and sizes."""
        now_ms = self._kernel.clock.now_ms()
        for path, size_bytes in found.items():
            name = _name(path)
            held = self._held.setdefault(name.transaction, _Held(name.key))
            if not held.key:
                self.give(name.transaction, name.key)
            held.chunks[path] = _Staged(name.batch, size_bytes, now_ms)
            self._bytes[held.key] += _counted(size_bytes)

    def __contains__(self, path: str) -> bool:
        return self._find(path) is not None

    @property
    def waiting(self) -> StagedTotals:
        """What is staged at this moment."""
        if not self._held:
            return StagedTotals()
        chunks = [staged for held in self._held.values() for staged in held.chunks.values()]
        oldest_ms = min(staged.seen_at_ms for staged in chunks)
        return StagedTotals(
            len(self._held),
            len(chunks),
            sum(staged.size_bytes for staged in chunks),
            max(0, self._kernel.clock.now_ms() - oldest_ms),
        )

    # --- whose they are --------------------------------------------------------------------------

    def key_of(self, transaction: str) -> str | None:
        """Whose chunks wait; None when there are none."""
        held = self._held.get(transaction)
        return None if held is None else held.key

    def give(self, transaction: str, key: str) -> None:
        """From here on they are the chunks of this key."""
        held = self._held[transaction]
        counted = sum(_counted(staged.size_bytes) for staged in held.chunks.values())
        add_to(self._bytes, held.key, -counted)
        add_to(self._bytes, key, counted)
        held.key = key

    # --- keeping ---------------------------------------------------------------------------------

    async def keep(
        self, transaction: str, batch: int, name: str, key: str, chunk: Chunk, content: bytes
    ) -> bool:
        """Keep a chunk, encoded as `content`; False when it was removed before it was there.

        The same chunk again changes nothing; another one under its name is refused.
        """
        path = self.path(transaction, batch, name, key)
        if path in self._writing:
            raise Refused(Code.THROTTLED, f"chunk {name} is being staged; try again")
        if len(content) > CHUNK_BYTES_MAX:
            # Behind its commit nobody could refuse it, and it comes to its log in one frame.
            raise Refused(
                Code.BODY_TOO_LARGE,
                f"a chunk is at most {CHUNK_BYTES_MAX} bytes, not {len(content)}",
                max=CHUNK_BYTES_MAX,
            )
        checksum = checksum_of(content)
        known = self._find(path)
        if known is not None and known.checksum == checksum:
            return True
        if known is not None and known.checksum is not None:
            raise Refused(Code.INVALID, f"chunk {name} was staged before with other records")
        self._check_room(key, _counted(len(content)))
        if known is not None:
            self._forget(path)
        staged = _Staged(batch, len(content), self._kernel.clock.now_ms(), checksum)
        self._held.setdefault(transaction, _Held(key)).chunks[path] = staged
        self._bytes[key] += _counted(len(content))
        self._writing.add(path)
        try:
            await self._write(path, staged, content)
        finally:
            self._writing.discard(path)
        staged.brought = _summary(chunk)
        return self._find(path) is staged

    async def _write(self, path: str, staged: _Staged, content: bytes) -> None:
        try:
            await self._kernel.pool.run(self._staging.put, path, content)
        except OSError:
            if self._find(path) is staged:
                self._forget(path)
            raise
        if self._find(path) is not staged:  # nobody asks for it any more
            await self._kernel.pool.run(self._staging.remove, [path])

    def _check_room(self, key: str, size_bytes: int) -> None:
        _BYTES_PER_KEY.check(self._bytes[key], size_bytes)
        _BYTES.check(self._bytes.total(), size_bytes)

    def path(self, transaction: str, batch: int, name: str, key: str) -> str:
        """Where a chunk is, or is to be."""
        old = layout.staged_chunk(transaction, batch, name)  # from before keys were noted
        held = self._held.get(transaction)
        if held is not None and old in held.chunks:
            return old
        return layout.staged_chunk(transaction, batch, f"{name}.{key}")

    async def look(self, path: str, name: str) -> ChunkSummary:
        """What a chunk brings; from here on no other one can be staged under its name."""
        staged = self._find(path)
        if staged is None:
            raise Refused(Code.INVALID, f"chunk {name} is not staged", field="chunks")
        if staged.brought is None:
            try:
                checksum, chunk = await self._kernel.pool.run(self._staging.look, path)
            except FileNotFoundError:
                raise _on_its_way(name) from None
            if self._find(path) is not staged or staged.checksum not in (None, checksum):
                raise _on_its_way(name)
            staged.checksum, staged.brought = checksum, _summary(chunk)
        return staged.brought

    async def read(self, path: str) -> Chunk:
        return await self._kernel.pool.run(self._staging.read, path)

    def of(self, transaction: str, upto: int, since: int = 0) -> list[str]:
        """The chunks of some batches of a transaction."""
        held = self._held.get(transaction)
        chunks = {} if held is None else held.chunks
        return [path for path, staged in chunks.items() if since <= staged.batch <= upto]

    def late(self) -> dict[str, list[str]]:
        """Chunks that waited too long, by transaction."""
        before_ms = self._kernel.clock.now_ms() - STAGED_MS_MAX
        late: dict[str, list[str]] = {}
        for transaction, held in self._held.items():
            paths = [path for path, each in held.chunks.items() if each.seen_at_ms < before_ms]
            if paths:
                late[transaction] = paths
        return late

    async def remove(self, paths: list[str]) -> None:
        for path in paths:
            self._forget(path)
        if paths:
            await self._kernel.pool.run(self._staging.remove, paths)

    def _find(self, path: str) -> _Staged | None:
        held = self._held.get(_name(path).transaction)
        return None if held is None else held.chunks.get(path)

    def _forget(self, path: str) -> None:
        transaction = _name(path).transaction
        held = self._held.get(transaction)
        if held is None or (staged := held.chunks.pop(path, None)) is None:
            return
        add_to(self._bytes, held.key, -_counted(staged.size_bytes))
        if not held.chunks:
            del self._held[transaction]


def _counted(size_bytes: int) -> int:
    return max(size_bytes, STAGED_CHUNK_BYTES_MIN)


def _summary(chunk: Chunk) -> ChunkSummary:
    drafts = chunk.drafts
    media = None if chunk.is_json else drafts.media or BYTES
    return ChunkSummary(chunk.log, drafts.count, drafts.size_bytes, media)


def _on_its_way(name: str) -> Refused:
    return Refused(Code.INVALID, f"chunk {name} is still on its way")


def _name(path: str) -> layout.StagedName:
    name = layout.staged_name(path)
    assert name is not None, path
    return name
