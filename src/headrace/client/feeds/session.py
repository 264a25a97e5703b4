"""One feed, followed: when to ask for a page, how, and what to make of it. Without I/O or clock.

Whoever has those calls the methods as things happen, and does what `take_actions` hands out. One
page, or gap, is ready at a time; the next is asked for when the reader is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf

from headrace.client.feeds.actions import (
    BeatWanted,
    FeedAction,
    HintsCancelled,
    HintsWanted,
    PageCancelled,
    PageFetched,
    PageRefused,
    PageWanted,
)
from headrace.client.feeds.items import FeedGap, FeedPage, FeedRefused
from headrace.client.feeds.policy import FollowPolicy

_PASSES = frozenset((408, 425, 429))
"""Refusals below 500 that may be none the next time."""


class _Hints(Enum):
    OFF = "off"
    CONNECTING = "connecting"
    OPEN = "open"
    PAUSING = "pausing"


class FeedSession:
    """Follows one feed from a cursor on."""

    def __init__(
        self, after: int, policy: FollowPolicy, random: Callable[[], float], *, with_hints: bool
    ) -> None:
        self.cursor = after
        """Everything up to here was handed to the reader, who is done with it."""
        self.ready: FeedPage | FeedGap | FeedRefused | None = None
        """For the reader."""
        self.problem = ""
        """Why the last request brought nothing, and is tried again; empty: it did not fail."""
        self._policy = policy
        self._random = random
        self._with_hints = with_hints
        self._actions: list[FeedAction] = []
        self._asked = after
        """Where the next request begins: the cursor, or behind what filters left out."""
        self._latest = 0
        """The highest number that hints told of."""
        self._number = 0
        self._is_fetching = False
        self._fetched_latest = 0
        """What hints had told when the request was made."""
        self._due_at = inf
        """Fetching: when it must have ended; else when to ask."""
        self._has_more = False
        """Whether there was more behind the page that is ready."""
        self._failures = 0
        self._hints = _Hints.OFF
        self._hints_number = 0
        self._hints_until = inf
        self._hints_failures = 0
        self._beat_at = inf

    def take_actions(self) -> list[FeedAction]:
        """What is to be done now, in this order."""
        actions, self._actions = self._actions, []
        return actions

    @property
    def has_hints(self) -> bool:
        """Whether the server tells when to ask."""
        return self._hints is _Hints.OPEN

    def start(self, now: float) -> None:
        if self._with_hints:
            self._connect_hints(now)
        self._fetch(now, wait_s=0)

    # --- the reader -------------------------------------------------------------------------------

    def release(self, now: float) -> None:
        """The reader is done with what was ready, and wants more; a refusal stays."""
        if self.ready is None or isinstance(self.ready, FeedRefused):
            return
        self.cursor = self._asked = self.ready.cursor
        has_more = self._has_more or isinstance(self.ready, FeedGap)
        self.ready = None
        self._go_on(now, has_more)

    # --- pages ------------------------------------------------------------------------------------

    def _fetch(self, now: float, wait_s: int) -> None:
        self._number += 1
        self._is_fetching = True
        self._fetched_latest = self._latest
        self._due_at = now + self._policy.fetch_s + wait_s
        self._actions.append(PageWanted(self._number, self._asked, wait_s))

    def fetched(self, number: int, reply: PageFetched | PageRefused, now: float) -> None:
        """A request ended."""
        if number != self._number or not self._is_fetching:
            return
        self._is_fetching = False
        self._due_at = inf
        self.problem = ""
        if isinstance(reply, PageFetched):
            self._take(reply, now)
        elif reply.status == 410 and reply.earliest - 1 > self._asked:
            self._failures = 0
            self.ready = FeedGap(self._asked, reply.earliest)
        elif reply.status == 404:
            self.problem = reply.problem
            self._due_at = now + self._policy.unknown_s  # a tenant is there from its first event on
        elif 300 <= reply.status < 500 and reply.status not in _PASSES:
            self.ready = FeedRefused(reply.status, reply.code, reply.message)
        else:
            self.problem = reply.problem
            self._failures += 1
            pause_s = self._policy.pause(self._failures, self._random)
            self._due_at = now + max(pause_s, reply.retry_after_s)

    def _take(self, page: PageFetched, now: float) -> None:
        self._failures = 0
        if page.events:
            self._has_more = page.has_more
            self.ready = FeedPage(page.events, page.cursor)
            return
        moved = page.cursor > self._asked
        self._asked = max(self._asked, page.cursor)
        if self._latest <= self._fetched_latest:
            self._latest = 0  # the log was asked behind that hint, and knows better
        self._go_on(now, page.has_more and moved)

    def _go_on(self, now: float, has_more: bool) -> None:
        """Ask at once if there is something, else when we are told, or wait at the server."""
        if has_more or self._latest > self._asked:
            self._fetch(now, wait_s=0)
        elif self.has_hints or not self._policy.wait_s:
            self._due_at = now + self._policy.poll_s
        else:
            self._fetch(now, wait_s=self._policy.wait_s)

    # --- hints ------------------------------------------------------------------------------------

    def _connect_hints(self, now: float) -> None:
        self._hints_number += 1
        self._hints = _Hints.CONNECTING
        self._hints_until = now + self._policy.connect_s
        self._actions.append(HintsWanted(self._hints_number))

    def hints_confirmed(self, number: int, latest: int, now: float) -> None:
        """From here on the server tells; it has told how far it is."""
        if number == self._hints_number and self._hints is _Hints.CONNECTING:
            self._hints = _Hints.OPEN
            self._hints_failures = 0
            self._beat_at = now + self._policy.heartbeat_s
            self.hinted(number, latest, now)

    def hinted(self, number: int, latest: int, now: float) -> None:
        """There are events up to this number."""
        self.hints_alive(number, now)
        if number != self._hints_number or self._hints is not _Hints.OPEN:
            return
        self._latest = max(self._latest, latest)
        waits = self.ready is None and not self._is_fetching and not self._failures
        if waits and self._latest > self._asked:
            self._fetch(now, wait_s=0)

    def hints_alive(self, number: int, now: float) -> None:
        """The server said something."""
        if number == self._hints_number and self._hints is _Hints.OPEN:
            self._hints_until = now + self._policy.silence_s

    def hints_ended(self, number: int, now: float) -> None:
        """There are no hints, or no more: until there are, we ask by ourselves."""
        if number != self._hints_number or self._hints in (_Hints.OFF, _Hints.PAUSING):
            return
        was_open = self.has_hints
        self._hints = _Hints.PAUSING
        self._hints_failures += 1
        self._hints_until = now + self._policy.pause(self._hints_failures, self._random)
        self._beat_at = inf
        if was_open and self.ready is None and not self._is_fetching and not self._failures:
            self._fetch(now, wait_s=0)  # something may have come that nobody told us

    # --- time -------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When `tick` has something to do, if nothing happens before."""
        at = min(self._due_at, self._hints_until, self._beat_at)
        return at if at < inf else None

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now >= self._due_at:
            if self._is_fetching:
                self._actions.append(PageCancelled(self._number))
                self.fetched(self._number, PageRefused(0, message="no answer"), now)
            else:
                self._fetch(now, wait_s=0)
        if now >= self._hints_until:
            if self._hints is _Hints.PAUSING:
                self._connect_hints(now)
            else:
                self._actions.append(HintsCancelled(self._hints_number))
                self.hints_ended(self._hints_number, now)
        if now >= self._beat_at:
            self._beat_at = now + self._policy.heartbeat_s
            self._actions.append(BeatWanted(self._hints_number))
