"""How well a namespace is known: from what went wrong, and for how long."""

from __future__ import annotations

from headrace.client.flags.problems import FlagState, RefreshError


class Freshness:
    """What is in the way of a namespace; stale at first, an error when that lasts."""

    def __init__(self, error_after_s: float) -> None:
        self.error: RefreshError | None = None
        """Why the last refresh failed; None once all is well again."""
        self._error_after_s = error_after_s
        self._since: float | None = None
        self._stays = False

    def report(self, error: RefreshError, now: float, *, stays: bool) -> None:
        """Something failed; `stays`: that will not pass by itself."""
        self.error = error
        if self._since is None:
            self._since = now
        self._stays = self._stays or stays

    def clear(self) -> None:
        """Nothing is in the way any more."""
        self.error = self._since = None
        self._stays = False

    @property
    def is_error_at(self) -> float | None:
        """When it has lasted for too long; None if nothing is in the way."""
        return None if self._since is None else self._since + self._error_after_s

    def state_at(self, now: float, *, has_tree: bool) -> FlagState:
        if not has_tree:
            return FlagState.NOT_READY
        if self.is_error_at is None:
            return FlagState.FRESH
        return FlagState.ERROR if self._stays or now >= self.is_error_at else FlagState.STALE
