"""Telling users what changed, on their own time: a slow listener gets several changes as one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

import msgspec

from headrace.client.flags.problems import FlagState, RefreshError


class FlagChange(msgspec.Struct, frozen=True):
    """Another tree is served than before."""

    namespace: str
    version: int
    previous_version: int | None
    """None: there was none before."""
    flags: frozenset[str]
    """Keys of flags that may have other values now; those that came or went among them."""

    def merge(self, later: FlagChange) -> FlagChange:
        """Both as one."""
        flags = self.flags | later.flags
        return FlagChange(self.namespace, later.version, self.previous_version, flags)


class FlagStateChange(msgspec.Struct, frozen=True):
    """A namespace is known better, or less well, than before."""

    namespace: str
    state: FlagState
    previous: FlagState
    error: RefreshError | None

    def merge(self, later: FlagStateChange) -> FlagStateChange:
        """Both as one."""
        return FlagStateChange(self.namespace, later.state, self.previous, later.error)


_T = TypeVar("_T", FlagChange, FlagStateChange)
Deliver = Callable[[Callable[[], None]], object]
"""Has something called soon, elsewhere."""


class Listener(Generic[_T]):
    """One callback and what it has not been told yet, which is at most one change."""

    def __init__(self, callback: Callable[[_T], object], deliver: Deliver) -> None:
        self._callback: Callable[[_T], object] = callback
        self._deliver = deliver
        self._lock = Lock()
        self._waiting: _T | None = None

    def offer(self, change: _T) -> None:
        with self._lock:
            waiting = self._waiting
            self._waiting = change if waiting is None else waiting.merge(change)
        if waiting is None:
            self._deliver(self._tell)

    def _tell(self) -> None:
        with self._lock:
            change, self._waiting = self._waiting, None
        if change is not None:
            self._callback(change)


class Listeners(Generic[_T]):
    """All who want to hear of one kind of change."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._listeners: tuple[Listener[_T], ...] = ()
        self._lock = Lock()

    def add(self, callback: Callable[[_T], object]) -> Callable[[], None]:
        """Have this called with each change; returns what ends that."""
        listener = Listener(callback, self._deliver)
        with self._lock:
            self._listeners += (listener,)

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return remove

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def offer(self, change: _T) -> None:
        for listener in self._listeners:
            listener.offer(change)
