"""Streams against a naive model: dictionaries that are copied whole; and a second catalog fed from
the journal, where what belongs together is one frame.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.core import state as core_state
from headrace.core import stream_rules
from headrace.core.entry import Append, Entry
from headrace.core.errors import Code, Refused
from headrace.core.record import draft
from headrace.core.state import State
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import Producer, Write
from headrace.formats.frame import encode_frame, encode_group, read_frames

from .log_harness import plain

names = st.sampled_from("abcd")
producers = st.builds(
    Producer, st.sampled_from("pq"), st.integers(0, 2), st.sampled_from([0, 0, 1, 1, 2, 5])
)


@dataclass
class Naive:
    """One stream: everything it holds, by value."""

    epoch: int
    records: list[bytes] = field(default_factory=list)
    closed: bool = False
    closer: tuple[str, int, int] | None = None
    seq: str = ""
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    source: str = ""
    forks: int = 0
    buried: bool = False


class StreamMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.journal = bytearray()
        self.records: dict[int, dict[int, bytes]] = {}
        self.model: dict[str, Naive] = {}
        self.open_logs: dict[str, int] = {}
        self.now_ns = 1
        self.sent = 0

    def commit(self, entries: list[Entry]) -> None:
        for entry in entries:
            core_state.apply(self.state, entry)
            if isinstance(entry, Append):
                own = self.records.setdefault(entry.log, {})
                own |= {entry.block.seq_at(at): entry.block.data_at(at) for at in range(1)}
        encode = encode_group if len(entries) > 1 else lambda es, *at: encode_frame(es[0], *at)
        self.journal += encode(entries, len(self.journal), 0)

    def payload(self) -> bytes:
        self.sent += 1
        return b"%d" % self.sent

    @rule(step=st.sampled_from([0, 1, 10**6, -5]))
    def pass_time(self, step: int) -> None:
        self.now_ns = max(1, self.now_ns + step)

    @rule(name=names, body=st.booleans(), closed=st.booleans())
    def create(self, name: str, body: bool, closed: bool) -> None:
        if name in self.model:
            return
        data = [self.payload()] if body else []
        entries = stream_rules.create(
            self.state, name, Spec(closed=closed), None, draft(data) if data else None, self.now_ns
        )
        self.commit(entries)
        self.born(name, Naive(0, data, closed))

    @rule(name=names, source=names, data=st.data())
    def fork(self, name: str, source: str, data: st.DataObject) -> None:
        if name in self.model or source not in self.model:
            return
        origin, log = self.model[source], self.state.by_name[source]
        upto = data.draw(st.integers(0, len(origin.records)), label="upto")
        spec = Spec(source=source, at=upto)
        if origin.buried:
            with pytest.raises(Refused):
                stream_rules.fork(log, spec, upto)
            return
        forked = stream_rules.fork(log, spec, upto)
        self.commit(stream_rules.create(self.state, name, spec, forked, None, self.now_ns))
        origin.forks += 1
        self.born(name, Naive(0, deepcopy(origin.records[:upto]), source=source))

    def born(self, name: str, stream: Naive) -> None:
        own = self.open_logs.get(name, -1) + 1
        stream.epoch = max(own, self.model[stream.source].epoch + 1 if stream.source else 0)
        self.open_logs[name] = stream.epoch
        self.model[name] = stream

    @rule(
        name=names,
        body=st.booleans(),
        close=st.sampled_from([False, False, True]),
        seq=st.none() | st.sampled_from(["1", "2", "10"]),
        producer=st.none() | producers,
        at_ns=st.none() | st.integers(0, 10**7),
    )
    def write(
        self,
        name: str,
        body: bool,
        close: bool,
        seq: str | None,
        producer: Producer | None,
        at_ns: int | None,
    ) -> None:
        stream = self.model.get(name)
        if stream is None or not (body or close):
            return
        data = self.payload() if body else None
        wanted = Write("application/octet-stream" if body else None, producer, seq, close, at_ns)
        verdict = self.verdict(stream, wanted)
        log = self.state.by_name[name]
        drafts = draft([data]) if data is not None else None
        if isinstance(verdict, Code):
            with pytest.raises(Refused) as refused:
                stream_rules.write(log, drafts, wanted, self.now_ns)
            assert refused.value.code is verdict
            return
        entries = stream_rules.write(log, drafts, wanted, self.now_ns)
        assert (entries is None) == (not verdict)
        if entries is None:
            return
        before_ns = log.last_ts_ms * 1_000_000 + log.stream.last_ns  # type: ignore[union-attr]
        self.commit(entries)
        taken_ns = log.last_ts_ms * 1_000_000 + log.stream.last_ns  # type: ignore[union-attr]
        assert before_ns <= taken_ns <= max(before_ns, self.now_ns)
        if data is not None:
            stream.records.append(data)
        stream.seq = seq or stream.seq
        if producer is not None:
            stream.producers[producer.id] = (producer.epoch, producer.seq)
        if close:
            stream.closed = True
            stream.closer = producer.triple if producer else None

    def verdict(self, stream: Naive, wanted: Write) -> Code | bool:
        """A refusal, or whether the write is new."""
        producer = wanted.producer
        epoch, last = stream.producers.get(producer.id, (-1, -1)) if producer else (-1, -1)
        if producer and producer.epoch < epoch:
            return Code.PRODUCER_FENCED
        if stream.closed:
            if producer:
                return False if producer.triple == stream.closer else Code.CLOSED
            return False if wanted.content_type is None else Code.CLOSED
        if producer and producer.epoch > epoch and producer.seq:
            return Code.INVALID
        if producer and producer.epoch == epoch and producer.seq != last + 1:
            return False if producer.seq <= last else Code.PRODUCER_GAP
        return Code.CONFLICT if wanted.seq and wanted.seq <= stream.seq else True

    @rule(name=names)
    def remove(self, name: str) -> None:
        if name not in self.model or self.model[name].buried:
            return
        self.commit(stream_rules.remove(self.state, self.state.by_name[name]))
        if self.model[name].forks:
            self.model[name].buried = True
            return
        source = self.model.pop(name).source
        while source:
            origin = self.model[source]
            origin.forks -= 1
            if origin.forks or not origin.buried:
                break
            source = self.model.pop(source).source

    @precondition(lambda self: self.journal)
    @rule()
    def replay(self) -> None:
        other = State()
        for frame in read_frames(memoryview(bytes(self.journal)), 0, "journal", final=True):
            for entry in frame.entries:
                core_state.apply(other, entry)
        assert (other.retired, other.epoch_floor) == (self.state.retired, self.state.epoch_floor)
        assert {log: plain(held) for log, held in other.logs.items()} == {
            log: plain(held) for log, held in self.state.logs.items()
        }

    def contents(self, log: int, upto: int) -> list[bytes]:
        """What a reader gets: the source's records up to the fork, then its own."""
        held = self.state.logs[log]
        assert held.stream is not None
        fork = held.stream.fork
        inherited = self.contents(fork.source, min(fork.upto, upto)) if fork else []
        own = self.records.get(log, {})
        return inherited + [own[seq] for seq in range(held.inherited + 1, upto + 1)]

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        assert self.state.by_name.keys() == self.model.keys()
        for name, wanted in self.model.items():
            log = self.state.by_name[name]
            found = log.stream
            assert found is not None
            assert self.contents(log.id, log.head) == wanted.records
            assert log.count == len(wanted.records) - log.inherited
            assert (found.closed, found.closed_by) == (wanted.closed, wanted.closer)
            assert (found.seq or "", found.producers or {}) == (wanted.seq, wanted.producers)
            assert (found.forks, found.deleted) == (wanted.forks, wanted.buried)
            assert found.epoch == wanted.epoch


TestStreams = StreamMachine.TestCase
TestStreams.settings = settings(max_examples=60, stateful_step_count=40)
