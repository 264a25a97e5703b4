"""The disk seam: the few file operations storage is made of, each a possible crash point."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa

from headrace.formats.layout import TEMPORARY, is_foreign

_IOV_MAX = 1000
_SYNC_BYTES = 512 << 10
"""Large files go to the disk in pieces of this size.

A sync of the journal may have to wait for what other files have pending: not for a whole segment.
"""
_BLOCK_BYTES = 4096
_ZEROES = bytes(_SYNC_BYTES)

Buffer = bytes | bytearray


_PASSING = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EINTR,
    }
)


class SyncFailed(OSError):
    """What a sync was to cover is in doubt: now, and whatever later syncs say."""


def passes(error: OSError) -> bool:
    """Whether what failed so may work later: only a descriptor, memory or room was missing."""
    return error.errno in _PASSING and not isinstance(error, SyncFailed)


class AppendFile(Protocol):
    """A file that is written from its start to its end."""

    def write(self, parts: Sequence[Buffer]) -> None:
        """Hand the next bytes to the operating system; all of them or an OSError.

        After one, the next write begins where this one began.
        """

    def sync(self) -> None:
        """Return when everything written is on stable storage."""

    def close(self) -> None: ...

    def fileno(self) -> int:
        """The operating system's number for it; OSError where there is none."""


class Disk(Protocol):
    """A data directory. Paths are relative to it."""

    def boot_id(self) -> str:
        """Changes when the operating system restarts, and with it whatever was written but not
        synced.
        """

    def make_folder(self, path: str) -> None:
        """A folder and those above it, the data directory too. `make_folders` syncs their names."""

    def list(self, folder: str, *, unfinished: bool = False) -> list[str]:
        """Names in a folder, sorted: of finished files, or of those that never got their name."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written to."""

    def read(self, path: str) -> bytes: ...

    def map(self, path: str) -> memoryview:
        """A file as a view that copies nothing.

        What a disk fails to read ends the process: not for one that others depend on.
        """

    def open_read(self, path: str) -> pa.NativeFile:
        """A file to read from at any place, without taking it into memory."""

    def create_append(self, path: str) -> AppendFile:
        """A new empty file; its name is durable when its folder is synced."""

    def open_blank(self, path: str) -> AppendFile:
        """A file that `blank` made, to be written from its start, over its zeroes."""

    def blank(self, path: str, size_bytes: int) -> None:
        """A file of zeroes, synced, at least this large: a new one, or one written over in place.

        Writing over what was written before is the fastest a disk can sync: nothing but the bytes
        themselves changes.
        """

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        """A whole file, synced; its name is durable when its folder is synced."""

    def rename(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> None:
        """A second name, first come first served: FileExistsError when it is taken."""

    def remove(self, path: str) -> None: ...

    def sync(self, path: str) -> None:
        """A file as others have written it is on stable storage when this returns.

        OSError also when it is known that writing it there has failed before.
        """

    def sync_folder(self, folder: str) -> None: ...

    def sync_root(self) -> None:
        """The name of the data directory itself, and those of what is above it, are durable."""

    def lock(self, path: str) -> None:
        """Hold this file until the process ends; BlockingIOError when another process does."""


def sweep(disk: Disk, folders: Iterable[str]) -> None:
    """Remove files that a killed process began and nobody will finish."""
    for folder in filter(disk.exists, folders):
        for name in disk.list(folder, unfinished=True):
            if not is_foreign(name):
                disk.remove(f"{folder}/{name}")


def make_folders(disk: Disk, paths: Iterable[str]) -> None:
    """Folders, durable when this returns, whoever made them.

    A folder is a name in the one above it. One that is there may still not be durable: whoever made
    it may have been killed before the sync.
    """
    above = set()
    for path in paths:
        disk.make_folder(path)
        parts = path.split("/")
        above |= {"/".join(parts[:depth]) for depth in range(len(parts) if path else 0)}
    disk.sync_root()
    for folder in sorted(above):
        disk.sync_folder(folder)


def write_atomically(disk: Disk, path: str, parts: Iterable[bytes]) -> None:
    """Write aside, sync, rename, sync the folder: the file is whole or absent."""
    try:
        disk.write(path + TEMPORARY, parts)
        disk.rename(path + TEMPORARY, path)
    except OSError:
        with suppress(OSError):
            disk.remove(path + TEMPORARY)  # there may be no room for what nobody will finish
        raise
    disk.sync_folder(path.rpartition("/")[0])


class _File:
    def __init__(self, fd: int, blank_bytes: int = 0) -> None:
        self._fd = fd
        self._blank_bytes = blank_bytes
        self._end = 0

    def write(self, parts: Sequence[Buffer]) -> None:
        began = self._end
        try:
            for start in range(0, len(parts), _IOV_MAX):
                self._write(parts[start : start + _IOV_MAX])
        except OSError:
            self._end = began
            raise

    def _write(self, chunk: Sequence[Buffer]) -> None:
        size = sum(map(len, chunk))
        end = self._end + size
        rest = -end % _BLOCK_BYTES
        if end + rest <= self._blank_bytes:
            # Zeroes over zeroes, to the end of the block: one that is not in memory would have to
            # be read before a part of it can be changed.
            chunk = [*chunk, _ZEROES[:rest]]
        written = os.pwritev(self._fd, chunk, self._end)
        if written < size:
            self._end += written
            self._write([b"".join(chunk)[written:size]])
        self._end = end

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncFailed(*error.args) from error
    finally:
        os.close(fd)


class RealDisk:
    """A directory of the operating system."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: list[IO[bytes]] = []

    @property
    def root(self) -> Path:
        return self._root

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""  # unknown: every unclean stop is then taken for a power loss

    def make_folder(self, path: str) -> None:
        (self._root / path).mkdir(parents=True, exist_ok=True)

    def list(self, folder: str, *, unfinished: bool = False) -> list[str]:
        names = os.listdir(self._root / folder)
        return sorted(name for name in names if name.endswith(TEMPORARY) is unfinished)

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def size(self, path: str) -> int:
        return (self._root / path).stat().st_size

    def modified_ms(self, path: str) -> int:
        return (self._root / path).stat().st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def map(self, path: str) -> memoryview:
        with open(self._root / path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            return memoryview(
                mmap.mmap(file.fileno(), size, flags, mmap.PROT_READ) if size else b""
            )

    def open_read(self, path: str) -> pa.NativeFile:
        return pa.OSFile(str(self._root / path), "rb")

    def create_append(self, path: str) -> AppendFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return _File(os.open(self._root / path, flags, 0o640))

    def open_blank(self, path: str) -> AppendFile:
        fd = os.open(self._root / path, os.O_WRONLY | os.O_CLOEXEC)
        return _File(fd, os.fstat(fd).st_size)

    def blank(self, path: str, size_bytes: int) -> None:
        fd = os.open(self._root / path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            file = _File(fd)
            size_bytes = max(size_bytes, os.fstat(fd).st_size)
            for start in range(0, size_bytes, _SYNC_BYTES):
                file.write([_ZEROES[: size_bytes - start]])
                file.sync()
        finally:
            os.close(fd)

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        with open(self._root / path, "wb") as file:
            unsynced = 0
            for part in parts:
                for start in range(0, len(part), _SYNC_BYTES):
                    chunk = memoryview(part)[start : start + _SYNC_BYTES]
                    file.write(chunk)
                    unsynced += len(chunk)
                    if unsynced >= _SYNC_BYTES:
                        file.flush()
                        os.fdatasync(file.fileno())
                        unsynced = 0
            file.flush()
            os.fsync(file.fileno())

    def make_private(self, path: str) -> None:
        """Let nobody but its owner read or write a file; what is written to it later stays so."""
        (self._root / path).chmod(0o600)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._root / old, self._root / new)

    def link(self, old: str, new: str) -> None:
        os.link(self._root / old, self._root / new)

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        _sync(self._root / path)

    def sync_folder(self, folder: str) -> None:
        _sync(self._root / folder)

    def sync_root(self) -> None:
        folder = self._root.resolve()
        for above in folder.parents:
            if above.stat().st_dev != folder.stat().st_dev:
                return  # another file system; that this one is mounted there is not our doing
            with suppress(PermissionError):  # who made a folder may read it: this one was not ours
                _sync(above)

    def lock(self, path: str) -> None:
        file = open(self._root / path, "a+b")  # noqa: SIM115  (held until the process ends)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        self._held.append(file)
