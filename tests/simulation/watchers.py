"""Watchers in the simulation: real sessions and streams, judged by what the model knows.

A watcher is a program that lives on while servers come and go. It takes up its session again with
the id of the last event it worked off, and makes a new one with that id as cursor when the server
is another one. Every event is checked twice: when it is written, against the model at that moment,
and when it is worked off, against everything this watcher has worked off before.

What somebody was shown counts as acknowledged under the class of its topic: if a crash takes it,
it was shown before its commit point, and `judge` finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import msgspec

from headrace.core.config import Durability
from headrace.core.entry import Append, Drop, Entry
from headrace.core.errors import Code, Refused
from headrace.engine.engine import Engine
from headrace.surfaces.topics.following import FollowLimits
from headrace.surfaces.topics.sessions import Sessions
from headrace.surfaces.topics.watch import STREAM_PATH, WatchRoutes
from headrace.surfaces.topics.watchstream import WatchStream
from headrace.web.concurrency import Slots
from support.asking import make_call, make_gate, make_request
from support.engine_harness import Record
from support.eventtext import Event, decode_id, split_events, unchunk
from support.oracle import History, ModelLog
from support.plumbing import Pipe

SESSION_TTL_MS = 2000
_LIMITS = FollowLimits(topics=100, records=100)
_ALL = "*"


@dataclass
class Spot:
    """Where a watcher stands in one instance of a topic."""

    epoch: int
    after: int


@dataclass
class Watcher:
    """What outlives a server: whom it asks for what, and how far it has worked."""

    name: str
    topics: tuple[str, ...]
    options: dict[str, Any]
    spots: dict[str, Spot] = field(default_factory=dict)
    last_id: str | None = None
    worked: int = 0

    @property
    def strong(self) -> bool:
        return self.options["consistency"] == "strong"

    def forget_server(self) -> None:
        """What was on the way is lost; without an id there is nothing to go on from."""
        if self.last_id is None:
            self.spots.clear()


def hire(random: Random, names: tuple[str, ...]) -> list[Watcher]:
    """One who watches all there is and will be, one who watches two topics, one who watches one."""
    watched = ((_ALL,), tuple(random.sample(names, 2)), (random.choice(names),))
    return [
        Watcher(
            f"watcher-{number}",
            topics,
            {
                "limit": random.choice((2, 100)),
                "max_batch_bytes": random.choice((150, 10_000)),
                "heartbeat_ms": 1000,
                "include_tags": True,
                "consistency": random.choice(("eventual", "strong")),
            },
        )
        for number, topics in enumerate(watched)
    ]


class Heard(NamedTuple):
    """An event, and what was so when it was written."""

    event: Event
    epoch: int
    deleted: frozenset[int]
    """Seqs that somebody had deleted by then."""


class Witness:
    """The model beside one engine, as those who write events need it."""

    def __init__(self, engine: Engine, history: History) -> None:
        self.engine = engine
        self.history = history
        self._steps: dict[tuple[int, int], tuple[int, Durability]] = {}
        self._drops: dict[int, int] = {}
        self._last = {log.id: log for log in history.now.values()}
        """The last that was known of each log, also of those that are gone."""
        self.ever = {
            (log.id, seq): record
            for log in history.now.values()
            for seq, record in log.records.items()
        }
        """Every record that was there: one pushed out while a page is on its way may be shown."""
        apply: Callable[[Entry], None] = engine.apply

        def watched(entry: Entry) -> None:
            apply(entry)
            self._last.update({log.id: log for log in history.now.values()})
            self._note(entry)

        engine.apply = watched  # type: ignore[method-assign]

    def _note(self, entry: Entry) -> None:
        index = len(self.history.states) - 1
        match entry:
            case Append():
                log = self.log(entry.log)
                for seq in range(entry.block.first, entry.block.last + 1):
                    self._steps[log.id, seq] = (index, log.config.durability)
                    if seq in log.records:
                        self.ever[log.id, seq] = log.records[seq]
            case Drop():
                self._drops[entry.log] = index

    def log(self, epoch: int) -> ModelLog:
        return self._last[epoch]

    def show(self, epoch: int, seqs: list[int], head: int, *, strong: bool) -> None:
        """Somebody is told of these records now: they must have come to their commit point."""
        for seq in seqs:
            if (epoch, seq) in self._steps:
                index, durability = self._steps[epoch, seq]
                if strong and durability is not Durability.EPHEMERAL:
                    durability = Durability.FSYNC
                self.history.acknowledge(index, durability)
        self.history.show(epoch, [(seq, self.ever[epoch, seq]) for seq in seqs], head)

    def bury(self, epoch: int) -> None:
        """Somebody is told that this log is gone: it must never come back."""
        assert epoch not in self.engine.state.logs, f"log {epoch} is there"
        if epoch in self._drops:
            self.history.acknowledge(self._drops[epoch], Durability.FSYNC)


class Far(Pipe):
    """The far end of a watch stream: takes the bytes apart and checks them as they are written."""

    def __init__(self, witness: Witness, *, strong: bool) -> None:
        super().__init__()
        self.heard: list[Heard] = []
        self._witness = witness
        self._strong = strong
        self._raw = b""
        self._text = b""
        self._headless = True

    def write(self, data: Any) -> None:
        super().write(data)
        self._raw += bytes(data)
        if self._headless:
            _, end, self._raw = self._raw.partition(b"|")
            assert end
            self._headless = False
        body, self._raw = unchunk(self._raw)
        events, self._text = split_events(self._text + body)
        for event in events:
            if event.name != "error":
                self.heard.append(self._check(event))

    def _check(self, event: Event) -> Heard:
        data, witness = event.data, self._witness
        epoch = self._epoch(data["topic"])
        if event.name == "topic-deleted":  # perhaps an instance that went with the last server
            witness.bury(epoch)
            return Heard(event, epoch, frozenset())
        log = witness.log(epoch)
        match event.name:
            case "record":
                _check_records(data, log, witness.ever)
                seqs = [record["$seq"] for record in data["records"]]
                witness.show(epoch, seqs, data["to_seq"], strong=self._strong)
            case "tombstone" if data["reason"] != "recreated":
                lost = range(data["gap_from"], data["gap_to"] + 1)
                there = log.records.keys() & set(lost)
                assert not there, f"{log.id}: {sorted(there)} are there and told to be lost"
            case "caught-up":
                self._check_caught_up(data["head_seq"], epoch)
        return Heard(event, epoch, log.deleted)

    def _epoch(self, topic: str) -> int:
        """Which instance of the topic an event is about: only the stream knows."""
        stream: WatchStream = self.protocol
        for follower in stream.followers:
            if follower.live.log.name == topic:
                return follower.live.log.id
        return stream._session.places[topic].epoch

    def _check_caught_up(self, head: int, epoch: int) -> None:
        live = self._witness.engine.open_logs[epoch]
        assert head <= live.visible
        assert self._strong or head == live.visible, f"caught up at {head} of {live.visible}"


def _check_records(
    data: dict[str, Any], log: ModelLog, ever: dict[tuple[int, int], Record]
) -> None:
    seqs = [record["$seq"] for record in data["records"]]
    assert seqs, "a frame without records"
    assert seqs == sorted(set(seqs)), "each once, ascending"
    assert data["from_seq"] < seqs[0] <= seqs[-1] <= data["to_seq"] <= data["head_seq"]
    for shown in data["records"]:
        known = ever.get((log.id, shown["$seq"]))
        assert known is not None, f"{log.id}: {shown} was never there"
        deleted = log.deleted - log.ever_superseded
        assert shown["$seq"] not in deleted, f"{log.id}: {shown} was deleted"
        assert _as_shown(known) == {key: shown.get(key) for key in ("$ts", "$tag", "data", "meta")}
    left_out = range(data["from_seq"] + 1, data["to_seq"] + 1)
    for seq in log.records.keys() & set(left_out).difference(seqs):
        raise AssertionError(f"{log.id}: {seq} was left out")


def _as_shown(record: Record) -> dict[str, Any]:
    return {
        "$ts": record.ts_ms,
        "$tag": record.tag,
        "data": msgspec.json.decode(record.data),
        "meta": None if record.meta is None else msgspec.json.decode(record.meta),
    }


class Gallery:
    """All watchers of one life of a server."""

    def __init__(self, witness: Witness, random: Random) -> None:
        self._witness = witness
        self._random = random
        self._engine = witness.engine
        self._gate = make_gate(self._engine)
        self._hub = self._gate.hub
        self._sessions = Sessions(Slots(), SESSION_TTL_MS, self._hub.wheel.time)
        self._watch = WatchRoutes(self._sessions, _LIMITS)
        self._seats: list[_Seat] = []
        self.quiet = False
        """Nobody disturbs a connection."""

    async def attend(self, watcher: Watcher) -> None:
        """Watch for as long as the server lives; connections break now and then."""
        seat = _Seat(watcher)
        self._seats.append(seat)
        watcher.forget_server()
        while True:
            if seat.closed and not await self._open(seat):
                await asyncio.sleep(0.1)
                continue
            await asyncio.sleep(self._random.choice((0.01, 0.3, 1.0, 3.0)))
            if not self.quiet:
                await self._disturb(seat)

    async def _open(self, seat: _Seat) -> bool:
        """Open the stream of the session, or of a new one."""
        watcher = seat.watcher
        if seat.wid is None and not await self._begin(seat):
            return False
        assert seat.wid is not None
        if seat.pipe is not None:
            seat.work()
        try:
            known = {"last_event_id": watcher.last_id} if watcher.last_id else {}
            request = make_request("GET", STREAM_PATH + seat.wid, **known)
            opening = await self._watch.get(make_call(self._gate, request, wid=seat.wid))
        except Refused as refused:
            if refused.code is not Code.NOT_FOUND:  # it was asleep for too long
                raise
            seat.wid = None
            watcher.forget_server()
            return False
        pipe = seat.pipe = Far(self._witness, strong=watcher.strong)
        pipe.protocol = opening.sink
        assert isinstance(opening.sink, WatchStream)
        opening.sink.attach(pipe, b"head|", lambda: None, lambda: None)
        return True

    async def _begin(self, seat: _Seat) -> bool:
        watcher = seat.watcher
        names = {name: {"epoch": spot.epoch} for name, spot in watcher.spots.items()}
        body = {"topics": {**{name: {} for name in watcher.topics}, **names}, **watcher.options}
        if watcher.last_id is not None:
            body["cursor"] = watcher.last_id
        try:
            head = {"content_type": "application/json"}
            raw = msgspec.json.encode(body)
            request = make_request("POST", "/v0/watch?lenient=true", raw, **head)
            reply = await self._watch.post(make_call(self._gate, request))
        except Refused as refused:
            if refused.code not in (Code.LOG_NOT_FOUND, Code.STORAGE_UNAVAILABLE):
                raise
            return False
        said = msgspec.json.decode(b"".join(reply.parts) + b"}")
        assert said["stream_url"] == STREAM_PATH + said["wid"]
        seat.wid, seat.first_id = said["wid"], watcher.last_id
        known = decode_id(watcher.last_id) if watcher.last_id else {}
        for name, place in said["topics"].items():
            if name not in watcher.spots:
                # A topic to come is watched from its first record on: a cursor may say so before
                # anything of it came.
                seqs = [seq for label, seq in known.items() if label.partition("@")[0] == name]
                assert not any(seqs), f"{name} is in the cursor, and we never heard of it"
                assert not seqs or (_ALL in watcher.topics and place["from_seq"] == 0)
                watcher.spots[name] = Spot(place["epoch"], place["from_seq"])
        return True

    async def _disturb(self, seat: _Seat) -> None:
        """The reader stops reading, or the connection breaks with bytes on the way."""
        pipe, random = seat.pipe, self._random
        assert pipe is not None
        match random.choice(("work", "choke", "break", "break", "replace")):
            case "work":
                seat.work()
            case "choke":
                pipe.choke()
                await asyncio.sleep(random.choice((0.1, 7.0)))
                pipe.drain()
            case "replace":
                await self._open(seat)
            case "break" if not seat.closed:
                if seat.watcher.last_id is None:
                    seat.work()  # the session alone knows
                seat.work(random.randrange(3))
                if pipe.heard and seat.watcher.last_id == seat.first_id:
                    seat.wid = None  # an id of another session does not tell of all topics
                pipe.heard.clear()
                pipe.protocol.connection_lost(None)
                pipe.abort()
                await asyncio.sleep(random.choice((0, 0, 0.1, 3.0)))

    def check_all_came(self) -> None:
        """Nobody has written for a while: whoever is connected has everything."""
        for seat in self._seats:
            if not seat.closed:
                seat.work()
                self._check_at_head(seat)

    def _check_at_head(self, seat: _Seat) -> None:
        assert seat.pipe is not None
        watcher, stream = seat.watcher, seat.pipe.protocol
        for follower in stream.followers:
            live = follower.live
            name, log = live.log.name, self._witness.log(live.log.id)
            spot = watcher.spots.get(name)
            if spot is None or (spot.epoch != log.id and _ALL in watcher.topics):
                spot = Spot(log.id, 0)  # new, and nothing happened in it
            assert spot.epoch == log.id, f"{watcher.name} thinks {name} is {spot.epoch}"
            missed = log.records.keys() & set(range(spot.after + 1, live.visible + 1))
            assert not missed, f"{watcher.name}: {name} {sorted(missed)} never came"
        if _ALL in watcher.topics:
            followed = {follower.live.log.name for follower in stream.followers}
            for name in self._witness.history.now.keys() - followed:
                place = stream._session.places[name]
                assert place.listed, f"{watcher.name} never heard of {name}"
                assert place.epoch not in self._engine.open_logs, f"{name} is not followed"


class _Seat:
    """A watcher at one server."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.wid: str | None = None
        self.first_id: str | None = None
        """The id that its session was made with."""
        self.pipe: Far | None = None

    @property
    def closed(self) -> bool:
        return self.pipe is None or self.pipe.protocol.closed

    def work(self, count: int | None = None) -> None:
        """Work off events that have come, all or so many."""
        assert self.pipe is not None
        for heard in self._take(self.pipe, count):
            _work_off(self.watcher, heard)

    def _take(self, pipe: Far, count: int | None) -> Iterator[Heard]:
        while pipe.heard and count != 0:
            yield pipe.heard.pop(0)
            count = None if count is None else count - 1


def _work_off(watcher: Watcher, heard: Heard) -> None:
    """Each event must join what came before: nothing twice, nothing left out in silence."""
    event, data = heard.event, heard.event.data
    assert event.id is not None
    name = data["topic"]
    spot = watcher.spots.setdefault(name, Spot(heard.epoch, 0))
    anew = event.name == "tombstone" and data["reason"] == "recreated"
    if spot.epoch != heard.epoch:
        assert anew or event.name == "topic-deleted" or _ALL in watcher.topics, (
            f"{watcher.name}: {name} is {heard.epoch} without a word, after {spot.epoch}"
        )
        spot.epoch, spot.after = heard.epoch, 0
    match event.name:
        case "record":
            assert data["from_seq"] == spot.after, f"from {data['from_seq']}, stood at {spot.after}"
            upto, told = data["to_seq"], {record["$seq"] for record in data["records"]}
        case "tombstone":
            upto, told = data["gap_to"], set(range(data["gap_from"], data["gap_to"] + 1))
            if anew:
                upto = data["earliest_seq"] - 1
                told = set(range(1, upto + 1))
        case "caught-up":
            upto, told = data["head_seq"], set()
        case _:  # deleted
            upto, told = spot.after, set()
    assert upto >= spot.after, f"{watcher.name}: {name} went back from {spot.after} to {upto}"
    silent = set(range(spot.after + 1, upto + 1)) - told - heard.deleted
    assert not silent, f"{watcher.name}: {name} {sorted(silent)} passed over without a word"
    spot.after = upto
    watcher.last_id = event.id
    watcher.worked += 1
