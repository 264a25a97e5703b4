"""What one connection follows: parked while it is blocked, resumed where it was."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.limits import BUFFER_GRACE_S
from headrace.delivery.cohort import Follower
from headrace.delivery.hub import Hub
from headrace.engine.open_log import OpenLog


class Followers:
    """The followers of one connection, by the id of their log."""

    __slots__ = ("_by_log", "_hub", "_parked")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._by_log: dict[int, Follower] = {}
        self._parked = False

    def __len__(self) -> int:
        return len(self._by_log)

    def __iter__(self) -> Iterator[Follower]:
        return iter(tuple(self._by_log.values()))

    def __contains__(self, live: OpenLog) -> bool:
        return live.log.id in self._by_log

    def named(self, name: str) -> list[Follower]:
        """Those of a name: two, if a log was deleted and came again just now."""
        return [follower for follower in self if follower.live.log.name == name]

    def add(self, follower: Follower) -> None:
        """Follow one more log, or one of them anew."""
        live = follower.live
        if known := self._by_log.get(live.log.id):
            self.remove(known)
        self._by_log[live.log.id] = follower
        live.last_read_at_ms = self._hub.engine.clock.now_ms()
        if not self._parked:
            self._hub.follow(follower)

    def remove(self, follower: Follower) -> None:
        """Want no more of a log; once more changes nothing."""
        if not follower.over:
            follower.over = True
            follower.leave()
            follower.write = _nowhere  # it may name the follower, and the connection does
            del self._by_log[follower.live.log.id]

    def park(self) -> None:
        """The connection is blocked: records wait in their logs."""
        self._parked = True
        for follower in self:
            follower.leave()

    def resume(self, blocked_s: float) -> None:
        """The connection has drained.

        Whoever retention overtook during a long block came too late by his own doing.
        """
        self._parked = False
        for follower in self:
            follower.fresh = follower.fresh or blocked_s > BUFFER_GRACE_S
            self._hub.follow(follower)

    def close(self) -> None:
        for follower in self:
            self.remove(follower)

    @property
    def busy_at(self) -> float:
        """When one of them last got something, by the loop's clock."""
        return max((follower.busy_at for follower in self), default=0.0)


def _nowhere(frames: bytes) -> None:
    pass
