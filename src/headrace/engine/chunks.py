"""Chunks that wait for their commit: which there are, what they bring, how long they wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import STAGED_BYTES_MAX, STAGED_MS_MAX
from headrace.core.stream import BYTES
from headrace.core.transaction import Chunk
from headrace.formats import layout
from headrace.formats.staged import checksum_of, encode_staged
from headrace.storage.staging import Staging

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


class Brought(msgspec.Struct, frozen=True):
    """What a chunk brings to its log."""

    log: str
    records: int
    size_bytes: int
    media: str | None
    """None: JSON."""


class _Staged(msgspec.Struct):
    """A chunk that waits."""

    size_bytes: int
    seen_at_ms: int
    checksum: int | None = None
    """None: found at the start, and not looked at since."""
    brought: Brought | None = None
    """None: the same, or it is still on its way to the disk."""


class Waiting(msgspec.Struct, frozen=True):
    """All that is staged and not in its logs yet."""

    transactions: int = 0
    chunks: int = 0
    size_bytes: int = 0
    age_ms: int = 0
    """How long the oldest chunk has waited."""


class Chunks:
    """All staged chunks of an engine, by their paths."""

    def __init__(self, engine: Engine, staging: Staging) -> None:
        self._engine = engine
        self._staging = staging
        self._staged: dict[str, _Staged] = {}
        self._staged_bytes = 0

    def open(self, found: Mapping[str, int]) -> None:
        """Take in what the disk holds: paths and sizes."""
        now_ms = self._engine.clock.now_ms()
        for path, size_bytes in found.items():
            self._staged[path] = _Staged(size_bytes, now_ms)
            self._staged_bytes += size_bytes

    def __contains__(self, path: str) -> bool:
        return path in self._staged

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

    async def stage(self, path: str, name: str, chunk: Chunk) -> None:
        """Keep a chunk.

        The same chunk again changes nothing; another one under its name is refused.
        """
        content = await self._engine.pool.run(encode_staged, chunk)
        checksum = checksum_of(content)
        known = self._staged.get(path)
        if known is not None and known.checksum == checksum:
            return
        if known is not None and known.checksum is not None:
            raise Refused(Code.INVALID, f"chunk {name} was staged before with other records")
        if self._staged_bytes + len(content) > STAGED_BYTES_MAX:
            raise Refused(
                Code.THROTTLED,
                f"{STAGED_BYTES_MAX} bytes wait for their commits, the most this server keeps",
                limit="staged_bytes",
                max=STAGED_BYTES_MAX,
            )
        staged = _Staged(len(content), self._engine.clock.now_ms(), checksum)
        self._staged[path] = staged
        self._staged_bytes += len(content) - (known.size_bytes if known else 0)
        try:
            await self._engine.pool.run(self._staging.put, path, content)
        except OSError:
            self._forget(path)
            raise
        staged.brought = _brought(chunk)

    async def look(self, path: str, name: str) -> Brought:
        """What a chunk brings; from here on no other one can be staged under its name."""
        staged = self._staged.get(path)
        if staged is None:
            raise Refused(Code.INVALID, f"chunk {name} is not staged", field="chunks")
        if staged.brought is None:
            try:
                checksum, chunk = await self._engine.pool.run(self._staging.look, path)
            except FileNotFoundError:
                raise _on_its_way(name) from None
            if self._staged.get(path) is not staged or staged.checksum not in (None, checksum):
                raise _on_its_way(name)
            staged.checksum, staged.brought = checksum, _brought(chunk)
        return staged.brought

    async def read(self, path: str) -> Chunk:
        return await self._engine.pool.run(self._staging.read, path)

    def of(self, transaction: str, wanted: Callable[[int], bool]) -> list[str]:
        """The chunks of some batches of a transaction."""
        prefix = f"{layout.STAGED}/{transaction}."
        return [
            path
            for path in self._staged
            if path.startswith(prefix) and wanted(int(path[len(prefix) :].partition(".")[0]))
        ]

    def late(self) -> dict[str, list[str]]:
        """Chunks that waited too long, by transaction."""
        now_ms = self._engine.clock.now_ms()
        late: dict[str, list[str]] = {}
        for path, staged in self._staged.items():
            if now_ms - staged.seen_at_ms > STAGED_MS_MAX:
                late.setdefault(_transaction(path), []).append(path)
        return late

    async def remove(self, paths: list[str]) -> None:
        for path in paths:
            self._forget(path)
        await self._engine.pool.run(self._staging.remove, paths)

    def _forget(self, path: str) -> None:
        if (staged := self._staged.pop(path, None)) is not None:
            self._staged_bytes -= staged.size_bytes


def _brought(chunk: Chunk) -> Brought:
    drafts = chunk.drafts
    media = None if chunk.is_json else drafts.media or BYTES
    return Brought(chunk.log, drafts.count, drafts.size_bytes, media)


def _on_its_way(name: str) -> Refused:
    return Refused(Code.INVALID, f"chunk {name} is still on its way")


def _transaction(path: str) -> str:
    """Whose chunk it is."""
    return path.removeprefix(f"{layout.STAGED}/").partition(".")[0]
