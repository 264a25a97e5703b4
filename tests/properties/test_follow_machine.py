"""Followers get every record exactly once, or hear of its loss, whatever happens meanwhile.

Sessions are watched through the real streams over the real engine, on a virtual loop. Records come
and go, topics too; connections break with bytes on the way, come back with older ids, and stop
reading for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any
from unittest import mock

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.match import TagEq, TagPrefix
from headrace.core.record import draft
from headrace.core.selector import EVERYTHING, ColumnSelector
from headrace.delivery.hub import Hub
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.caps import Caps
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.surfaces.topics.cursors import parse_composite
from headrace.surfaces.topics.events import TopicView
from headrace.surfaces.topics.sessions import Prefix, Session, Sessions, WatchPosition, begin
from headrace.surfaces.topics.watchstream import WatchStream
from headrace.web.concurrency import Slots
from headrace.web.credentials import LOCAL
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.listening import Client, ListeningPipe, Spot, Truth
from support.virtual import VirtualClock, VirtualLoop

TOPICS = ("a", "p:1", "p:2")
ECHOES = "p:2"
"""A topic that does not filter nodes, whatever a reader asks for."""
TAGS = (None, "x", "xy", "z")
NODES = (None, None, "n1", "n2")
EXPECTED = {Code.LOG_NOT_FOUND, Code.LOG_FULL}
SESSIONS_MAX = 6
BEAT_S = 1.0


def look(wanted: ColumnSelector, records_max: int, *, strong: bool) -> TopicView:
    return TopicView(
        selector=wanted, records_max=records_max, bytes_max=1000, strong=strong,
        tags=True, meta=True, data=True,
    )  # fmt: skip


LOOKS = (
    look(EVERYTHING, 100, strong=False),
    look(EVERYTHING, 2, strong=False),
    look(EVERYTHING, 2, strong=True),
    look(ColumnSelector(frozenset({"n2"}), TagPrefix("x")), 3, strong=False),
    look(ColumnSelector(match=TagEq("xy")), 1, strong=False),
)
"""Few, so that followers meet."""

Kinds = list[tuple[str | None, str | None]]
topics = st.sampled_from(TOPICS)
naps = st.sampled_from([0, 0, 0.001, 0.003, 0.2, 2.0])
whiches = st.integers(0, SESSIONS_MAX - 1)
kinds_of = st.lists(
    st.tuples(st.sampled_from(TAGS), st.sampled_from(NODES)), min_size=1, max_size=6
)
configs = st.builds(
    LogConfig,
    durability=st.sampled_from([*Durability]),
    cap_records=st.sampled_from([0, 0, 4]),
    ttl_ms=st.sampled_from([0, 0, 800]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
)


def with_echoes(topic: str, config: LogConfig) -> LogConfig:
    return msgspec.structs.replace(config, dedupe_node=topic != ECHOES)


class Watched:
    """A session with the client at its far end."""

    def __init__(self, session: Session, client: Client) -> None:
        self.session = session
        self.client = client
        self.pipe: ListeningPipe | None = None
        self.stream: WatchStream | None = None
        self.pasts: list[Client] = []

    def process(self, count: int | None = None) -> None:
        """Let the client take events that have come, all or so many."""
        assert self.pipe is not None
        taken = self.pipe.heard[:count]
        del self.pipe.heard[: len(taken)]
        for heard in taken:
            self.client.take(heard)
            if self.client.last_id is not None:
                self.pasts = [*self.pasts[-5:], self.client.copy()]


class FollowMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._patches = ExitStack()
        self._patches.enter_context(small())
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.sent = 0
        self.sessions: list[Watched] = []
        self.run(self._boot())

    @initialize(short=st.booleans(), indexed=st.booleans())
    def ids(self, short: bool, indexed: bool) -> None:
        """Ids are maps from topic to seq, or checkpoints; selectors are indexed or not."""
        if indexed:
            self._patches.enter_context(
                mock.patch("headrace.delivery.channel.INDEXED_COHORTS_MIN", 1)
            )
        if not short:
            self._patches.enter_context(
                mock.patch("headrace.surfaces.topics.cursors.COMPOSITE_BYTES_MAX", 0)
            )

    async def _boot(self) -> None:
        started = await boot(
            HostileDisk(),
            self.clock,
            caps=Caps(tail_bytes=400),
            pace=UpkeepPace(seal_bytes=400, disk_sync_ms=200),
            delay_s=lambda: 0.002,
        )
        self.engine = started.engine
        self.truth = Truth(self.engine)
        self.wheel = TimerWheel()
        self.hub = Hub(self.engine, self.wheel)
        self.store = Sessions(Slots(), 10_000_000, self.wheel.time)
        self.upkeep = [
            self.loop.create_task(started.upkeep.run()),
            self.loop.create_task(started.upkeep.run_timers()),
        ]

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(self.loop.create_task(work))
        self._check_background()

    def _check_background(self) -> None:
        assert not self.loop.complaints, self.loop.complaints
        for task in self.upkeep:
            assert not task.done(), task

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin something; it goes on while other things happen."""

        async def guarded() -> None:
            try:
                await work
            except Refused as refused:
                if refused.code not in EXPECTED:
                    raise

        self.loop.create_task(guarded())

    @rule(s=naps)
    def tick(self, s: float) -> None:
        self.run(asyncio.sleep(s))  # type: ignore[arg-type]

    # --- writers ----------------------------------------------------------------------------------

    @rule(topic=topics, kinds=kinds_of, config=configs)
    def append(self, topic: str, kinds: Kinds, config: LogConfig) -> None:
        datas = []
        for _ in kinds:
            self.sent += 1
            datas.append(b'{"n":\n%d}' % self.sent)
        drafts = draft(datas, None, [tag for tag, _ in kinds], [node for _, node in kinds])
        config = with_echoes(topic, config)
        self.start(self.engine.appender.append(topic, drafts, owner="topics", create=config))

    @rule(topic=topics, kinds=kinds_of, config=configs, s=naps)
    def append_and_look(self, topic: str, kinds: Kinds, config: LogConfig, s: float) -> None:
        """As above; it is what happens most."""
        self.append(topic, kinds, config)
        self.tick(s)

    @rule(topic=topics, back=st.integers(0, 8), match=st.sampled_from([None, TagEq("x")]))
    def delete(self, topic: str, back: int, match: Any) -> None:
        if log := self.engine.state.by_name.get(topic):
            self.start(self.engine.deleter.delete(topic, max(1, log.head + 1 - back), match))

    @rule(topic=topics, config=configs)
    def configure(self, topic: str, config: LogConfig) -> None:
        self.start(self.engine.logs.put(topic, "topics", with_echoes(topic, config)))

    @rule(topic=topics)
    def drop(self, topic: str) -> None:
        self.start(self.engine.logs.drop(topic, if_empty=False))

    # --- readers ----------------------------------------------------------------------------------

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(
        listed=st.sets(topics, max_size=3),
        prefix=st.sampled_from([None, None, "p:", ""]),
        tail=st.booleans(),
        look=st.sampled_from(LOOKS),
    )
    def watch(self, listed: set[str], prefix: str | None, tail: bool, look: TopicView) -> None:
        places: dict[str, WatchPosition] = {}
        for name, log in self.engine.state.by_name.items():
            if name in listed or (prefix is not None and name.startswith(prefix)):
                after = self.engine.open_logs[log.id].visible if tail else 0
                places[name] = begin(after, log.id, look, listed=name in listed)
        prefixes = [] if prefix is None else [Prefix(prefix, look)]
        if places or prefixes:
            session = Session(LOCAL, places, prefixes, BEAT_S)
            client = Client(self.truth, lambda name: look.selector, look.strong)
            client.spots = {name: Spot(p.epoch, p.after) for name, p in places.items()}
            self.sessions.append(Watched(session, client))
            self.run(self._begin(self.sessions[-1]))

    async def _begin(self, watched: Watched) -> None:
        self.store.add(watched.session)
        await self._open(watched)

    @precondition(lambda self: self.sessions)
    @rule(which=whiches)
    def open(self, which: int) -> None:
        """Connect, perhaps while another connection is still there."""
        self.run(self._open(self.some(which)))

    def some(self, which: int) -> Watched:
        return self.sessions[which % len(self.sessions)]

    async def _open(self, watched: Watched) -> None:
        session, client = watched.session, watched.client
        if watched.pipe is not None and not (watched.pipe.closing and client.last_id):
            watched.process()  # without an id the session alone knows
        if client.last_id is not None:
            session.rewind(parse_composite(client.last_id))
        if session.stream is not None:
            assert watched.stream is not None
            watched.stream.shutdown()
        stream = WatchStream(self.hub, session, self.store, 100)
        pipe = ListeningPipe(self.truth, strong=client.strong)
        pipe.protocol = stream
        watched.stream, watched.pipe = stream, pipe
        stream.attach(pipe, b"head|", lambda: None, lambda: None)

    @precondition(lambda self: self.sessions)
    @rule(which=whiches, taken=st.integers(0, 2))
    def lose(self, which: int, taken: int) -> None:
        """The connection breaks; the client has taken only some of what was sent."""
        self.run(self._lose(self.some(which), taken))

    async def _lose(self, watched: Watched, taken: int) -> None:
        if watched.stream is not None and not watched.stream.closed:
            if watched.client.last_id is None:
                watched.process()  # without an id the session alone knows
            watched.process(taken)
            watched.stream.connection_lost(None)
            assert watched.pipe is not None
            watched.pipe.abort()
            watched.pipe.heard.clear()

    @precondition(lambda self: self.sessions)
    @rule(which=whiches, back=st.integers(1, 5))
    def rewind(self, which: int, back: int) -> None:
        """The client goes back to an older id, with what it knew then."""
        watched = self.some(which)
        if len(watched.pasts) >= back:
            self.run(self._lose(watched, 0))
            del watched.pasts[len(watched.pasts) - back + 1 :]
            watched.client = watched.pasts[-1].copy()
            self.run(self._open(watched))

    @precondition(lambda self: self.sessions)
    @rule(which=whiches)
    def block(self, which: int) -> None:
        """The peer stops reading for a while, or goes on."""
        if (pipe := self.some(which).pipe) is not None:
            self.loop.call_soon(pipe.drain if pipe.stuck else pipe.choke)

    @precondition(lambda self: self.sessions)
    @rule()
    def everybody_catches_up(self) -> None:
        self.run(self._catch_up())

    async def _catch_up(self) -> None:
        for watched in self.sessions:
            if watched.pipe is not None:
                watched.pipe.drain()
            if watched.stream is None or watched.stream.closed:
                await self._open(watched)
        await asyncio.sleep(1.0)
        for watched in self.sessions:
            assert watched.stream is not None
            watched.process()
            for follower in watched.stream.followers:
                live = follower.live
                spot = watched.client.spots.get(live.log.name, Spot(live.log.id, 0))
                if spot.epoch != live.log.id:
                    assert not watched.session.places[live.log.name].listed
                    spot = Spot(live.log.id, 0)
                assert follower.position == live.visible
                wanted = watched.client.wanted(live.log.name)
                for seq in range(spot.after + 1, live.visible + 1):
                    assert self.truth.passed_over(live.log, seq, wanted), f"{seq} never came"
            for topic in watched.session.places:
                if topic in self.engine.state.by_name:
                    self._check_followed(watched, topic)

    def _check_followed(self, watched: Watched, topic: str) -> None:
        assert watched.stream is not None
        followed = {follower.live.log.name for follower in watched.stream.followers}
        place = watched.session.places[topic]
        fallen = place.listed and place.epoch not in self.engine.open_logs
        assert topic in followed or fallen, f"{topic} is not followed"

    def teardown(self) -> None:
        try:
            self._end()
        finally:
            self.loop.stop_all()
            self.loop.close()
            self._patches.close()

    def _end(self) -> None:
        """All catch up, then all go: nothing is left behind."""
        self.everybody_catches_up()
        for task in self.upkeep:
            task.cancel()
        for watched in self.sessions:
            if watched.stream is not None and not watched.stream.closed:
                self.loop.call_soon(watched.stream.connection_lost, None)
        self.loop.run_until_complete(asyncio.sleep(10))
        assert len(self.hub) == 0, "a channel is left"
        assert len(self.wheel) == 0, "somebody is left on the wheel"


TestFollow = FollowMachine.TestCase
TestFollow.settings = settings(stateful_step_count=40)
