"""A client of a watch stream: takes the bytes apart and holds the server to its promises.

It hears nothing but the stream; what the engine knows at the moment of writing is kept beside each
event, to tell whether the event is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from headrace.core import ranges
from headrace.core.entry import Create, Delete
from headrace.core.log import Log
from headrace.core.ranges import Ranges
from headrace.core.selector import ColumnSelector
from headrace.engine.engine import Engine
from support.eventtext import Event, decode_id, split_events, unchunk
from support.plumbing import Pipe


class Truth:
    """What was appended, and where in the journal: told by the engine as it happens."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.records: dict[tuple[int, int], tuple[Any, str | None, str | None]] = {}
        self.positions: dict[tuple[int, int], int] = {}
        self.logs: dict[int, Log] = {log.id: log for log in engine.state.logs.values()}
        engine.observe(lambda live, _: self.logs.update({live.log.id: live.log}), Create)
        enqueue = engine.appender.enqueue

        def watched(live: Any, entry: Any, now_ms: int, beside: Any = ()) -> int:
            position = enqueue(live, entry, now_ms, beside)
            block = entry.append.block
            for at in range(block.count):
                key = (live.log.id, block.seq_at(at))
                tag = block.tags[at] if block.tags else None
                node = block.nodes[at] if block.nodes else None
                self.records[key] = (msgspec.json.decode(block.data_at(at)), tag, node)
                self.positions[key] = position
            return position

        engine.appender.enqueue = watched  # type: ignore[method-assign]
        self.deleted: dict[int, Ranges] = {}
        """Floors make a log forget what was deleted below them; we do not."""
        apply = engine.apply

        def applied(entry: Any) -> None:
            apply(entry)
            if isinstance(entry, Delete):
                known = self.deleted.get(entry.log, ())
                self.deleted[entry.log] = ranges.union(list(known), entry.ranges)

        engine.apply = applied  # type: ignore[method-assign]

    def passed_over(self, log: Log, seq: int, wanted: ColumnSelector) -> bool:
        """Whether a reader may be led past this seq without a word."""
        if ranges.contains(self.deleted.get(log.id, ()), seq):
            return True
        _, tag, node = self.records[log.id, seq]
        if log.config.dedupe_node and node is not None and node in wanted.exclude:
            return True
        return wanted.match is not None and not wanted.match.matches(tag)

    def lost(self, log: Log, seq: int) -> bool:
        """Whether this seq holds no record any more."""
        deleted = ranges.contains(self.deleted.get(log.id, ()), seq)
        return deleted or seq < log.floor or ranges.contains(log.gone, seq)


@dataclass
class Spot:
    """Where a client stands in one topic."""

    epoch: int
    after: int


@dataclass
class Client:
    """What one reader has made of the events so far."""

    truth: Truth
    wanted: Callable[[str], ColumnSelector]
    strong: bool = False
    spots: dict[str, Spot] = field(default_factory=dict)
    last_id: str | None = None
    tombstones: list[tuple[str, str]] = field(default_factory=list)
    closed: list[Any] = field(default_factory=list)

    def copy(self) -> Client:
        twin = Client(self.truth, self.wanted, self.strong)
        twin.spots = {topic: Spot(spot.epoch, spot.after) for topic, spot in self.spots.items()}
        twin.last_id = self.last_id
        return twin

    def take(self, heard: Heard) -> None:
        """Process one event."""
        event, epoch = heard.event, heard.epoch
        if event.name == "error":
            self.closed.append(event.data)
            return
        assert event.id is not None, f"{event.name} without an id"
        topic = event.data["topic"]
        spot = self.spots.setdefault(topic, Spot(epoch, 0))
        getattr(self, "_" + event.name.replace("-", "_"))(event, spot, heard)
        self.last_id = event.id
        assert seq_in(event.id, topic, spot) in (None, spot.after)

    def _record(self, event: Event, spot: Spot, heard: Heard) -> None:
        data = event.data
        self._anew(spot, heard)
        assert data["from_seq"] >= spot.after, f"from {data['from_seq']} after {spot.after}"
        assert data["records"]
        log = self.truth.logs[spot.epoch]
        seqs = [record["$seq"] for record in data["records"]]
        assert seqs == sorted(set(seqs)), "each once, ascending"
        assert spot.after < seqs[0] <= seqs[-1] <= data["to_seq"] <= data["head_seq"]
        for record in data["records"]:
            expected, _, node = self.truth.records[spot.epoch, record["$seq"]]
            assert record["data"] == expected
            assert record.get("$node") == node
        self._pass(log, spot.after, data["to_seq"], seqs, heard)
        spot.after = data["to_seq"]

    def _tombstone(self, event: Event, spot: Spot, heard: Heard) -> None:
        data = event.data
        assert heard.true, f"not lost: {data}"
        if data["reason"] == "recreated":
            assert heard.epoch > spot.epoch or not spot.after
            spot.epoch = heard.epoch
            spot.after = data["earliest_seq"] - 1
        else:
            self._anew(spot, heard)
            self._pass(self.truth.logs[spot.epoch], spot.after, data["gap_from"] - 1, (), heard)
            assert data["gap_to"] >= data["gap_from"]
            spot.after = data["gap_to"]
        self.tombstones.append((event.data["topic"], data["reason"]))

    def _caught_up(self, event: Event, spot: Spot, heard: Heard) -> None:
        self._anew(spot, heard)
        head = event.data["head_seq"]
        assert head >= spot.after
        self._pass(self.truth.logs[spot.epoch], spot.after, head, (), heard)
        spot.after = head

    def _topic_deleted(self, event: Event, spot: Spot, heard: Heard) -> None:
        assert event.data["reason"] == "deleted"
        if heard.epoch > spot.epoch:  # came and went while nobody listened
            spot.epoch, spot.after = heard.epoch, 0
        assert spot.epoch not in self.truth.engine.open_logs
        assert event.id is not None
        if (seq := seq_in(event.id, event.data["topic"], spot)) is not None:
            self._pass(self.truth.logs[spot.epoch], spot.after, seq, (), heard)
            spot.after = seq

    def _anew(self, spot: Spot, heard: Heard) -> None:
        """A topic that a prefix brings again is new."""
        if heard.epoch != spot.epoch:
            assert heard.newborn, f"epoch {heard.epoch} without a word, after {spot.epoch}"
            spot.epoch, spot.after = heard.epoch, 0

    def _pass(self, log: Log, after: int, upto: int, seqs: Iterable[int], heard: Heard) -> None:
        missing = set(range(after + 1, upto + 1)).difference(seqs)
        wanted = self.wanted(log.name)
        for seq in missing:
            assert self.truth.passed_over(log, seq, wanted), f"{log.name}: {seq} was skipped"
        for seq in seqs:
            _, tag, node = self.truth.records[log.id, seq]
            assert wanted.match is None or wanted.match.matches(tag)
            assert node is None or node not in wanted.exclude or not log.config.dedupe_node


def seq_in(id: str, topic: str, spot: Spot) -> int | None:
    """Where an id leaves a reader in a topic; a checkpoint does not tell us."""
    if id.startswith("c."):
        return None
    seqs = decode_id(id)
    return seqs.get(f"{topic}@{spot.epoch}", seqs.get(topic))


class Heard(NamedTuple):
    """An event, and what was so when it was written."""

    event: Event
    epoch: int
    true: bool
    newborn: bool


class ListeningPipe(Pipe):
    """The far end of a watch stream."""

    def __init__(self, truth: Truth, *, strong: bool = False) -> None:
        super().__init__()
        self.heard: list[Heard] = []
        self._truth = truth
        self._strong = strong
        self._raw = b""
        self._text = b""
        self.headless = True

    def write(self, data: Any) -> None:
        super().write(data)
        self._raw += bytes(data)
        if self.headless:
            _, end, self._raw = self._raw.partition(b"|")
            assert end
            self.headless = False
        body, self._raw = unchunk(self._raw)
        events, self._text = split_events(self._text + body)
        self.heard += [self._witness(event) for event in events]

    def _witness(self, event: Event) -> Heard:
        if event.name == "error":
            return Heard(event, 0, true=True, newborn=False)
        topic = event.data["topic"]
        stream = self.protocol
        follower = next((f for f in stream.followers if f.live.log.name == topic), None)
        place = stream._session.places[topic]
        log = follower.live.log if follower else self._truth.logs[place.epoch]
        true = True
        if event.name == "tombstone" and event.data["reason"] != "recreated":
            gap = range(event.data["gap_from"], event.data["gap_to"] + 1)
            true = all(self._truth.lost(log, seq) for seq in gap)
        if event.name == "record" and self._strong and log.config.journaled:
            synced = self._truth.engine.journal.synced
            for record in event.data["records"]:
                assert self._truth.positions[log.id, record["$seq"]] <= synced, "not synced yet"
        return Heard(event, log.id, true, newborn=not place.listed)
