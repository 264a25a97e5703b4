"""A data directory to look at: everything can be read, nothing can be changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import pyarrow as pa

from headrace.storage.disk import AppendFile, Disk


class ReadOnlyDisk:
    """Reads as the disk below it does, and refuses to change anything.

    A folder that is not there is empty, and so need not be made; what was written counts as synced.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def boot_id(self) -> str:
        return self._disk.boot_id()

    def make_folder(self, path: str) -> None:
        pass

    def list(self, folder: str, *, unfinished: bool = False) -> list[str]:
        try:
            return self._disk.list(folder, unfinished=unfinished)
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def map(self, path: str) -> memoryview:
        return self._disk.map(path)

    def open_read(self, path: str) -> pa.NativeFile:
        return self._disk.open_read(path)

    def create_append(self, path: str) -> AppendFile:
        _refuse(path)

    def open_blank(self, path: str) -> AppendFile:
        _refuse(path)

    def blank(self, path: str, size_bytes: int) -> None:
        _refuse(path)

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        _refuse(path)

    def rename(self, old: str, new: str) -> None:
        _refuse(old)

    def link(self, old: str, new: str) -> None:
        _refuse(new)

    def remove(self, path: str) -> None:
        _refuse(path)

    def sync(self, path: str) -> None:
        pass

    def sync_folder(self, folder: str) -> None:
        pass

    def sync_root(self) -> None:
        pass

    def lock(self, path: str) -> None:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise PermissionError(f"{path}: the data directory is open for reading only")
