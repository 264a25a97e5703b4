"""Streams of changes: one connection and the namespaces that it follows.

That a namespace has a new version comes from the shared following of its log. What is then told of
it depends on what the connection has already, and is made for all who have the same: `deliveries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headrace.core.owners import FLAGS
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, Expired
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK, EventStream
from headrace.engine.open_log import OpenLog
from headrace.flags.subscription import FlagSet
from headrace.surfaces.flags.events import KEEPALIVE, VERSIONS, Delivered, SnapshotLink
from headrace.surfaces.flags.names import log_of
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.web.concurrency import Slot
from headrace.web.credentials import Principal

if TYPE_CHECKING:
    from headrace.surfaces.flags.deliveries import Deliveries


class FlagStreamRules(msgspec.Struct, frozen=True):
    """How streams of changes behave."""

    keepalive_s: float
    idle_s: float
    """A connection that was told of nothing for so long is closed."""


class FlagStreamPlan(msgspec.Struct, frozen=True):
    """What a stream delivers, and to whom."""

    principal: Principal
    tenant: str
    namespaces: Mapping[str, FlagSet]
    base_url: str
    """Where the client finds the server."""
    rules: FlagStreamRules


class FollowedNamespace:
    """One namespace on one connection: what is wanted of it, and what was delivered."""

    __slots__ = (
        "delivered",
        "is_behind",
        "link",
        "live",
        "log_name",
        "sent_inline",
        "stream",
    )

    def __init__(self, stream: FlagStream, link: SnapshotLink) -> None:
        self.stream = stream
        self.link = link
        self.log_name = log_of(link.tenant, link.namespace)
        self.live: OpenLog | None = None
        """None while the namespace is deleted."""
        self.delivered: Delivered | None = None
        self.sent_inline = False
        """Whether a delta went out, so that the client has state to abandon."""
        self.is_behind = False
        """Whether something was to be told while the connection was blocked."""

    def note_new(self, live: OpenLog) -> None:
        """A log was made whose name begins like that of the namespace."""
        if live.log.name == self.log_name:
            self.stream.on_made_again(self)


class FlagStream(EventStream):
    """One connection that is told of new versions."""

    __slots__ = ("_deliveries", "_idle_since", "_metrics", "_slot", "namespaces", "plan")

    def __init__(
        self,
        hub: Hub,
        plan: FlagStreamPlan,
        deliveries: Deliveries,
        metrics: StreamMetrics,
        slot: Slot,
    ) -> None:
        super().__init__(hub, plan.rules.keepalive_s)
        self.plan = plan
        self.namespaces = [
            FollowedNamespace(
                self, SnapshotLink(plan.base_url, plan.principal.id, plan.tenant, slug, flags)
            )
            for slug, flags in plan.namespaces.items()
        ]
        self._deliveries = deliveries
        self._metrics = metrics
        self._slot = slot
        """One of those that a principal may have; freed at the end."""
        self._idle_since = 0.0

    # --- what goes out ----------------------------------------------------------------------------

    def preamble(self) -> bytes:
        """Nothing: the first event of each namespace says where it is."""
        return b""

    def heartbeat(self) -> bytes:
        return self.wrap(KEEPALIVE)

    @property
    def busy_at(self) -> float:
        """When bytes were last sent: not every new version is told to everybody."""
        return self.sent_at

    def closing_frame(self, ending: Ending) -> bytes:
        """No word: clients come back, and get a snapshot first."""
        return LAST_CHUNK if self.chunked else b""

    def tell(self, wrapped: bytes) -> None:
        """Send an event, as it goes over the wire here."""
        self.write(wrapped)
        self._idle_since = self.sent_at

    # --- the connection ---------------------------------------------------------------------------

    def on_open(self) -> None:
        self._metrics.opened()
        self._idle_since = self._wheel.time()
        for each in self.namespaces:
            self._follow(each)

    def on_timer(self, now: float) -> float:
        idle_left_s = self._idle_since + self.plan.rules.idle_s - now
        if not self.closed and idle_left_s <= 0:
            self.end(Expired())
            return 0
        return min(super().on_timer(now), max(idle_left_s, 0))

    def on_writable(self) -> None:
        super().on_writable()
        for each in self.namespaces:
            if each.is_behind:
                each.is_behind = False
                self._ask(each)

    def on_end(self) -> None:
        for each in self.namespaces:
            self._hub.unwatch_names(each.log_name, each.note_new)
        self._metrics.closed()
        self._slot.free()
        super().on_end()
        self.namespaces = []  # they name us, and we them

    # --- namespaces -------------------------------------------------------------------------------

    def _follow(self, each: FollowedNamespace) -> None:
        """Follow a namespace from its newest version on, or wait until it is there again."""
        engine = self._hub.engine
        log = engine.state.by_name.get(each.log_name)
        if log is None or log.owner != FLAGS:
            self._hub.watch_names(each.log_name, each.note_new)
            return
        live = each.live = engine.open_logs[log.id]
        note = partial(self._note, each)
        self.followers.add(Follower(self, live, VERSIONS, live.visible, note, owes_caught_up=False))
        if live.visible:
            self._ask(each)

    def on_made_again(self, each: FollowedNamespace) -> None:
        """A namespace that was deleted is there again."""
        self._hub.unwatch_names(each.log_name, each.note_new)
        self._follow(each)

    def on_log_gone(self, follower: Follower) -> None:
        """The namespace was deleted: the connection stays, should it be made again."""
        self.followers.remove(follower)
        for each in self.namespaces:
            if each.live is follower.live:
                each.live = None
                self._follow(each)

    def _note(self, each: FollowedNamespace, marker: bytes) -> None:
        self._ask(each)

    def _ask(self, each: FollowedNamespace) -> None:
        if not self.closed:
            self._deliveries.ask(self._hub, each)
