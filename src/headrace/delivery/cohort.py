"""Followers of a log at the same position with the same view: read once, encoded once.

A follower that lags is a cohort of its own. Once it has caught up it joins the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.core.limits import COHORT_MAX
from headrace.core.read import Gap, Loss, Page
from headrace.delivery.events import CaughtUp, Ended, Event, Gone, Lost, Records, View
from headrace.engine.open_log import OpenLog


class Owner(Protocol):
    """The connection a follower belongs to."""

    def on_caught_up(self, follower: Follower) -> None:
        """It was to hear when it has got everything there is, and has been told."""

    def on_log_ended(self, follower: Follower) -> None:
        """The log was closed, and the follower has got all of it."""

    def on_log_gone(self, follower: Follower) -> None:
        """The log was deleted, and the follower has been told."""

    def on_log_failed(self, follower: Follower) -> None:
        """The log cannot be read."""


class Follower:
    """One log on one connection: what it wants, how far it is, where its events go."""

    __slots__ = (
        "_after",
        "_reported",
        "cohort",
        "epoch",
        "fresh",
        "live",
        "over",
        "owes_caught_up",
        "owner",
        "sent_at",
        "view",
        "write",
    )

    def __init__(
        self,
        owner: Owner,
        live: OpenLog,
        view: View,
        after: int,
        write: Callable[[bytes], None],
        *,
        epoch: int | None = None,
        owes_caught_up: bool = True,
    ) -> None:
        self.owner = owner
        self.live = live
        self.view = view
        self.write = write
        """Takes encoded events; the position is behind them already."""
        self.epoch = epoch
        """Which instance of the log `after` belongs to, if that is known."""
        self.owes_caught_up = owes_caught_up
        """Whether it is to hear when it has caught up, even if there was nothing to deliver."""
        self.fresh = True
        """Nothing was read yet: a loss on the way came before its time."""
        self.over = False
        """Its connection wants nothing more of it."""
        self.sent_at = 0.0
        """When it last got something, before it came into its cohort."""
        self.cohort: Cohort | None = None
        self._after = after
        self._reported = after

    @property
    def position(self) -> int:
        """It has got everything up to this seq."""
        return self._after if self.cohort is None else self.cohort.position

    @property
    def reported(self) -> int:
        """The position that its last event said."""
        return self._reported if self.cohort is None else self.cohort.reported

    @property
    def busy_at(self) -> float:
        """When it last got something, by the loop's clock."""
        return self.sent_at if self.cohort is None else max(self.sent_at, self.cohort.sent_at)

    def enter(self, cohort: Cohort) -> None:
        self.sent_at = self.busy_at
        self.cohort = cohort

    def leave(self) -> None:
        """Out of the cohort; what it is to get and to hear stays."""
        cohort = self.cohort
        if cohort is not None:
            self._after, self._reported = cohort.position, cohort.reported
            self.fresh, self.epoch = cohort.fresh, cohort.epoch
            self.owes_caught_up = cohort.owes_caught_up
            self.sent_at = self.busy_at
            self.cohort = None
            cohort.remove(self)


class CohortHost(Protocol):
    """What a cohort needs of the channel it is in."""

    live: OpenLog
    time: Callable[[], float]

    @property
    def idle_position(self) -> int:
        """Where all idle cohorts are."""

    def encode(self, view: View, event: Event, position: int) -> bytes: ...
    def remind(self, cohort: Cohort) -> None: ...
    def discard(self, cohort: Cohort) -> None: ...
    def upto(self, view: View) -> int: ...


class Cohort:
    """Goes through a log page by page, for all its followers at once."""

    __slots__ = (
        "_host",
        "_position",
        "busy",
        "ended",
        "epoch",
        "followers",
        "fresh",
        "idle",
        "owes_caught_up",
        "queued",
        "reported",
        "sent_at",
        "tick",
        "view",
    )

    def __init__(self, host: CohortHost, follower: Follower) -> None:
        self._host = host
        self.view = follower.view
        self._position = follower.position
        self.reported = follower.reported
        self.epoch = follower.epoch
        self.fresh = follower.fresh
        self.owes_caught_up = follower.owes_caught_up
        self.busy = False
        """Waits for a page."""
        self.idle = False
        """At rest, and found by an index when there is something for it."""
        self.ended = False
        """Was told that nothing more will come."""
        self.queued = False
        """Lined up for a step."""
        self.sent_at = 0.0
        self.tick = 0
        self.followers: dict[Follower, None] = {follower: None}
        follower.enter(self)

    def __len__(self) -> int:
        return len(self.followers)

    @property
    def position(self) -> int:
        """All its followers have got everything up to this seq."""
        return self._host.idle_position if self.idle else self._position

    @position.setter
    def position(self, seq: int) -> None:
        self._position = seq

    def remove(self, follower: Follower) -> None:
        del self.followers[follower]
        if not self.followers:
            self._host.discard(self)

    @property
    def at_rest(self) -> bool:
        """Whether it has caught up and has said all there is to say."""
        return not (self.busy or self.owes_caught_up or self.fresh)

    def suits(self, other: Cohort) -> bool:
        """Whether the other one, which is at rest, can be taken in."""
        return (
            self.at_rest
            and (self.position, self.reported) == (other.position, other.reported)
            and len(self) + len(other) <= COHORT_MAX
        )

    def absorb(self, other: Cohort) -> None:
        for follower in other.followers:
            follower.enter(self)
        self.followers.update(other.followers)
        other.followers.clear()

    @property
    def stale(self) -> bool:
        """Whether the position is one of another log, as far as one can see."""
        return self.position > self._host.live.visible or self._foreign

    @property
    def _foreign(self) -> bool:
        """Whether the position is one of another log for certain."""
        return self.epoch not in (None, self._host.live.log.id)

    def take(self, page: Page, records: Records | None = None) -> None:
        """Deliver a page that was read at our position."""
        if page.gap is not None:
            self._lose(page.gap, page)
            return
        self.position = page.next
        self.fresh, self.epoch = False, None
        if page.next < page.head:
            self.owes_caught_up = True  # this takes more than one batch: say when it is over
        if page.slices:
            self.tell(records or Records(self.reported, page))
        elif self.reported < self.position:
            self._host.remind(self)

    def _lose(self, gap: Gap, page: Page) -> None:
        """Say what is missing, and go on behind it with the next page."""
        anew = gap.reason is Loss.RECREATED
        self.position = page.earliest - 1 if anew else gap.last
        late, self.fresh, self.epoch, self.owes_caught_up = self.fresh, False, None, True
        self.tell(Lost(gap, page.earliest, page.head, late))

    def catch_up(self, head: int) -> None:
        """There is nothing more for now: those who are to hear of it do."""
        self.fresh, self.epoch = False, None
        if self.owes_caught_up:
            self.owes_caught_up = False
            for follower in self.tell(CaughtUp(head)):
                follower.owner.on_caught_up(follower)

    def end(self, head: int) -> None:
        """Nothing more will come: the log is closed."""
        if not self.ended:
            self.ended = True
            for follower in self.tell(Ended(head)):
                follower.owner.on_log_ended(follower)

    def drop(self, gone: Gone) -> None:
        """The log was deleted."""
        if self._foreign:
            self.position = 0  # it went before anything of it was read
        self.epoch = None
        for follower in self.tell(gone):
            follower.leave()
            follower.owner.on_log_gone(follower)

    def tell(self, event: Event) -> tuple[Follower, ...]:
        """Write an event that says our position to every follower; returns all of them."""
        self.reported = self.position
        return self.say(event)

    def say(self, event: Event) -> tuple[Follower, ...]:
        """Write an event to every follower; whoever is blocked by that leaves, and has got it."""
        host, followers = self._host, tuple(self.followers)
        if frame := host.encode(self.view, event, self.position):
            self.sent_at = host.time()
            for follower in followers:
                follower.write(frame)
        return followers

    def on_timer(self, now: float) -> float:
        """Only records that nobody here wants came by: tell how far, from time to time."""
        if self.reported != self.position:
            if not self.at_rest or self.position != self._host.upto(self.view):
                return self.view.heartbeat_s
            self.tell(CaughtUp(self.position))
        return self.view.heartbeat_s if self.idle else 0
