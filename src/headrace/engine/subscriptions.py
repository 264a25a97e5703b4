"""Subscriptions in operation: noticing appends, waking workers, leases and their end.

A subscription is a log without records, so that it is journaled, recovered and dropped as any log.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from headrace.core import state as catalog
from headrace.core import subscription as rules
from headrace.core.entry import Append, Create, Dispatch, Drop, Entry, Follow, Following, Open
from headrace.core.errors import Code, Refused
from headrace.core.glob import Glob
from headrace.core.limits import (
    SUBSCRIPTION_NAMES_SCANNED,
    SUBSCRIPTION_STREAMS_MAX,
    SUBSCRIPTION_STREAMS_SHOWN,
    WEBHOOK_RETRY_S_MAX,
    WEBHOOK_SLOW_S,
)
from headrace.core.log import Log
from headrace.core.streaming import CONFIG
from headrace.core.subscription import PULL, WEBHOOK, Subscription, Tail, Work
from headrace.engine.delivery_slots import DeliverySlots
from headrace.engine.follower_index import FollowerIndex
from headrace.engine.live import Live
from headrace.observe import say

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

OWNER = "subscriptions"
PREFIX = "__ds/subscriptions/"
_TICK_S = 0.25
_MATCHES_MAX = 100_000
_JITTER = 0.2


class DeliveryFailed(Exception):
    """A webhook did not take a wake."""


Deliver = Callable[[Live, list[Work]], Awaitable[bool]]
"""Tell a webhook of work; says whether it was done at once."""


class Active:
    """One subscription in operation."""

    __slots__ = ("appended", "live", "pattern", "queued", "sending", "slow")

    def __init__(self, live: Live, subscription: Subscription) -> None:
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


class Subscriptions:
    """All subscriptions of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._active: dict[int, Active] = {}
        self._index = FollowerIndex()
        self._matches: dict[str, tuple[Active, ...]] = {}
        """Who follows a stream, as far as somebody asked."""
        self._wakers: dict[str, dict[int, Active]] = {}
        """Who writes wakes to a stream, by its name."""
        self._slots = DeliverySlots(engine.caps.per_key.webhooks)
        self._tasks: set[asyncio.Task[None]] = set()
        self.deliver: Deliver = _nobody
        engine.observe(self._followed, Follow)
        engine.observe(lambda live, _: self.dropped(live), Drop)
        engine.observe_drain(self.drain)

    # --- which there are -------------------------------------------------------------------------

    def opened(self, live: Live) -> None:
        assert live.log.subscription is not None
        active = self._active[live.log.id] = Active(live, live.log.subscription)
        if (name := active.subscription.following.wake_stream) is not None:
            self._wakers.setdefault(name, {})[live.log.id] = active
        self._index.add(active)
        self._matches.clear()

    def _followed(self, live: Live, entry: Follow) -> None:
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

    def dropped(self, live: Live) -> None:
        active = self._active.pop(live.log.id, None)
        if active is None:
            return
        if (name := active.subscription.following.wake_stream) is not None:
            del self._wakers[name][live.log.id]
            if not self._wakers[name]:
                del self._wakers[name]
        self._index.remove(active)
        self._matches.clear()

    def find(self, id: str) -> Active:
        log = self._engine.state.by_name.get(PREFIX + id)
        if log is None:
            raise Refused(Code.LOG_NOT_FOUND, f'subscription "{id}" does not exist')
        return self._active[log.id]

    def tail(self, path: str) -> Tail | None:
        """Where a stream ends for its readers."""
        log = self._engine.state.by_name.get(path)
        if log is None or log.stream is None or log.stream.deleted:
            return None
        return Tail(log.stream.epoch, self._engine.lives[log.id].visible)

    def _end(self, path: str) -> Tail | None:
        """Where a stream ends with all that is under way."""
        log = self._engine.state.by_name.get(path)
        if log is None or log.stream is None:
            return None
        return Tail(log.stream.epoch, log.head)

    def pending(self, active: Active) -> list[Work]:
        """The streams with something to do, so many at a time."""
        found = rules.pending(active.subscription, self.tail)
        return list(islice(found, SUBSCRIPTION_STREAMS_SHOWN))

    def streams(self, active: Active) -> list[Work]:
        """The streams it follows, so many of them: those it has a note of, and matching ones."""
        subscription = active.subscription
        shown: dict[str, Work] = {}
        for path, link in islice(subscription.links.items(), SUBSCRIPTION_STREAMS_SHOWN):
            tail = self.tail(path) or Tail(link.epoch, 0)
            shown[path] = rules.work_of(subscription, path, tail)
        if active.pattern is not None:
            names = self._engine.state.names("", active.pattern.prefix, "streams")
            for name in islice(names, SUBSCRIPTION_NAMES_SCANNED):
                if len(shown) >= SUBSCRIPTION_STREAMS_SHOWN:
                    break
                if name not in shown and active.follows(name) and (end := self.tail(name)):
                    shown[name] = rules.work_of(subscription, name, end)
        return list(shown.values())

    # --- noticing --------------------------------------------------------------------------------

    def _followers(self, name: str) -> tuple[Active, ...]:
        if not self._active:
            return ()
        known = self._matches.get(name)
        if known is None:
            if len(self._matches) >= _MATCHES_MAX:
                self._matches.clear()
            known = tuple(active for active in self._index.find(name) if active.follows(name))
            self._matches[name] = known
        return known

    def follow(self, log: Log) -> list[Entry]:
        """Before an append: whoever has no note of the stream gets one, as it is now."""
        assert log.stream is not None
        return [
            Follow(active.live.log.id, [(log.name, False, log.stream.epoch, log.head)])
            for active in self._followers(log.name)
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
            for active in self._followers(name)
            if name not in active.subscription.links
        ]

    def forget(self, name: str) -> list[Entry]:
        """Before a stream goes: there is nothing to do of it, so nobody needs a note of it but who
        asked for it by name.
        """
        return [
            Follow(active.live.log.id, gone=[name])
            for active in self._followers(name)
            if (link := active.subscription.links.get(name)) is not None and not link.named
        ]

    def unheard(self, name: str) -> list[Entry]:
        """Before a stream is created: wakes that were written to the last one of its name, and that
        nobody claimed, went with it.
        """
        return [
            Dispatch(active.live.log.id, active.subscription.generation, None)
            for active in self._wakers.get(name, {}).values()
            if not active.subscription.idle and active.subscription.holder is None
        ]

    def created(self, name: str) -> None:
        """There is a new stream; it may be the one to write wakes to that were due before."""
        for active in self._wakers.get(name, {}).values():
            self._line_up(active)

    def notice(self, log: Log) -> None:
        """Something was appended and can be seen."""
        for active in self._followers(log.name):
            active.appended = log.name
            self._line_up(active)

    def _line_up(self, active: Active) -> None:
        if not active.queued:
            active.queued = True
            asyncio.get_running_loop().call_soon(self._look, active)

    def _look(self, active: Active) -> None:
        """Wake somebody if there is work and nobody is at it."""
        active.queued = False
        engine, subscription = self._engine, active.subscription
        if active.live.log.id not in self._active or engine.journal.failure is not None:
            return
        if not subscription.idle or active.sending or engine.draining:
            return  # whoever is at it looks again afterwards
        work = self._work(active)
        if work is None:
            return
        if subscription.following.kind == PULL:
            self._write_wake(active, work)
        else:
            self._send_wake(active)

    def _work(self, active: Active) -> Work | None:
        """A stream with something to do; mostly no more than one is looked at."""
        subscription, path = active.subscription, active.appended
        if path is not None and (tail := self.tail(path)) is not None:
            work = rules.work_of(subscription, path, tail)
            if work.pending:
                return work
        return next(rules.pending(subscription, self.tail), None)

    def _write_wake(self, active: Active, work: Work) -> None:
        """Say in the wake stream that there is work; both are true or neither."""
        engine, subscription = self._engine, active.subscription
        log = engine.state.by_name.get(subscription.following.wake_stream or "")
        if log is None or log.stream is None or not log.stream.is_json or log.stream.deleted:
            return  # its users have yet to create it
        dispatch = rules.wake(active.live.log.id, subscription, _name())
        event = {
            "type": "wake",
            "subscription_id": id_of(active),
            "stream": work.path,
            "generation": dispatch.generation,
            "ts": engine.clock.now_ms(),
        }
        engine.streams.append_own(engine.lives[log.id], msgspec.json.encode(event), [dispatch])

    # --- webhooks --------------------------------------------------------------------------------

    def _send_wake(self, active: Active) -> None:
        """Call the webhook when there is a slot; what comes meanwhile is looked at afterwards."""
        if not active.sending:
            active.sending = True
            task = asyncio.create_task(self._send(active))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, active: Active) -> None:
        try:
            async with self._slots.hold(active.live.log.created_by, slow=active.slow):
                wake = self._decide_wake(active)
                if wake is not None:
                    await self._call(active, wake)
        except Refused:
            pass  # read-only: the next start goes on
        finally:
            active.sending = False
            self._line_up(active)

    def _decide_wake(self, active: Active) -> Dispatch | None:
        """The wake to send now; None when there is nothing to tell any more.

        Decided with the slot in hand: the lease does not run out while others are called.
        """
        engine, subscription = self._engine, active.subscription
        if active.live.log.id not in self._active or engine.draining:
            return None
        now_ms = engine.clock.now_ms()
        log, until_ms = active.live.log.id, now_ms + subscription.following.lease_ms
        if subscription.idle:
            if self._work(active) is None:
                return None
            return rules.wake(log, subscription, _name(), WEBHOOK, until_ms)
        if subscription.holder is None and now_ms >= subscription.retry_at_ms:
            return rules.wake_again(log, subscription, WEBHOOK, until_ms)
        return None

    async def _call(self, active: Active, wake: Dispatch) -> None:
        position = self._engine.commit([wake], sync=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._engine.journal.wait_synced(position)
            works = self.pending(active)
            done = await self.deliver(active.live, works)
        except DeliveryFailed as failure:
            active.slow = True
            self._retry(active, wake, str(failure))
            return
        except asyncio.CancelledError:
            self._put_off(active, wake)
            raise
        active.slow = loop.time() - began > WEBHOOK_SLOW_S
        if done and self._is_out(active, wake):
            links = active.subscription.links  # some may have been taken out meanwhile
            acks = [
                (work.path, work.tail.epoch, work.tail.seq) for work in works if work.path in links
            ]
            self._acknowledge(active, acks, done=True)

    def _is_out(self, active: Active, wake: Dispatch) -> bool:
        """Whether nothing has ended this wake meanwhile."""
        subscription = active.subscription
        current = (subscription.generation, subscription.wake) == (wake.generation, wake.wake)
        return current and active.live.log.id in self._active

    def _retry(self, active: Active, wake: Dispatch, problem: str) -> None:
        if not self._is_out(active, wake) or self._engine.journal.failure is not None:
            return
        failures = active.subscription.failures
        wait_s = min(WEBHOOK_RETRY_S_MAX, 1 << min(failures, 10))
        wait_ms = int(wait_s * 1000 * (1 + random.uniform(-_JITTER, _JITTER)))
        if not failures:  # those that follow tell nothing new
            say("warning", "a webhook fails", subscription=id_of(active), problem=problem)
        retry_at_ms = self._engine.clock.now_ms() + wait_ms
        entry = rules.fail(active.live.log.id, active.subscription, retry_at_ms)
        self._engine.commit([entry], sync=True)

    def _put_off(self, active: Active, wake: Dispatch) -> None:
        """The server stops: whether the webhook heard of the wake or not, the next start tells."""
        if self._is_out(active, wake) and self._engine.journal.failure is None:
            now_ms = self._engine.clock.now_ms()
            entry = rules.put_off(active.live.log.id, active.subscription, now_ms)
            self._engine.commit([entry], sync=True)

    def drain(self) -> None:
        """The server is about to stop: no webhook is waited for."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Wait until every call that was under way is written down as one to repeat."""
        self.drain()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End leases and try again, for as long as the server runs."""
        for active in tuple(self._active.values()):
            self._line_up(active)
        while True:
            await asyncio.sleep(_TICK_S)
            if self._engine.journal.failure is None:
                self.tick()

    def tick(self) -> None:
        now_ms = self._engine.clock.now_ms()
        for active in tuple(self._active.values()):
            subscription = active.subscription
            if subscription.idle or active.sending:
                continue
            if subscription.holder is not None and now_ms >= subscription.lease_until_ms:
                ended = Dispatch(active.live.log.id, subscription.generation, None)
                self._engine.commit([ended], sync=True)
                self._line_up(active)
            elif subscription.retry_at_ms and now_ms >= subscription.retry_at_ms:
                self._send_wake(active)

    # --- for those who ask -----------------------------------------------------------------------

    async def put(self, id: str, following: Following, created_by: str = "") -> tuple[Active, bool]:
        """Subscribe, or find that somebody did so just like this; says whether it is new."""
        engine = self._engine
        engine.check_open()
        known = engine.state.by_name.get(PREFIX + id)
        if known is not None:
            active = self._active[known.id]
            if not _same(active.subscription.following, following):
                raise Refused(Code.CONFLICT, f'subscription "{id}" exists and is another one')
            await engine.journal.wait_synced(active.live.config_position)
            return active, False
        engine.caps.check_logs(engine.state, OWNER, created_by)
        created: Create = catalog.create(
            engine.state, PREFIX + id, OWNER, CONFIG, engine.clock.now_ms(), created_by
        )
        follow = Follow(created.log, self._links(following.streams), following=following)
        position = engine.commit([created, follow], sync=True, together=True)
        active = self._active[created.log]
        self._line_up(active)
        await engine.journal.wait_synced(position)
        return active, True

    def _links(self, paths: Iterable[str]) -> list[tuple[str, bool, int, int]]:
        ends = ((path, self.tail(path) or Tail(0, 0)) for path in paths)
        return [(path, True, end.epoch, end.seq) for path, end in ends]

    async def delete(self, id: str) -> None:
        self._engine.check_open()
        position = self._engine.commit([Drop(self.find(id).live.log.id)], sync=True)
        await self._engine.journal.wait_synced(position)

    async def link(self, id: str, paths: list[str]) -> None:
        """Follow these streams, too, from where they end."""
        active = self.find(id)
        links = active.subscription.links
        if len(links) + len(paths) > SUBSCRIPTION_STREAMS_MAX:
            raise Refused(
                Code.INVALID, f"a subscription names at most {SUBSCRIPTION_STREAMS_MAX} streams"
            )
        wanted = dict.fromkeys(paths)
        new = self._links(path for path in wanted if path not in links)
        named = [
            (path, True, link.epoch, link.seq)
            for path in wanted
            if (link := links.get(path)) is not None and not link.named
        ]
        await self._change(active, Follow(active.live.log.id, [*new, *named]), wanted)

    async def unlink(self, id: str, path: str) -> None:
        """Follow this stream no more, unless the pattern does."""
        active = self.find(id)
        link = active.subscription.links.get(path)
        if link is None or not link.named:
            await self._engine.journal.wait_synced(active.live.config_position)
            return
        log = active.live.log.id
        if active.pattern is not None and active.pattern.matches(path):
            await self._change(active, Follow(log, [(path, False, link.epoch, link.seq)]), [path])
        else:
            await self._change(active, Follow(log, gone=[path]), [path])

    async def _change(self, active: Active, entry: Entry, paths: Iterable[str]) -> None:
        self._engine.check_open()
        position = self._engine.commit([entry], sync=True)
        for path in paths:
            self._matches.pop(path, None)
        await self._engine.journal.wait_synced(position)

    async def claim(self, id: str, worker: str) -> tuple[Active, list[Work]]:
        """The lease, for a worker that was woken or comes by itself."""
        self._engine.check_open()
        active = self.find(id)
        if active.subscription.following.kind != PULL:
            raise Refused(Code.INVALID, "only pull-wake subscriptions are claimed")
        works = self.pending(active)
        entry = rules.claim(
            active.live.log.id,
            active.subscription,
            worker,
            _name(),
            self._engine.clock.now_ms(),
            work=bool(works),
        )
        position = self._engine.commit([entry], sync=True)
        await self._engine.journal.wait_synced(position)
        return active, works

    async def acknowledge(
        self,
        active: Active,
        wake: str,
        generation: int,
        acks: list[tuple[str, int, int]],
        *,
        done: bool,
    ) -> bool:
        """This much is done, says who holds the lease; returns whether there is more to do."""
        self._engine.check_open()
        now_ms = self._engine.clock.now_ms()
        rules.check_fence(active.subscription, wake, generation, now_ms)
        for path, epoch, seq in acks:
            self._check_ack(active, path, epoch, seq)
        position = self._acknowledge(active, acks, done=done)
        await self._engine.journal.wait_synced(position)
        return done and self._work(active) is not None

    def _check_ack(self, active: Active, path: str, epoch: int, seq: int) -> None:
        tail = self.tail(path)
        if tail is None or not (active.follows(path) or path in active.subscription.links):
            raise Refused(Code.INVALID, f'"{path}" is not a stream of this subscription')
        work = rules.work_of(active.subscription, path, tail)
        known = active.subscription.links.get(path)
        done = work.done if known is not None else 0
        if epoch != tail.epoch or not done <= seq <= tail.seq:
            raise Refused(Code.INVALID, f'the offset is not one that can be acked in "{path}"')

    def _acknowledge(self, active: Active, acks: list[tuple[str, int, int]], *, done: bool) -> int:
        log, engine = active.live.log.id, self._engine
        now_ms = engine.clock.now_ms()
        entry = rules.acknowledge(log, active.subscription, acks, now_ms, done=done)
        position = engine.commit([entry], sync=True)
        acked = (path for path, _, _ in acks)
        if gone := rules.settled(active.subscription, acked, self._end):
            engine.commit([Follow(log, gone=gone)], sync=False)
        if done:
            self._line_up(active)
        return position

    async def release(self, active: Active, wake: str, generation: int) -> None:
        """The holder gives the lease back; what it did not ack is still to be done."""
        await self.acknowledge(active, wake, generation, [], done=True)


def id_of(active: Active) -> str:
    return active.live.log.name.removeprefix(PREFIX)


def _same(one: Following, other: Following) -> bool:
    replace = msgspec.structs.replace
    return replace(one, base_url="", at_ms=0) == replace(other, base_url="", at_ms=0)


def _name() -> str:
    return f"w_{secrets.token_hex(8)}"


async def _nobody(live: Live, works: list[Work]) -> bool:
    raise DeliveryFailed("nobody delivers webhooks here")
