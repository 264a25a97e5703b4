"""Watch sessions: what to watch and how far it was delivered, kept between streams."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import FORMER_TOPICS_MAX
from headrace.delivery.endings import Ending
from headrace.surfaces.topics.cursors import Composite, CursorHistory, format_label, parse_label
from headrace.surfaces.topics.events import TopicView
from headrace.web.concurrency import Slot, Slots
from headrace.web.credentials import Principal

_WID_BYTES = 16
_TAG_BYTES = 3


class WatchPosition(msgspec.Struct):
    """Where a session stands in one topic."""

    after: int
    epoch: int
    view: TopicView
    listed: bool
    """Whether the topic was asked for by its name, not by a prefix."""
    first: bool
    """Whether the session never watched another topic of this name before."""
    start: int
    start_epoch: int
    """Where and in which instance of the topic it began."""
    head: int
    """The last head of the topic that it knows of."""

    def label(self, topic: str, epoch: int) -> str:
        """What an instance of the topic goes by in ids."""
        return format_label(topic, None if self.first and epoch == self.start_epoch else epoch)

    def go_back(self, seq: int, epoch: int) -> None:
        """Stand there again, unless that would be forward; the epochs of a name ascend."""
        if epoch < self.epoch:
            self.after, self.epoch = seq, epoch
        elif epoch == self.epoch:
            self.after = min(self.after, seq)

    def start_over(self) -> None:
        self.go_back(self.start, self.start_epoch)


def begin(
    after: int,
    epoch: int,
    view: TopicView,
    *,
    listed: bool = False,
    first: bool = True,
    head: int = 0,
) -> WatchPosition:
    return WatchPosition(after, epoch, view, listed, first, after, epoch, head)


class Prefix(msgspec.Struct, frozen=True):
    """Topics to come are watched if their names begin like this."""

    prefix: str
    view: TopicView


class Streaming(Protocol):
    """The open stream of a session."""

    def end(self, ending: Ending) -> None: ...


class Session:
    """One subscription, and how far it was delivered."""

    __slots__ = (
        "_former",
        "cursor_history",
        "heartbeat_s",
        "idle_since",
        "places",
        "prefixes",
        "principal",
        "slot",
        "stream",
        "wid",
    )

    def __init__(
        self,
        principal: Principal,
        places: dict[str, WatchPosition],
        prefixes: Iterable[Prefix],
        heartbeat_s: float,
    ) -> None:
        self.wid = "wid_" + secrets.token_urlsafe(_WID_BYTES)
        self.principal = principal
        self.places = places
        self.prefixes = tuple(prefixes)
        self.heartbeat_s = heartbeat_s
        self.cursor_history = CursorHistory(secrets.token_hex(_TAG_BYTES))
        self.stream: Streaming | None = None
        self.slot: Slot | None = None
        self.idle_since = 0.0
        self._former: set[str] = set()
        """Names of topics that are gone; cursors may still tell of them."""

    def add(self, topic: str, epoch: int, view: TopicView) -> WatchPosition:
        """A topic that a prefix brings is watched from its first record on."""
        first = topic not in self._former and len(self._former) < FORMER_TOPICS_MAX
        place = self.places[topic] = begin(0, epoch, view, first=first)
        return place

    def remove(self, topic: str) -> None:
        del self.places[topic]
        if len(self._former) < FORMER_TOPICS_MAX:
            self._former.add(topic)

    @property
    def solo(self) -> bool:
        """Whether this is about one topic only, for ever."""
        return len(self.places) == 1 and not self.prefixes

    def rewind(self, cursor: Composite) -> None:
        """Go back to where this cursor was made; never forward."""
        if self.cursor_history.is_foreign(cursor):
            return  # its seqs belong to topics we do not know
        resolved = self.cursor_history.resolve(cursor)
        known = {parse_label(label): seq for label, seq in (resolved or {}).items()}
        seqs = {topic: (seq, epoch) for (topic, epoch), seq in known.items()}
        for topic, place in self.places.items():
            seq, epoch = seqs.get(topic, (0, None))
            if epoch is None and place.first:
                epoch = place.start_epoch
            if topic in seqs and epoch is not None:
                place.go_back(seq, epoch)
            elif resolved is None or not place.listed:
                place.start_over()  # the cursor is older than all we remember, or than this topic


class Sessions:
    """The sessions of one server. Those without a stream for too long are let go."""

    def __init__(self, slots: Slots, ttl_ms: int, time: Callable[[], float]) -> None:
        self.ttl_ms = ttl_ms
        self._slots = slots
        self._time = time
        self._sessions: dict[str, Session] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def check_room(self, principal: Principal) -> None:
        """Refuse one more when there are too many, in all or of this key."""
        self.sweep()
        self._slots.check(principal)

    def add(self, session: Session) -> None:
        """Keep a session, or refuse."""
        self.sweep()
        session.slot = self._slots.take(session.principal)
        self._sessions[session.wid] = session
        self.rest(session)

    def find(self, wid: str) -> Session:
        self.sweep()
        session = self._sessions.get(wid)
        if session is None:
            raise Refused(Code.NOT_FOUND, "there is no such watch session; make a new one")
        return session

    def rest(self, session: Session) -> None:
        """The session has no stream now."""
        session.idle_since = self._time()
        self._idle[session.wid] = None
        self._idle.move_to_end(session.wid)

    def wake(self, session: Session) -> None:
        """The session has a stream: it stays."""
        self._idle.pop(session.wid, None)

    def sweep(self) -> None:
        """Let go of sessions that were idle for too long; they are in the order they fell idle."""
        due = self._time() - self.ttl_ms / 1000
        while self._idle:
            wid = next(iter(self._idle))
            if self._sessions[wid].idle_since > due:
                return
            del self._idle[wid]
            session = self._sessions.pop(wid)
            assert session.slot is not None
            session.slot.free()
