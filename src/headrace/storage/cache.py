"""A cache bounded by bytes that several threads share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

from headrace.core.sized_cache import SizedCache

K = TypeVar("K", bound=Hashable)


class Cache(SizedCache[K]):
    """One caller at a time has it."""

    def __init__(self, bytes_max: int, kept_min: int = 0) -> None:
        super().__init__(bytes_max, kept_min)
        self._lock = Lock()

    def get(self, key: K) -> Any:
        with self._lock:
            return super().get(key)

    def put(self, key: K, value: Any, size_bytes: int) -> None:
        with self._lock:
            super().put(key, value, size_bytes)

    def clear(self) -> None:
        with self._lock:
            super().clear()

    def keep(self, is_wanted: Callable[[K], bool]) -> None:
        with self._lock:
            super().keep(is_wanted)
