"""When a file that the manifest named is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Vanished(FileNotFoundError):
    """A file is gone: it was replaced, and we have not heard of it yet."""


@contextmanager
def gone_is_vanished(name: str) -> Iterator[None]:
    try:
        yield
    except Vanished:
        raise
    except FileNotFoundError as missing:
        raise Vanished(f"{name} is missing") from missing
