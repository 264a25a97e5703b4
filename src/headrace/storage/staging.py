"""Chunks that wait for their commit, and the commits, as files. Blocking; run it off the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.core.transaction import Chunk, Commit
from headrace.formats import layout
from headrace.formats.staged import checksum_of, decode_chunk, decode_commit, encode_staged
from headrace.storage.disk import Disk, make_folders, write_atomically


class StagedAtStart(msgspec.Struct):
    """What a start finds."""

    commits: list[Commit]
    """Of each transaction the one with the highest batch, oldest first."""
    done: set[str]
    """Transactions whose highest batch is in its logs."""
    chunks: dict[str, int]
    """Path → size."""
    stale: list[str]
    """Commits that later ones have replaced."""


class Staging:
    """The staged files of one data directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        make_folders(disk, (layout.STAGED,))
        # A killed process may have left names that are not durable yet; we build upon them.
        disk.sync_folder(layout.STAGED)

    def load(self) -> StagedAtStart:
        newest: dict[str, tuple[int, str]] = {}
        found = StagedAtStart([], set(), {}, [])
        for file in self._disk.list(layout.STAGED):
            name, path = layout.staged_name(file), f"{layout.STAGED}/{file}"
            if name is None:
                continue
            if name.kind == "chunk":
                found.chunks[path] = self._disk.size(path)
                continue
            known, this = newest.get(name.transaction), (name.batch, path)
            if known is not None:
                found.stale.append(min(known, this)[1])
            newest[name.transaction] = max(known, this) if known else this
        for transaction, (batch, path) in newest.items():
            found.commits.append(decode_commit(self._disk.read(path), path))
            if path == layout.staged_done(transaction, batch):
                found.done.add(transaction)
        found.commits.sort(key=lambda commit: commit.at_ms)
        return found

    def put(self, path: str, content: bytes) -> None:
        """Keep a chunk; durable when this returns."""
        write_atomically(self._disk, path, (content,))

    def read(self, path: str) -> Chunk:
        return self.look(path)[1]

    def look(self, path: str) -> tuple[int, Chunk]:
        """A chunk, and the checksum that tells it from others."""
        raw = self._disk.read(path)
        return checksum_of(raw), decode_chunk(raw, path)

    def decide(self, commit: Commit) -> None:
        """A batch is committed when this returns. Only one process asks, and once for a batch."""
        path = layout.staged_commit(commit.transaction, commit.batch)
        write_atomically(self._disk, path, (encode_staged(commit),))

    def finish(self, commits: Sequence[Commit]) -> None:
        """The batches are in their logs: nobody brings them again, whatever files there are."""
        for commit in commits:
            old = layout.staged_commit(commit.transaction, commit.batch)
            if self._disk.exists(old):
                self._disk.rename(old, layout.staged_done(commit.transaction, commit.batch))
        self._disk.sync_folder(layout.STAGED)

    def rewrite(self, commit: Commit) -> None:
        """Say something else of a batch that is in its logs."""
        path = layout.staged_done(commit.transaction, commit.batch)
        write_atomically(self._disk, path, (encode_staged(commit),))

    def revoke(self, commit: Commit) -> None:
        """The batch is not committed when this returns, whatever became of `decide`."""
        self._disk.remove(layout.staged_commit(commit.transaction, commit.batch))
        self._disk.sync_folder(layout.STAGED)

    def forget(self, transaction: str) -> None:
        """Nothing was decided about any batch of a transaction when this returns."""
        for file in self._disk.list(layout.STAGED):
            name = layout.staged_name(file)
            if name is not None and name.transaction == transaction and name.kind != "chunk":
                self._disk.remove(f"{layout.STAGED}/{file}")
        self._disk.sync_folder(layout.STAGED)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._disk.remove(path)
