"""A disk in memory, for tests and simulations: same rules, no files, nothing ever lost."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

import pyarrow as pa

from headrace.formats.layout import TEMPORARY
from headrace.storage.disk import AppendFile, Buffer


class _MemoryFile:
    def __init__(self, content: bytearray) -> None:
        self._content = content
        self._end = 0

    def write(self, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        self._content[self._end : self._end + len(data)] = data
        self._end += len(data)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no number")


class MemoryDisk:
    """Files as byte arrays by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.now_ms = 0
        """When everything here was written, for all anybody can tell."""
        self._locked: set[str] = set()

    def boot_id(self) -> str:
        return "memory"

    def make_folder(self, path: str) -> None:
        pass

    def list(self, folder: str, *, unfinished: bool = False) -> list[str]:
        prefix = folder + "/"
        names = (path.removeprefix(prefix) for path in self.files if path.startswith(prefix))
        here = (name for name in names if "/" not in name)
        return sorted(name for name in here if name.endswith(TEMPORARY) is unfinished)

    def exists(self, path: str) -> bool:
        return path in self.files

    def size(self, path: str) -> int:
        return len(self._file(path))

    def modified_ms(self, path: str) -> int:
        self._file(path)
        return self.now_ms

    def read(self, path: str) -> bytes:
        return bytes(self._file(path))

    def map(self, path: str) -> memoryview:
        return memoryview(self.read(path))

    def open_read(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(bytes(self._file(path)))

    def create_append(self, path: str) -> AppendFile:
        if path in self.files:
            raise FileExistsError(path)
        self.files[path] = bytearray()
        return _MemoryFile(self.files[path])

    def open_blank(self, path: str) -> AppendFile:
        return _MemoryFile(self._file(path))

    def blank(self, path: str, size_bytes: int) -> None:
        content = self.files.setdefault(path, bytearray())
        content[:] = bytes(max(size_bytes, len(content)))

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        self.files[path] = bytearray(b"".join(parts))

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self._file(old)
        del self.files[old]

    def link(self, old: str, new: str) -> None:
        content = self._file(old)
        # In one step, as several threads may try.
        if new in self.files or self.files.setdefault(new, content) is not content:
            raise FileExistsError(new)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def sync(self, path: str) -> None:
        self._file(path)

    def sync_folder(self, folder: str) -> None:
        pass

    def sync_root(self) -> None:
        pass

    def lock(self, path: str) -> None:
        if path in self._locked:
            raise BlockingIOError(path)
        self._locked.add(path)

    def _file(self, path: str) -> bytearray:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None
