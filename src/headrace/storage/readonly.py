"""A data directory to look at: everything can be read, nothing can be changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import pyarrow as pa

from headrace.storage.disk import AppendFile, Disk


class ReadOnlyDisk:
    """Reads as the disk below it does; a folder that is not there is empty.

    What recovery does to settle a directory (folders, syncs, an empty file removed) is taken as
    done. Anything that would bring bytes into the directory is refused.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._removed: set[str] = set()

    def boot_id(self) -> str:
        return self._disk.boot_id()

    def make_folder(self, path: str) -> None:
        pass

    def list(self, folder: str) -> list[str]:
        try:
            names = self._disk.list(folder)
        except FileNotFoundError:
            return []
        return [name for name in names if f"{folder}/{name}" not in self._removed]

    def exists(self, path: str) -> bool:
        return path not in self._removed and self._disk.exists(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def open_read(self, path: str) -> pa.NativeFile:
        return self._disk.open_read(path)

    def create_append(self, path: str) -> AppendFile:
        _refuse(path)

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        _refuse(path)

    def sync_file(self, path: str) -> None:
        pass

    def rename(self, old: str, new: str) -> None:
        _refuse(old)

    def link(self, old: str, new: str) -> None:
        _refuse(new)

    def remove(self, path: str) -> None:
        self._removed.add(path)

    def sync_folder(self, folder: str) -> None:
        pass

    def lock(self, path: str) -> None:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise PermissionError(f"{path}: the data directory is open for reading only")
