"""Subscriptions in operation: noticing appends, waking workers, leases and their end.

A subscription is a log without records, so that it is journaled, recovered and dropped as any log.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

import msgspec

from headrace.core import state as core_state
from headrace.core import subscription as rules
from headrace.core.entry import Create, Dispatch, Drop, Entry, Follow, Following, Open
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    SUBSCRIPTION_NAMES_SCANNED,
    SUBSCRIPTION_STREAMS_MAX,
    SUBSCRIPTION_STREAMS_SHOWN,
)
from headrace.core.owners import SUBSCRIPTION_PREFIX, SUBSCRIPTIONS
from headrace.core.retry import WAKES
from headrace.core.stream_rules import CONFIG
from headrace.core.subscription import PULL, WEBHOOK, LinkWork, StreamEnd
from headrace.engine.callbacks.sender import CallbackSender, DeliveryFailed
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.active_subscriptions import Active, ActiveSubscriptions, id_of
from headrace.engine.streams.lifecycle import Streams
from headrace.observe import log_line

_TICK_S = 0.25


Deliver = Callable[[OpenLog, list[LinkWork]], Awaitable[bool]]
"""Tell a webhook of work; says whether it was done at once."""


class Subscriptions:
    """All subscriptions of an engine."""

    def __init__(
        self,
        kernel: Kernel,
        streams: Streams,
        active: ActiveSubscriptions,
        sender: CallbackSender,
        deliver: Deliver,
    ) -> None:
        self._kernel = kernel
        self._streams = streams
        self.active = active
        self._sender = sender
        self.deliver = deliver
        kernel.observe(self._stream_opened, Open)
        streams.observe_shown(self._notice)

    # --- which there are -------------------------------------------------------------------------

    def find(self, id: str) -> Active:
        log = self._kernel.state.by_name.get(SUBSCRIPTION_PREFIX + id)
        if log is None:
            raise Refused(Code.LOG_NOT_FOUND, f'subscription "{id}" does not exist')
        return self.active[log.id]

    def tail(self, path: str) -> StreamEnd | None:
        """Where a stream ends for its readers."""
        log = self._kernel.state.by_name.get(path)
        if log is None or log.stream is None or log.stream.deleted:
            return None
        return StreamEnd(log.stream.epoch, self._kernel.open_logs[log.id].visible)

    def _end(self, path: str) -> StreamEnd | None:
        """Where a stream ends with all that is under way."""
        log = self._kernel.state.by_name.get(path)
        if log is None or log.stream is None:
            return None
        return StreamEnd(log.stream.epoch, log.head)

    def pending(self, active: Active) -> list[LinkWork]:
        """The streams with something to do, so many at a time."""
        found = rules.pending(active.subscription, self.tail)
        return list(islice(found, SUBSCRIPTION_STREAMS_SHOWN))

    def streams(self, active: Active) -> list[LinkWork]:
        """The streams it follows, so many of them: those it has a note of, and matching ones."""
        subscription = active.subscription
        shown: dict[str, LinkWork] = {}
        for path, link in islice(subscription.links.items(), SUBSCRIPTION_STREAMS_SHOWN):
            tail = self.tail(path) or StreamEnd(link.epoch, 0)
            shown[path] = rules.work_of(subscription, path, tail)
        if active.pattern is not None:
            names = self._kernel.state.names("", active.pattern.prefix, "streams")
            for name in islice(names, SUBSCRIPTION_NAMES_SCANNED):
                if len(shown) >= SUBSCRIPTION_STREAMS_SHOWN:
                    break
                if name not in shown and active.follows(name) and (end := self.tail(name)):
                    shown[name] = rules.work_of(subscription, name, end)
        return list(shown.values())

    # --- noticing --------------------------------------------------------------------------------

    def _stream_opened(self, live: OpenLog, _: Open) -> None:
        """There is a new stream; it may be the one to write wakes to that were due before."""
        for active in self.active.wakers(live.log.name):
            self.line_up(active)

    def _notice(self, live: OpenLog) -> None:
        """Something was appended and can be seen."""
        for active in self.active.followers(live.log.name):
            active.appended = live.log.name
            self.line_up(active)

    def _look(self, active: Active) -> None:
        """Wake somebody if there is work and nobody is at it."""
        active.queued = False
        kernel, subscription = self._kernel, active.subscription
        if active not in self.active or kernel.journal.failure is not None:
            return
        if not subscription.idle or active.sending or kernel.draining:
            return  # whoever is at it looks again afterwards
        work = self._work(active)
        if work is None:
            return
        if subscription.following.kind == PULL:
            self._write_wake(active, work)
        else:
            self._send_wake(active)

    def _work(self, active: Active) -> LinkWork | None:
        """A stream with something to do; mostly no more than one is looked at."""
        subscription, path = active.subscription, active.appended
        if path is not None and (tail := self.tail(path)) is not None:
            work = rules.work_of(subscription, path, tail)
            if work.pending:
                return work
        return next(rules.pending(subscription, self.tail), None)

    def _write_wake(self, active: Active, work: LinkWork) -> None:
        """Say in the wake stream that there is work; both are true or neither."""
        kernel, subscription = self._kernel, active.subscription
        log = kernel.state.by_name.get(subscription.following.wake_stream or "")
        if log is None or log.stream is None or not log.stream.is_json or log.stream.deleted:
            return  # its users have yet to create it
        dispatch = rules.wake(active.live.log.id, subscription, _name())
        event = {
            "type": "wake",
            "subscription_id": id_of(active),
            "stream": work.path,
            "generation": dispatch.generation,
            "ts": kernel.clock.now_ms(),
        }
        self._streams.append_own(kernel.open_logs[log.id], msgspec.json.encode(event), [dispatch])

    # --- webhooks --------------------------------------------------------------------------------

    def _send_wake(self, active: Active) -> None:
        """Call the webhook when there is a slot; what comes meanwhile is looked at afterwards."""
        self._sender.start(_WakeCall(self, active))

    def decide_wake(self, active: Active) -> Dispatch | None:
        """The wake to send now; None when there is nothing to tell any more."""
        kernel, subscription = self._kernel, active.subscription
        if active not in self.active or kernel.draining:
            return None
        now_ms = kernel.clock.now_ms()
        log, until_ms = active.live.log.id, now_ms + subscription.following.lease_ms
        if subscription.idle:
            if self._work(active) is None:
                return None
            return rules.wake(log, subscription, _name(), WEBHOOK, until_ms)
        if subscription.holder is None and now_ms >= subscription.retry_at_ms:
            return rules.wake_again(log, subscription, WEBHOOK, until_ms)
        return None

    def commit_wake(self, wake: Dispatch) -> int:
        return self._kernel.commit([wake], sync=True)

    def end_wake(self, active: Active, wake: Dispatch, works: list[LinkWork]) -> None:
        """The receiver said at once that all of this is done."""
        if self._is_out(active, wake):
            links = active.subscription.links  # some may have been taken out meanwhile
            acks = [
                (work.path, work.tail.epoch, work.tail.seq) for work in works if work.path in links
            ]
            self._acknowledge(active, acks, done=True)

    def _is_out(self, active: Active, wake: Dispatch) -> bool:
        """Whether nothing has ended this wake meanwhile."""
        subscription = active.subscription
        current = (subscription.generation, subscription.wake) == (wake.generation, wake.wake)
        return current and active in self.active

    def retry(self, active: Active, wake: Dispatch, failure: DeliveryFailed) -> None:
        if not self._is_out(active, wake) or self._kernel.journal.failure is not None:
            return
        failures = active.subscription.failures
        if not failures:  # those that follow tell nothing new
            log_line("warning", "a webhook fails", subscription=id_of(active), problem=str(failure))
        wait_ms = WAKES.wait_ms(failures + 1, random.random(), failure.retry_after_ms or 0)
        assert wait_ms is not None, "wakes are tried for ever"
        retry_at_ms = self._kernel.clock.now_ms() + wait_ms
        entry = rules.fail(active.live.log.id, active.subscription, retry_at_ms)
        self._kernel.commit([entry], sync=True)

    def put_off(self, active: Active, wake: Dispatch) -> None:
        if self._is_out(active, wake) and self._kernel.journal.failure is None:
            now_ms = self._kernel.clock.now_ms()
            entry = rules.put_off(active.live.log.id, active.subscription, now_ms)
            self._kernel.commit([entry], sync=True)

    def line_up(self, active: Active) -> None:
        """Look soon whether somebody must be woken."""
        if not active.queued:
            active.queued = True
            asyncio.get_running_loop().call_soon(self._look, active)

    # --- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End leases and try again, for as long as the server runs."""
        for active in self.active:
            self.line_up(active)
        while True:
            await asyncio.sleep(_TICK_S)
            if self._kernel.journal.failure is None:
                self.tick()

    def tick(self) -> None:
        now_ms = self._kernel.clock.now_ms()
        for active in self.active:
            subscription = active.subscription
            if subscription.idle or active.sending:
                continue
            if subscription.holder is not None and now_ms >= subscription.lease_until_ms:
                ended = Dispatch(active.live.log.id, subscription.generation, None)
                self._kernel.commit([ended], sync=True)
                self.line_up(active)
            elif subscription.retry_at_ms and now_ms >= subscription.retry_at_ms:
                self._send_wake(active)

    # --- for those who ask -----------------------------------------------------------------------

    async def put(self, id: str, following: Following, created_by: str = "") -> tuple[Active, bool]:
        """Subscribe, or find that somebody did so just like this; says whether it is new."""
        kernel = self._kernel
        kernel.check_open()
        name, now_ms = SUBSCRIPTION_PREFIX + id, kernel.clock.now_ms()
        known = kernel.state.by_name.get(name)
        if known is not None:
            active = self.active[known.id]
            if not _same(active.subscription.following, following):
                raise Refused(Code.CONFLICT, f'subscription "{id}" exists and is another one')
            await kernel.journal.wait_synced(active.live.config_position)
            return active, False
        kernel.caps.check_logs(kernel.state, SUBSCRIPTIONS, created_by)
        state = kernel.state
        created: Create = core_state.create(state, name, SUBSCRIPTIONS, CONFIG, now_ms, created_by)
        follow = Follow(created.log, self._links(following.streams), following=following)
        position = kernel.commit([created, follow], sync=True, together=True)
        active = self.active[created.log]
        self.line_up(active)
        await kernel.journal.wait_synced(position)
        return active, True

    def _links(self, paths: Iterable[str]) -> list[tuple[str, bool, int, int]]:
        ends = ((path, self.tail(path) or StreamEnd(0, 0)) for path in paths)
        return [(path, True, end.epoch, end.seq) for path, end in ends]

    async def delete(self, id: str) -> None:
        self._kernel.check_open()
        await self._kernel.commit_synced([Drop(self.find(id).live.log.id)])

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
        await self._change(Follow(active.live.log.id, [*new, *named]), wanted)

    async def unlink(self, id: str, path: str) -> None:
        """Follow this stream no more, unless the pattern does."""
        active = self.find(id)
        link = active.subscription.links.get(path)
        if link is None or not link.named:
            await self._kernel.journal.wait_synced(active.live.config_position)
            return
        log = active.live.log.id
        if active.pattern is not None and active.pattern.matches(path):
            await self._change(Follow(log, [(path, False, link.epoch, link.seq)]), [path])
        else:
            await self._change(Follow(log, gone=[path]), [path])

    async def _change(self, entry: Entry, paths: Iterable[str]) -> None:
        self._kernel.check_open()
        position = self._kernel.commit([entry], sync=True)
        self.active.match_again(paths)
        await self._kernel.journal.wait_synced(position)

    async def claim(self, id: str, worker: str) -> tuple[Active, list[LinkWork]]:
        """The lease, for a worker that was woken or comes by itself."""
        self._kernel.check_open()
        active = self.find(id)
        if active.subscription.following.kind != PULL:
            raise Refused(Code.INVALID, "only pull-wake subscriptions are claimed")
        works = self.pending(active)
        entry = rules.claim(
            active.live.log.id,
            active.subscription,
            worker,
            _name(),
            self._kernel.clock.now_ms(),
            work=bool(works),
        )
        await self._kernel.commit_synced([entry])
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
        self._kernel.check_open()
        now_ms = self._kernel.clock.now_ms()
        rules.check_fence(active.subscription, wake, generation, now_ms)
        for path, epoch, seq in acks:
            self._check_ack(active, path, epoch, seq)
        position = self._acknowledge(active, acks, done=done)
        await self._kernel.journal.wait_synced(position)
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
        log, kernel = active.live.log.id, self._kernel
        now_ms = kernel.clock.now_ms()
        entry = rules.acknowledge(log, active.subscription, acks, now_ms, done=done)
        position = kernel.commit([entry], sync=True)
        acked = (path for path, _, _ in acks)
        if gone := rules.settled(active.subscription, acked, self._end):
            kernel.commit([Follow(log, gone=gone)], sync=False)
        if done:
            self.line_up(active)
        return position

    async def release(self, active: Active, wake: str, generation: int) -> None:
        """The holder gives the lease back; what it did not ack is still to be done."""
        await self.acknowledge(active, wake, generation, [], done=True)


class _WakeCall:
    """A webhook that is to be woken."""

    def __init__(self, subscriptions: Subscriptions, active: Active) -> None:
        self._subscriptions = subscriptions
        self.receiver = active
        self._wake: Dispatch | None = None
        self._works: list[LinkWork] = []
        self._done = False

    @property
    def _sent(self) -> Dispatch:
        assert self._wake is not None
        return self._wake

    async def begin(self) -> int | None:
        self._wake = self._subscriptions.decide_wake(self.receiver)
        return None if self._wake is None else self._subscriptions.commit_wake(self._wake)

    async def call(self) -> None:
        self._works = self._subscriptions.pending(self.receiver)
        self._done = await self._subscriptions.deliver(self.receiver.live, self._works)

    def succeeded(self) -> None:
        if self._done:
            self._subscriptions.end_wake(self.receiver, self._sent, self._works)

    def failed(self, failure: DeliveryFailed) -> None:
        self._subscriptions.retry(self.receiver, self._sent, failure)

    def put_off(self) -> None:
        self._subscriptions.put_off(self.receiver, self._sent)

    def ended(self) -> None:
        self._subscriptions.line_up(self.receiver)


def _same(one: Following, other: Following) -> bool:
    replace = msgspec.structs.replace
    return replace(one, base_url="", at_ms=0) == replace(other, base_url="", at_ms=0)


def _name() -> str:
    return f"w_{secrets.token_hex(8)}"


async def no_delivery(live: OpenLog, works: list[LinkWork]) -> bool:
    raise DeliveryFailed("nobody delivers webhooks here")
