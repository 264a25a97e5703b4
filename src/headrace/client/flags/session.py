"""One group: a stream of events and the namespaces it tells of. Without I/O, clock or threads.

Whoever has those calls the methods as things happen, and does what `take_actions` hands out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from headrace.client.flags.actions import (
    Action,
    ReconnectWanted,
    SnapshotReply,
    StreamCancelled,
    StreamRefusal,
    StreamWanted,
    TreePublished,
)
from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.announcements import (
    UnknownProtocol,
    UnreadableEvent,
    parse_announcement,
)
from headrace.client.flags.event_parser import EventParser, OversizedEvent, StreamedEvent
from headrace.client.flags.mirror import NamespaceMirror, NamespaceSubscription
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.problems import RefreshCheck, RefreshError
from headrace.client.flags.trees import FlagTree

_PASSES = frozenset((408, 425, 429))
"""Refusals below 500 that may be none the next time."""


class _Phase(Enum):
    IDLE = "idle"
    """Not begun, ended, or nothing is left to follow."""
    CONNECTING = "connecting"
    OPEN = "open"
    PAUSING = "pausing"
    """Until it is time to connect again."""


class GroupSession:
    """Keeps the stream open and the mirrors of all namespaces going."""

    def __init__(
        self,
        server: ServerAddress,
        subscriptions: Sequence[NamespaceSubscription],
        policy: RefreshPolicy,
        random: Callable[[], float],
        headers: Mapping[str, str],
    ) -> None:
        self._server = server
        self._policy = policy
        self._random = random
        self._headers = dict(headers)
        self._actions: list[Action] = []
        self._reconnects: list[ReconnectWanted] = []
        self.mirrors = {
            each.name: NamespaceMirror(each, server, policy, random, self._note, self._headers)
            for each in subscriptions
        }
        self._by_slug = {mirror.subscription.slug: mirror for mirror in self.mirrors.values()}
        self._phase = _Phase.IDLE
        self._number = 0
        """Of the connection; of those before it, nothing is heard any more."""
        self._phase_until = 0.0
        """Connecting: when it must have succeeded; open: when it is dead; pausing: its end."""
        self._opened_at = 0.0
        self._parser = EventParser()
        self._failures = 0
        self._unknown: dict[str, float] = {}
        """Namespaces that the server does not know, and when it is asked again."""
        self._last_event_id = ""

    def take_actions(self) -> list[Action]:
        """What is to be done now, in this order."""
        actions, self._actions = self._actions, []
        return actions

    def _note(self, action: Action) -> None:
        if isinstance(action, ReconnectWanted):
            self._reconnects.append(action)
            return
        if isinstance(action, TreePublished):
            slug = self.mirrors[action.namespace].subscription.slug
            self._last_event_id = f"{slug}:{action.tree.version}"
        self._actions.append(action)

    # --- the stream -------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        self._connect(now)

    def stop(self) -> None:
        """Nothing more is wanted; trees stay as they are."""
        self._phase = _Phase.IDLE
        self._number += 1

    def _connect(self, now: float) -> None:
        wanted = {
            name: mirror.subscription.flags
            for name, mirror in self.mirrors.items()
            if not mirror.is_fatal and name not in self._unknown
        }
        if not wanted:
            self._phase = _Phase.IDLE
            return
        since = {
            mirror.subscription.slug: mirror.tree.version
            for name, mirror in self.mirrors.items()
            if name in wanted and mirror.tree is not None
        }
        headers = {**self._headers, "accept": "text/event-stream", "cache-control": "no-cache"}
        if self._last_event_id:
            headers["last-event-id"] = self._last_event_id
        self._number += 1
        self._phase = _Phase.CONNECTING
        self._phase_until = now + self._policy.connect_s
        target = self._server.events_target(wanted, since)
        self._actions.append(StreamWanted(self._number, target, headers))

    def stream_began(self, number: int, now: float) -> None:
        """The server has answered with a stream."""
        if number != self._number or self._phase is not _Phase.CONNECTING:
            return
        self._phase = _Phase.OPEN
        self._opened_at = now
        self._phase_until = now + self._policy.silence_s
        self._parser = EventParser()
        for name, mirror in self.mirrors.items():
            if name not in self._unknown:
                mirror.stream_began()

    def stream_refused(self, number: int, refusal: StreamRefusal, now: float) -> None:
        """The server has answered with something else."""
        if number != self._number or self._phase is not _Phase.CONNECTING:
            return
        said = refusal.message or refusal.code or "no stream"
        error = RefreshError(
            RefreshCheck.CONNECTION,
            f"the server answered {refusal.status}: {said}",
            status=refusal.status,
            code=refusal.code,
        )
        if self._leave_out_unknown(refusal, error, now):
            self._connect(now)
            return
        stays = 300 <= refusal.status < 500 and refusal.status not in _PASSES
        pause_s = self._policy.pause_s_max / 2 if stays else refusal.retry_after_s
        self._lose(error, now, stays=stays, pause_s=pause_s)

    def _leave_out_unknown(self, refusal: StreamRefusal, error: RefreshError, now: float) -> bool:
        """One namespace that does not exist must not keep the others from being followed."""
        slug = refusal.details.get("namespace")
        mirror = self._by_slug.get(slug) if isinstance(slug, str) else None
        if refusal.details.get("reason") != "unknown_namespace" or mirror is None:
            return False
        name = mirror.subscription.name
        if name in self._unknown or len(self._unknown) + 1 >= len(self.mirrors):
            return False
        self._unknown[name] = now + self._policy.readmit_s
        mirror.stream_ended(error, now, stays=True)
        return True

    def stream_received(self, number: int, data: bytes, now: float) -> None:
        """Bytes of the stream came: any of them show that it lives."""
        if number != self._number or self._phase is not _Phase.OPEN:
            return
        self._phase_until = now + self._policy.silence_s
        try:
            for event in self._parser.feed(data):
                self._dispatch(event, now)
        except (OversizedEvent, UnreadableEvent) as error:
            self._abandon(RefreshError(RefreshCheck.EVENT, str(error)), now)
        self._heed_reconnects(now)

    def _dispatch(self, event: StreamedEvent, now: float) -> None:
        try:
            found = parse_announcement(event)
        except UnknownProtocol as error:
            if mirror := self._by_slug.get(error.namespace or ""):
                mirror.refuse(RefreshError(RefreshCheck.PROTOCOL, error.message), now)
            return
        if found is not None and (mirror := self._by_slug.get(found[0])):
            mirror.receive(found[1], now)

    def stream_ended(self, number: int, problem: str, now: float) -> None:
        """The connection is gone, or never came to be."""
        if number == self._number and self._phase in (_Phase.CONNECTING, _Phase.OPEN):
            self._lose(RefreshError(RefreshCheck.CONNECTION, problem), now)

    def _abandon(self, error: RefreshError, now: float) -> None:
        """Give up the connection that there is."""
        self._actions.append(StreamCancelled(self._number))
        self._lose(error, now)

    def _lose(
        self, error: RefreshError, now: float, *, stays: bool = False, pause_s: float = 0.0
    ) -> None:
        """No connection: tell all namespaces, and when to try again."""
        if self._phase is _Phase.OPEN and now - self._opened_at >= self._policy.stable_s:
            self._failures = 0
        self._failures += 1
        pause_s = max(pause_s, self._parser.retry_s)
        pause_s = max(pause_s, self._policy.pause(self._failures, self._random))
        self._phase = _Phase.PAUSING
        self._phase_until = now + pause_s
        for name, mirror in self.mirrors.items():
            if name not in self._unknown:
                mirror.stream_ended(error, now, stays=stays)
        self._reconnects.clear()

    def _heed_reconnects(self, now: float) -> None:
        """Open the stream anew for those who need it; without one, a new one comes anyway."""
        wanted, self._reconnects = self._reconnects, []
        if wanted and self._phase is _Phase.OPEN:
            self._abandon(wanted[0].error, now)

    # --- snapshots --------------------------------------------------------------------------------

    def fetched(
        self, namespace: str, number: int, reply: SnapshotReply | RefreshError, now: float
    ) -> None:
        """A request for a snapshot ended."""
        self.mirrors[namespace].fetched(number, reply, now)
        self._heed_reconnects(now)

    def verified(
        self, namespace: str, number: int, result: FlagTree | RefreshError, now: float
    ) -> None:
        """A tree was looked at."""
        self.mirrors[namespace].verified(number, result, now)
        self._heed_reconnects(now)

    # --- time -------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When `tick` has something to do, if nothing happens before."""
        times = [mirror.wake_at for mirror in self.mirrors.values()]
        times.extend(self._unknown.values())
        if self._phase is not _Phase.IDLE:
            times.append(self._phase_until)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._readmit(now)
        if now >= self._phase_until:
            match self._phase:
                case _Phase.CONNECTING:
                    problem = f"no stream in {self._policy.connect_s:g} s"
                    self._abandon(RefreshError(RefreshCheck.CONNECTION, problem), now)
                case _Phase.OPEN:
                    problem = f"the stream was silent for {self._policy.silence_s:g} s"
                    self._abandon(RefreshError(RefreshCheck.CONNECTION, problem), now)
                case _Phase.PAUSING:
                    self._connect(now)
        for mirror in self.mirrors.values():
            mirror.tick(now)
        self._heed_reconnects(now)

    def _readmit(self, now: float) -> None:
        """Ask again for namespaces that were unknown, with all others on one new stream."""
        due = [name for name, at in self._unknown.items() if now >= at]
        if not due:
            return
        if self._phase is _Phase.CONNECTING:  # without them; it will have ended one way or another
            for name in due:
                self._unknown[name] = self._phase_until
            return
        for name in due:
            del self._unknown[name]
        if self._phase is _Phase.OPEN:
            self._actions.append(StreamCancelled(self._number))
            for mirror in self.mirrors.values():
                mirror.stream_paused()
        if self._phase is not _Phase.PAUSING:
            self._connect(now)
