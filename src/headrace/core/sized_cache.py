"""A cache bounded by bytes: what was used last is kept longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_ENTRY_BYTES = 256
"""What keeping something takes beside itself."""


class SizedCache(Generic[K]):
    """Keeps as many bytes as there is room for, and `kept_min` however large they are."""

    def __init__(self, bytes_max: int, kept_min: int = 0) -> None:
        self._bytes_max = bytes_max
        self._kept_min = kept_min
        self._held: OrderedDict[K, tuple[Any, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: K) -> Any:
        """What was put there; None when it is not there any more."""
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        return held[0]

    def put(self, key: K, value: Any, size_bytes: int) -> None:
        size_bytes += _ENTRY_BYTES
        if size_bytes > self._bytes_max and not self._kept_min:
            return
        self._drop(key)
        self._held[key] = value, size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max and len(self._held) > self._kept_min:
            self._drop(next(iter(self._held)))

    def clear(self) -> None:
        """Let go of everything."""
        self._held = OrderedDict()
        self.size_bytes = 0

    def keep(self, is_wanted: Callable[[K], bool]) -> None:
        """Let go of everything else."""
        for key in [key for key in self._held if not is_wanted(key)]:
            self._drop(key)

    def _drop(self, key: K) -> None:
        _, size_bytes = self._held.pop(key, (None, 0))
        self.size_bytes -= size_bytes
