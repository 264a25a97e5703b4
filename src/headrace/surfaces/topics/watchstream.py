"""The open stream of a watch session: its topics as server-sent events."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from headrace.delivery import sse
from headrace.delivery.channel import when_durable
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Over
from headrace.delivery.events import CaughtUp, Ended, Event, Gone, Held, Lost, Records
from headrace.delivery.hub import Hub
from headrace.delivery.sse import EventStream
from headrace.engine.open_log import OpenLog
from headrace.surfaces.topics.cursors import encode_map, encode_member
from headrace.surfaces.topics.events import TopicView, render_event
from headrace.surfaces.topics.following import matching, may_follow
from headrace.surfaces.topics.sessions import Prefix, Session, Sessions, WatchPosition

_NAMES: dict[type, bytes] = {
    Records: b"record",
    Lost: b"tombstone",
    CaughtUp: b"caught-up",
    Gone: b"topic-deleted",
    Held: b"error",
}
_HELD = b'"code":429,"error":"the server is hard pressed: this topic has to wait",'


class EventView(TopicView, frozen=True, kw_only=True):
    """A view of a topic as server-sent events."""

    heartbeat_s: float
    chunked: bool
    label: str | None
    """What the only topic of a stream goes by in ids: these are then the same for all.

    None when a stream has several topics and adds its own ids.
    """

    def encode(self, name: str, event: Event, position: int) -> bytes:
        if isinstance(event, Ended):
            return b""  # a topic has no end before it is deleted
        inside = render_event(name, event, self)
        if isinstance(event, Held):
            inside = _HELD + inside
        frame = sse.event(_NAMES[type(event)], b"{%b}" % inside)
        if self.label is None:
            return frame
        frame = b"id: %b\n%b" % (encode_map((encode_member(self.label, position),)), frame)
        return sse.chunk(frame) if self.chunked else frame


class WatchStream(EventStream):
    """Follows the topics of a session and gives it back its places at the end."""

    __slots__ = (
        "_leaving",
        "_opening",
        "_session",
        "_sessions",
        "_topics_max",
        "_watched",
    )

    def __init__(self, hub: Hub, session: Session, sessions: Sessions, topics_max: int) -> None:
        super().__init__(hub, session.heartbeat_s)
        self._session = session
        self._sessions = sessions
        self._topics_max = topics_max
        self._watched: list[tuple[str, Any]] = []
        """Prefixes for which we hear of new topics."""
        self._opening = True
        self._leaving: set[str] = set()
        """Topics that are gone, which is to be said once it is certain."""

    # --- the connection ---------------------------------------------------------------------------

    def on_open(self) -> None:
        session = self._session
        session.stream = self
        self._sessions.wake(session)
        places = session.places.items()
        session.cursor_history.restart({p.label(topic, p.epoch): p.after for topic, p in places})
        for topic, place in tuple(session.places.items()):
            self._open_place(topic, place)
        for prefix in session.prefixes:
            self._open_prefix(prefix)
        self._opening = False
        self._end_if_over()

    def on_end(self) -> None:
        for prefix, note in self._watched:
            self._hub.unwatch_names(prefix, note)
        self._watched.clear()
        for follower in self.followers:
            self.followers.remove(follower)
            self._keep(follower)
        session = self._session
        if session.stream is self:
            session.stream = None
            self._sessions.rest(session)

    # --- topics -----------------------------------------------------------------------------------

    def _open_place(self, topic: str, place: WatchPosition) -> None:
        engine = self._hub.engine
        live = engine.open_logs.get(place.epoch)
        if live is None and (log := engine.state.by_name.get(topic)):
            live = engine.open_logs[log.id]
        if live is not None:
            self._follow(live, place)
            return
        self._leaving.add(topic)
        when_durable(engine, partial(self._say_gone, topic, place))

    def _say_gone(self, topic: str, place: WatchPosition) -> None:
        """A topic was deleted while there was no stream."""
        if self.closed:
            return
        self._leaving.remove(topic)
        view = self._view(topic, place, place.epoch)
        self._put(view.encode(topic, Gone(max(place.head, place.after)), place.after))
        self._forget(topic, place.epoch)

    def _open_prefix(self, prefix: Prefix) -> None:
        note = partial(self._note_new, prefix)
        self._watched.append((prefix.prefix, note))
        self._hub.watch_names(prefix.prefix, note)
        for live in matching(self._hub.engine, prefix.prefix, self._session.principal):
            self._note_new(prefix, live)

    def _note_new(self, prefix: Prefix, live: OpenLog) -> None:
        """A topic came into being: its records are watched from the first on."""
        topic, places = live.log.name, self._session.places
        if not may_follow(live.log, self._session.principal):
            return
        if self.followers.named(topic) or topic in self._leaving:
            return  # first it must be said that the last one of this name is gone
        place = places.get(topic)
        if place is not None:
            if place.listed:
                return  # was deleted: that was the end of it on this stream
            place.after, place.epoch = 0, live.log.id
        elif len(places) < self._topics_max:
            place = self._session.add(topic, live.log.id, prefix.view)
        else:
            message = f"one watch has at most {self._topics_max} topics: this one is left out"
            self.send(sse.error(429, message, topics=[topic]))
            return
        self._follow(live, place, newborn=True)

    def _follow(self, live: OpenLog, place: WatchPosition, *, newborn: bool = False) -> None:
        topic, epoch = live.log.name, live.log.id
        view = self._view(topic, place, epoch)
        follower = Follower(
            self,
            live,
            view,
            place.after,
            self.transport.write,
            epoch=place.epoch,
            owes_caught_up=not newborn,
        )
        if view.label is None:
            before, label = place.label(topic, place.epoch), place.label(topic, epoch)
            deliver = self._deliver if before == label else self._deliver_anew
            follower.write = partial(deliver, follower, label)
        self.followers.add(follower)

    def _view(self, topic: str, place: WatchPosition, epoch: int) -> EventView:
        label = place.label(topic, epoch) if self._session.solo else None
        view = msgspec.structs.asdict(place.view)
        return EventView(
            **view, heartbeat_s=self._session.heartbeat_s, chunked=self.chunked, label=label
        )

    def _deliver(self, follower: Follower, label: str, frame: bytes) -> None:
        """An event of one of several topics: its id tells of all of them."""
        self._session.cursor_history.tell(label, follower.position)
        self._put(frame)

    def _deliver_anew(self, follower: Follower, label: str, frame: bytes) -> None:
        """The first event of a new instance: only now the reader knows that there is one."""
        place = self._session.places[follower.live.log.name]
        self._session.cursor_history.drop(place.label(follower.live.log.name, place.epoch))
        follower.write = partial(self._deliver, follower, label)
        follower.write(frame)

    def _put(self, frame: bytes) -> None:
        """Write an event, with the id of this moment if it has none yet."""
        if self._session.solo:
            self.transport.write(frame)
            return
        id = self._session.cursor_history.id()
        if self.chunked:
            head = b"%x\r\nid: %b\n" % (len(id) + 5 + len(frame), id)
            self.transport.writelines((head, frame, b"\r\n"))
        else:
            self.transport.writelines((b"id: %b\n" % id, frame))

    def on_log_gone(self, follower: Follower) -> None:
        self.followers.remove(follower)
        self._keep(follower)
        self._forget(follower.live.log.name, follower.live.log.id)

    def _forget(self, topic: str, epoch: int) -> None:
        """It was said that a topic is gone; another one of its name may be there already."""
        self._leave_place(topic, epoch)
        if again := self._hub.engine.state.by_name.get(topic):
            for prefix in self._session.prefixes:
                if topic.startswith(prefix.prefix):
                    self._note_new(prefix, self._hub.engine.open_logs[again.id])
        self._end_if_over()

    def _keep(self, follower: Follower) -> None:
        """The session goes on from here some other time."""
        live = follower.live
        if follower.epoch is None:
            place = self._session.places[live.log.name]
            place.after, place.epoch = follower.position, live.log.id
            place.head = live.visible

    def _leave_place(self, topic: str, epoch: int) -> None:
        """A topic is gone. One that a prefix brought may come again, as a new one."""
        place = self._session.places[topic]
        if not place.listed:
            self._session.cursor_history.drop(place.label(topic, epoch))
            self._session.remove(topic)

    def _end_if_over(self) -> None:
        if not (self._opening or len(self.followers) or self._leaving or self._session.prefixes):
            self.end(Over())
