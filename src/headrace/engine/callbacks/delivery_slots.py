"""Who may call a webhook now: slots, shared out so that nobody slow has them all."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from operator import itemgetter

from headrace.core.cap import add_to
from headrace.core.limits import (
    WEBHOOK_SLOW_S,
    WEBHOOKS_AT_ONCE,
    WEBHOOKS_OVERDUE_MAX,
    WEBHOOKS_SLOW_AT_ONCE,
)

Lane = tuple[str, bool]
"""Whose receiver it is, and whether it is a slow one."""
Waiting = OrderedDict[asyncio.Future[None], None]
"""Those of a lane. (A plain dict looks for its first item behind all that went before.)"""


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
        self._held: Counter[str] = Counter()
        """Slots that are taken, by key."""
        self._taken = {False: 0, True: 0}
        """The same, by pace."""
        self._lanes: dict[Lane, Waiting] = {}
        """Those who wait."""
        self._turns: dict[bool, OrderedDict[Lane, int]] = {
            False: OrderedDict(),
            True: OrderedDict(),
        }
        """By pace, the lanes whose keys may have more, each with its turn: who waits for a share of
        its key is not looked at, however many there are.
        """
        self._next_turn = count()

    @asynccontextmanager
    async def hold(self, key: str, *, slow: bool) -> AsyncIterator[None]:
        """Wait for a slot, and hold it meanwhile."""
        lane = key, slow
        if lane not in self._lanes and self._is_free(slow) and self._has_share(key):
            self._take(lane)
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
        if lane not in self._lanes:
            self._lanes[lane] = OrderedDict()
            self._line_up(lane)
        self._lanes[lane][granted] = None
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
            del waiting[granted]
            if not waiting:
                del self._lanes[lane]
                self._turns[lane[1]].pop(lane, None)

    def _is_free(self, slow: bool) -> bool:
        """Whether there is a slot for a receiver of this pace."""
        taken = self._taken
        if taken[False] + taken[True] >= self._total:
            return False
        return not slow or taken[True] < self._slow

    def _has_share(self, key: str) -> bool:
        return not self._per_key or self._held[key] < self._per_key

    def _take(self, lane: Lane) -> None:
        key, slow = lane
        self._held[key] += 1
        self._taken[slow] += 1

    def _free(self, lane: Lane) -> None:
        key, slow = lane
        add_to(self._held, key, -1)
        self._taken[slow] -= 1
        for each in ((key, False), (key, True)):
            if each in self._lanes and each not in self._turns[each[1]]:
                self._line_up(each)  # there is a share of the key again
        self._grant()

    def _line_up(self, lane: Lane) -> None:
        """Have a lane take its turn behind all others, if its key may have more."""
        if self._has_share(lane[0]):
            self._turns[lane[1]][lane] = next(self._next_turn)

    def _grant(self) -> None:
        """Give what is free to who waits, one lane after the other."""
        while (lane := self._next_lane()) is not None:
            del self._turns[lane[1]][lane]
            if not self._has_share(lane[0]):
                continue  # it lines up again with the next share
            waiting = self._lanes[lane]
            granted, _ = waiting.popitem(last=False)
            # Who was cancelled in this turn has yet to hear of it, and leaves by itself.
            while granted.cancelled() and waiting:
                granted, _ = waiting.popitem(last=False)
            if not granted.cancelled():
                granted.set_result(None)
                self._take(lane)
            if waiting:
                self._line_up(lane)
            else:
                del self._lanes[lane]

    def _next_lane(self) -> Lane | None:
        """The lane whose turn it is, of those for which there is a slot."""
        heads = [
            next(iter(turns.items()))
            for slow, turns in self._turns.items()
            if turns and self._is_free(slow)
        ]
        return min(heads, key=itemgetter(1))[0] if heads else None
