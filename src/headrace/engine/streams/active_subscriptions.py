"""Active subscriptions: which there are, and who follows which streams.

A subscription is a log without records, so that it is journaled, recovered and dropped as any log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.core.bounded_cache import BoundedCache
from headrace.core.entry import Append, Dispatch, Drop, Entry, Follow, Open
from headrace.core.glob import Glob
from headrace.core.log import Log
from headrace.core.owners import SUBSCRIPTION_PREFIX
from headrace.core.subscription import Subscription
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.follower_index import FollowerIndex

_MATCHES_MAX = 100_000


class Active:
    """One subscription in operation."""

    __slots__ = ("appended", "live", "pattern", "queued", "sending", "slow")

    def __init__(self, live: OpenLog, subscription: Subscription) -> None:
        self.live = live
        pattern = subscription.following.pattern
        self.pattern = None if pattern is None else Glob(pattern)
        self.appended: str | None = None
        """The stream that something was appended to last, where to look for work first."""
        self.queued = False
        self.sending = False
        """A webhook is called, or about to be: there is one call at a time."""
        self.slow = subscription.failures > 0
        """It took long the last time, or failed."""

    @property
    def key(self) -> str:
        return self.live.log.created_by

    @property
    def subscription(self) -> Subscription:
        assert self.live.log.subscription is not None
        return self.live.log.subscription

    def follows(self, name: str) -> bool:
        """Whether this stream is one of its; never the one it writes its wakes to."""
        subscription = self.subscription
        if name == subscription.following.wake_stream:
            return False
        link = subscription.links.get(name)
        if link is not None and link.named:
            return True
        pattern = self.pattern
        return pattern is not None and name.startswith(pattern.prefix) and pattern.matches(name)


class ActiveSubscriptions:
    """All subscriptions of an engine, by their logs and by the streams they follow."""

    def __init__(self, kernel: Kernel) -> None:
        self._active: dict[int, Active] = {}
        self._index = FollowerIndex()
        self._matches: BoundedCache[str, tuple[Active, ...]] = BoundedCache(_MATCHES_MAX)
        """Who follows a stream, as far as somebody asked."""
        self._wakers: dict[str, dict[int, Active]] = {}
        """Who writes wakes to a stream, by its name."""
        kernel.observe(self._followed, Follow)
        kernel.observe(self._dropped, Drop)

    def __contains__(self, active: Active) -> bool:
        return active.live.log.id in self._active

    def __iter__(self) -> Iterator[Active]:
        """Those that there are now, whatever changes meanwhile."""
        return iter(tuple(self._active.values()))

    def __getitem__(self, log: int) -> Active:
        return self._active[log]

    def opened(self, live: OpenLog) -> None:
        assert live.log.subscription is not None
        active = self._active[live.log.id] = Active(live, live.log.subscription)
        if (name := active.subscription.following.wake_stream) is not None:
            self._wakers.setdefault(name, {})[live.log.id] = active
        self._index.add(active)
        self._matches.clear()

    def _followed(self, live: OpenLog, entry: Follow) -> None:
        """A subscription begins, or follows other streams than before."""
        if entry.following is not None:
            self.opened(live)
            return
        active = self._active[live.log.id]
        for name in entry.gone:
            self._index.unname(active, name)
        for name, named, _, _ in entry.links:
            if named:
                self._index.name(active, name)
            else:
                self._index.unname(active, name)

    def _dropped(self, live: OpenLog, _: Drop) -> None:
        active = self._active.pop(live.log.id, None)
        if active is None:
            return
        if (name := active.subscription.following.wake_stream) is not None:
            del self._wakers[name][live.log.id]
            if not self._wakers[name]:
                del self._wakers[name]
        self._index.remove(active)
        self._matches.clear()

    def followers(self, name: str) -> tuple[Active, ...]:
        if not self._active:
            return ()
        known = self._matches.get(name)
        if known is None:
            known = tuple(active for active in self._index.find(name) if active.follows(name))
            self._matches.keep(name, known)
        return known

    def match_again(self, names: Iterable[str]) -> None:
        """Others may follow these streams from here on."""
        for name in names:
            self._matches.pop(name, None)

    def follow(self, log: Log) -> list[Entry]:
        """Before an append: whoever has no note of the stream gets one, as it is now."""
        assert log.stream is not None
        return [
            Follow(active.live.log.id, [(log.name, False, log.stream.epoch, log.head)])
            for active in self.followers(log.name)
            if log.name not in active.subscription.links
        ]

    def follow_new(self, name: str, entries: Iterable[Entry]) -> list[Entry]:
        """The same for a stream that is created with records."""
        epoch, start = 0, None
        for entry in entries:
            match entry:
                case Open():
                    epoch = entry.epoch
                case Append():
                    start = entry.block.first - 1
        if start is None:
            return []
        return [
            Follow(active.live.log.id, [(name, False, epoch, start)])
            for active in self.followers(name)
            if name not in active.subscription.links
        ]

    def forget(self, name: str) -> list[Entry]:
        """Before a stream goes: there is nothing to do of it, so nobody needs a note of it but who
        asked for it by name.
        """
        return [
            Follow(active.live.log.id, gone=[name])
            for active in self.followers(name)
            if (link := active.subscription.links.get(name)) is not None and not link.named
        ]

    def unheard(self, name: str) -> list[Entry]:
        """Before a stream is created: wakes that were written to the last one of its name, and that
        nobody claimed, went with it.
        """
        return [
            Dispatch(active.live.log.id, active.subscription.generation, None)
            for active in self.wakers(name)
            if not active.subscription.idle and active.subscription.holder is None
        ]

    def wakers(self, name: str) -> Iterable[Active]:
        """Who writes wakes to this stream."""
        return self._wakers.get(name, {}).values()


def id_of(active: Active) -> str:
    return active.live.log.name.removeprefix(SUBSCRIPTION_PREFIX)
