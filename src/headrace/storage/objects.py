"""The object store seam: whole, immutable objects by name. A local directory by default."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

import msgspec
import pyarrow as pa

from headrace.formats.layout import OBJECTS, STORE, TEMPORARY
from headrace.storage.disk import Disk, make_folders, write_atomically


class StoreError(OSError):
    """The object store cannot do what it was asked to; says which object and why."""


class NoCredentials(StoreError):
    """Nothing says who we are to the store; says what could."""


class Listed(msgspec.Struct, frozen=True, order=True):
    """An object as a list shows it."""

    name: str
    size_bytes: int
    modified_ms: int
    """When it was stored, by the store's clock."""


class Objects(Protocol):
    """Whole objects by name. Several processes may use a store at a time."""

    def put(self, name: str, content: bytes) -> None:
        """Store an object; durable when this returns. The same name again replaces it."""

    def put_new(self, name: str, content: bytes) -> bool:
        """Store an object unless the name is taken: first writer wins."""

    def get(self, name: str) -> bytes: ...

    def open(self, name: str) -> pa.NativeFile: ...

    def list(self, folder: str) -> list[Listed]:
        """What is in a folder, sorted by name; names are with the folder."""

    def look(self, name: str) -> Listed | None:
        """An object as a list would show it; None when there is none."""

    def remove(self, name: str) -> None:
        """Free a name; nothing happens when nobody holds it."""

    def settle(self, folder: str) -> None:
        """What can be seen in a folder is durable when this returns, whoever stored it."""


def _random_token() -> str:
    return secrets.token_hex(6)


class LocalObjects:
    """Objects as files of a disk."""

    def __init__(self, disk: Disk, token: Callable[[], str] = _random_token) -> None:
        self._disk = disk
        self._token = token
        make_folders(disk, (f"{OBJECTS}/{folder}" for folder in STORE))
        for folder in STORE:
            # A killed process may have left names that are not durable yet; we build upon them.
            self.settle(folder)

    def put(self, name: str, content: bytes) -> None:
        write_atomically(self._disk, f"{OBJECTS}/{name}", (content,))

    def put_new(self, name: str, content: bytes) -> bool:
        path = f"{OBJECTS}/{name}"
        while True:
            # Nobody else writes to this name, so nobody can put his content under ours.
            aside = f"{path}-{self._token()}{TEMPORARY}"
            try:
                self._disk.write(aside, (content,))
                self._disk.link(aside, path)
            except FileExistsError:
                return False
            except FileNotFoundError:
                continue  # a server that starts removes what looks unfinished
            finally:
                self._disk.remove(aside)
            self._disk.sync_folder(path.rpartition("/")[0])
            return True

    def get(self, name: str) -> bytes:
        return self._disk.read(f"{OBJECTS}/{name}")

    def open(self, name: str) -> pa.NativeFile:
        return self._disk.open_read(f"{OBJECTS}/{name}")

    def list(self, folder: str) -> list[Listed]:
        while True:
            names = [f"{folder}/{name}" for name in self._disk.list(f"{OBJECTS}/{folder}")]
            found = [listed for name in names if (listed := self.look(name)) is not None]
            # Of manifests the last counts. When it was removed meanwhile, there are newer ones.
            if not names or (found and found[-1].name == names[-1]):
                return found

    def look(self, name: str) -> Listed | None:
        path = f"{OBJECTS}/{name}"
        try:
            return Listed(name, self._disk.size(path), self._disk.modified_ms(path))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        self._disk.remove(f"{OBJECTS}/{name}")

    def settle(self, folder: str) -> None:
        self._disk.sync_folder(f"{OBJECTS}/{folder}")
