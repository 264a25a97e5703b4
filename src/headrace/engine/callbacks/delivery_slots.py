"""Who may call a webhook now: slots, shared out so that nobody slow has them all."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.core.cap import add_to
from headrace.core.limits import (
    WEBHOOK_SLOW_S,
    WEBHOOKS_AT_ONCE,
    WEBHOOKS_OVERDUE_MAX,
    WEBHOOKS_SLOW_AT_ONCE,
)

Lane = tuple[str, bool]
"""Whose receiver it is, and whether it is a slow one."""


class DeliverySlots:
    """A bounded number of slots in all, for each key, and for slow receivers together.

    Those who wait form one lane for each key and pace; the lanes take turns. Without keys nobody
    can be told apart: `per_key` is 0, and only the other two bounds count. A call that turns out to
    be slow goes on without its slot, up to a number of such calls: receivers that hang delay nobody
    for longer than it takes to see that they do.
    """

    def __init__(
        self,
        per_key: int,
        total: int = WEBHOOKS_AT_ONCE,
        slow: int = WEBHOOKS_SLOW_AT_ONCE,
        overdue: int = WEBHOOKS_OVERDUE_MAX,
    ) -> None:
        self._total = total
        self._per_key = per_key
        self._slow = slow
        self._overdue_max = overdue
        self._overdue: set[object] = set()
        """Calls that were prompt ones and take long."""
        self._held: Counter[Lane] = Counter()
        self._lanes: dict[Lane, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, key: str, *, slow: bool) -> AsyncIterator[None]:
        """Wait for a slot, and hold it meanwhile."""
        lane = key, slow
        if lane not in self._lanes and self._has_room(lane):
            self._held[lane] += 1
        else:
            await self._wait(lane)
        call = object()
        loop = asyncio.get_running_loop()
        timer = None if slow else loop.call_later(WEBHOOK_SLOW_S, self._let_go, lane, call)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            if call in self._overdue:
                self._overdue.discard(call)
            else:
                self._free(lane)

    def _let_go(self, lane: Lane, call: object) -> None:
        """A call takes long: others need not wait for it, unless there are very many such."""
        if len(self._overdue) < self._overdue_max:
            self._overdue.add(call)
            self._free(lane)

    async def _wait(self, lane: Lane) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(lane, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._leave(lane, granted)
            else:
                self._free(lane)
            raise

    def _leave(self, lane: Lane, granted: asyncio.Future[None]) -> None:
        waiting = self._lanes.get(lane)
        if waiting is not None and granted in waiting:
            waiting.remove(granted)
            if not waiting:
                del self._lanes[lane]

    def _has_room(self, lane: Lane) -> bool:
        key, slow = lane
        held = self._held
        if held.total() >= self._total:
            return False
        if slow and sum(held[each] for each in held if each[1]) >= self._slow:
            return False
        return not self._per_key or held[key, False] + held[key, True] < self._per_key

    def _free(self, lane: Lane) -> None:
        add_to(self._held, lane, -1)
        self._grant()

    def _grant(self) -> None:
        """Give what is free to who waits, one lane after the other."""
        for lane, waiting in list(self._lanes.items()):
            if not self._has_room(lane):
                continue
            granted = waiting.popleft()
            # Who was cancelled in this turn has yet to hear of it, and leaves by itself.
            while granted.cancelled() and waiting:
                granted = waiting.popleft()
            if not granted.cancelled():
                granted.set_result(None)
                self._held[lane] += 1
            del self._lanes[lane]
            if waiting:
                self._lanes[lane] = waiting  # behind all others
