"""The object store seam: whole, immutable objects by name. A local directory by default."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from headrace.formats.layout import COMPANIONS, MANIFESTS, OBJECTS, SEGMENTS, TEMPORARY
from headrace.storage.disk import Disk, write_atomically


class Objects(Protocol):
    """Whole objects by name."""

    def put(self, name: str, content: bytes) -> None:
        """Store an object; durable when this returns. The same name again replaces it."""

    def put_new(self, name: str, content: bytes) -> bool:
        """Store an object unless the name is taken: first writer wins."""

    def get(self, name: str) -> bytes: ...

    def open(self, name: str) -> pa.NativeFile: ...

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted, with the folder."""

    def remove(self, name: str) -> None: ...


class LocalObjects:
    """Objects as files of a disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        for folder in (SEGMENTS, COMPANIONS, MANIFESTS):
            disk.make_folder(f"{OBJECTS}/{folder}")
            # A killed process may have left names that are not durable yet; we build upon them.
            disk.sync_folder(f"{OBJECTS}/{folder}")

    def put(self, name: str, content: bytes) -> None:
        write_atomically(self._disk, f"{OBJECTS}/{name}", (content,))

    def put_new(self, name: str, content: bytes) -> bool:
        path = f"{OBJECTS}/{name}"
        # Left by a process that died after its link, this is a name of the object itself.
        self._disk.remove(path + TEMPORARY)
        self._disk.write(path + TEMPORARY, (content,))
        try:
            self._disk.link(path + TEMPORARY, path)
        except FileExistsError:
            return False
        finally:
            self._disk.remove(path + TEMPORARY)
        self._disk.sync_folder(path.rpartition("/")[0])
        return True

    def get(self, name: str) -> bytes:
        return self._disk.read(f"{OBJECTS}/{name}")

    def open(self, name: str) -> pa.NativeFile:
        return self._disk.open_read(f"{OBJECTS}/{name}")

    def list(self, folder: str) -> list[str]:
        return [f"{folder}/{name}" for name in self._disk.list(f"{OBJECTS}/{folder}")]

    def remove(self, name: str) -> None:
        self._disk.remove(f"{OBJECTS}/{name}")
