"""One consumer that is sent hints: its tenants, what it is to be told, whether it lives.

Without a wire: who has one says what the consumer said, and takes what there is to send. Logs are
followed as by every other connection. A hint that waits is joined with the next one of its tenant,
so a consumer that does not keep up costs no more than the tenants it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from uuid import uuid4

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    FEED_CONSUMER_REPLIES_MAX,
    FEED_CONSUMER_SILENCE_S,
    FEED_CONSUMER_TENANTS_MAX,
    FEED_HEARTBEAT_S,
)
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, Expired
from headrace.delivery.followers import Followers
from headrace.delivery.hub import Hub
from headrace.surfaces.feeds.consumers import Consumer, Consumers
from headrace.surfaces.feeds.filters import EventFilter, EventSelector, parse_resource_types
from headrace.surfaces.feeds.hints import FeedHint, HintView, decode_hint
from headrace.surfaces.feeds.names import parse_tenant
from headrace.surfaces.feeds.permissions import READERS, require
from headrace.surfaces.feeds.routes import find
from headrace.web.credentials import Principal


class Silent(msgspec.Struct, frozen=True):
    """The consumer said nothing for too long."""


HintEnding = Ending | Silent | Refused


class TenantConfirmed(msgspec.Struct, frozen=True):
    """From here on there are hints of this tenant, behind this number."""

    tenant: str
    latest: int


class TenantHinted(msgspec.Struct, frozen=True):
    """A hint."""

    tenant: str
    hint: FeedHint


class ServerBeat(msgspec.Struct, frozen=True):
    """The server lives."""


Word = TenantConfirmed | TenantHinted | ServerBeat


class HintStream:
    """From `open` to `end`, or to `close` if the consumer is gone."""

    def __init__(
        self,
        hub: Hub,
        consumers: Consumers,
        principal: Principal,
        node: str,
        wake: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._consumers = consumers
        self._principal = principal
        self._wake = wake
        """Called when there is something to take, or the stream has ended."""
        self._followers = Followers(hub)
        self._replies: deque[TenantConfirmed] = deque()
        self._hints: dict[str, FeedHint] = {}
        self._owes_beat = False
        self._beat_at = self._expires_at = inf
        self.consumer = Consumer(uuid4().hex[:12], principal.id, node, self._now_ms())
        self.heard_at = 0.0
        self.ending: HintEnding | None = None
        self.tick = 0
        """Its slot of the wheel."""

    def open(self) -> None:
        """The consumer is there: its time begins."""
        now = self.heard_at = self._hub.wheel.time()
        self._beat_at = now + FEED_HEARTBEAT_S
        if expires_at_ms := self._principal.expires_at_ms:
            self._expires_at = now + (expires_at_ms - self._now_ms()) / 1000
        self._consumers.add(self)
        self._hub.wheel.schedule(self, self._next_at - now)

    def _now_ms(self) -> int:
        return self._hub.engine.clock.now_ms()

    # --- what the consumer says -------------------------------------------------------------------

    def hear(self) -> None:
        """It said something, whatever that is: it lives."""
        self.heard_at = self._hub.wheel.time()
        self.consumer.heard_at_ms = self._now_ms()

    def subscribe(self, tenant: str, resource_types: Iterable[str]) -> None:
        """It wants hints of a tenant, of these types or all; refuses, or confirms. Once more: what
        it wants now is all that it wants of the tenant.
        """
        require(self._principal, READERS, tenant)
        parse_tenant(tenant)
        types = parse_resource_types(resource_types)
        live = find(self._hub.engine, tenant)
        known = self.consumer.tenants
        if tenant not in known and len(known) >= FEED_CONSUMER_TENANTS_MAX:
            message = f"a stream has at most {FEED_CONSUMER_TENANTS_MAX} tenants"
            raise Refused(Code.THROTTLED, message)
        latest = live.visible
        self._hints.pop(tenant, None)  # the confirmation tells as much
        self._replies.append(TenantConfirmed(tenant, latest))
        view = HintView(EventSelector(EventFilter(resource_types=types)))
        self._followers.add(
            Follower(self, live, view, latest, partial(self._hint, tenant), owes_caught_up=False)
        )
        self._consumers.note(self, tenant, types, self._now_ms())
        self._wake()

    def unsubscribe(self, tenant: str) -> None:
        """It wants no more hints of a tenant; once more changes nothing."""
        if tenant not in self.consumer.tenants:
            return
        for follower in self._followers.named(find(self._hub.engine, tenant).log.name):
            self._followers.remove(follower)
        self._hints.pop(tenant, None)
        self._consumers.forget(self, tenant)

    # --- what it is told --------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so many confirmations wait that nothing more is to be asked."""
        return len(self._replies) >= FEED_CONSUMER_REPLIES_MAX

    def take(self) -> list[Word]:
        """What there is to send, in this order; it is not kept."""
        words: list[Word] = [*self._replies]
        words += [TenantHinted(tenant, hint) for tenant, hint in self._hints.items()]
        if self._owes_beat:
            words.append(ServerBeat())
        self._replies.clear()
        self._hints.clear()
        self._owes_beat = False
        return words

    def _hint(self, tenant: str, data: bytes) -> None:
        hint = decode_hint(data)
        waiting = self._hints.get(tenant)
        self._hints[tenant] = hint if waiting is None else waiting.joined(hint)
        self._wake()

    # --- how it ends ------------------------------------------------------------------------------

    def end(self, ending: HintEnding) -> None:
        """The server ends it; what it was told before is still to be taken."""
        if self.ending is None:
            self.ending = ending
            self.close()
            self._wake()

    def close(self) -> None:
        """Nothing more is followed; once more changes nothing."""
        self._hub.wheel.cancel(self)
        self._followers.close()
        self._consumers.remove(self)

    def on_timer(self, now: float) -> float:
        """Look whether it lives, and say that we do; returns when to look again."""
        if now >= self._expires_at:
            self.end(Expired())
        elif now - self.heard_at >= FEED_CONSUMER_SILENCE_S:
            self.end(Silent())
        if self.ending is not None:
            return 0
        if now >= self._beat_at:
            self._beat_at = now + FEED_HEARTBEAT_S
            self._owes_beat = True
            self._wake()
        return self._next_at - now

    @property
    def _next_at(self) -> float:
        silent_at = self.heard_at + FEED_CONSUMER_SILENCE_S
        return min(self._beat_at, silent_at, self._expires_at)

    # --- what followers say -----------------------------------------------------------------------

    def on_caught_up(self, follower: Follower) -> None:
        """There is nothing to say of that."""

    def on_log_ended(self, follower: Follower) -> None:
        """Feeds are not closed."""

    def on_log_gone(self, follower: Follower) -> None:
        self.end(Refused(Code.NOT_FOUND, f"{follower.live.log.name} was deleted"))

    def on_log_failed(self, follower: Follower) -> None:
        self.end(Refused(Code.INTERNAL, "internal error"))
