"""When a file that the manifest named is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.storage.objects import StoreError


class Vanished(StoreError, FileNotFoundError):
    """An object is gone: it was replaced and we have not heard of it yet, or it is lost."""

    def __init__(self, name: str, more: str = "") -> None:
        super().__init__(f"{name} is missing from the object store{more}")
        self.name = name


@contextmanager
def gone_is_vanished(name: str) -> Iterator[None]:
    try:
        yield
    except Vanished:
        raise
    except FileNotFoundError as missing:
        raise Vanished(name) from missing
