"""The catalog of logs against a dictionary; and a second catalog fed from the journal."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.core import state as core_state
from headrace.core import supersession
from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.entry import Configure, Drop, Entry, Start
from headrace.core.state import State
from headrace.formats.frame import encode_frame, read_frames

from .log_harness import columns, drafts_of, plain
from .naive import Record

names = st.sampled_from(["a", "a.b", "a:b", "ab", "b", "B", "ba"])
configs = st.builds(
    LogConfig,
    cap_records=st.sampled_from([0, 3]),
    durability=st.sampled_from([Durability.DISK, Durability.FSYNC]),
    kind=st.sampled_from(Kind),
)


class CatalogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.journal = bytearray()
        self.known: dict[str, int] = {}
        self.ids: set[int] = set()
        self.commit(Start(0, "boot"))

    def commit(self, entry: Entry) -> None:
        core_state.apply(self.state, entry)
        self.journal += encode_frame(entry, len(self.journal), 0)

    @rule(name=names, config=configs)
    def create(self, name: str, config: LogConfig) -> None:
        if name in self.known:
            return
        entry = core_state.create(self.state, name, "topics", config, 5)
        assert entry.log not in self.ids, "an id is given once"
        self.commit(entry)
        self.known[name] = entry.log
        self.ids.add(entry.log)

    @rule(name=names)
    def drop(self, name: str) -> None:
        if name in self.known:
            self.commit(Drop(self.known.pop(name)))

    @rule(name=names, config=configs)
    def configure(self, name: str, config: LogConfig) -> None:
        if name in self.known:
            log = self.state.by_name[name]
            self.commit(Configure(log.id, config, log.head))

    @rule(name=names, drafts=drafts_of)
    def append(self, name: str, drafts: list[Record]) -> None:
        if name in self.known:
            log = self.state.by_name[name]
            self.commit(supersession.append(log, None, columns(drafts), None, 5).append)

    @rule(after=st.just("") | names | st.just("a0"), prefix=st.just("") | names)
    def list_names(self, after: str, prefix: str) -> None:
        wanted = sorted(name for name in self.known if name.startswith(prefix) and name > after)
        assert list(self.state.names(after, prefix)) == wanted

    @rule()
    def replay(self) -> None:
        other = State()
        for frame in read_frames(memoryview(bytes(self.journal)), 0, "journal", final=True):
            core_state.apply(other, frame.entries[0])
        assert other.next_id == self.state.next_id
        assert (other.count, other.size_bytes) == (self.state.count, self.state.size_bytes)
        assert {log: plain(held) for log, held in other.logs.items()} == {
            log: plain(held) for log, held in self.state.logs.items()
        }

    @invariant()
    def totals_are_sums(self) -> None:
        logs = self.state.logs
        assert {log.name: log.id for log in logs.values()} == self.known
        assert self.state.by_name.keys() == self.known.keys()
        assert self.state.count == sum(log.count for log in logs.values())
        assert self.state.size_bytes == sum(log.size_bytes for log in logs.values())

    @invariant()
    def the_census_counts_every_log_once(self) -> None:
        logs = self.state.logs.values()
        counted = Counter((log.owner, log.config.durability, log.config.kind) for log in logs)
        assert +self.state.census == counted
        assert self.state.queues == {log.id for log in logs if log.config.kind is Kind.QUEUE}

    @invariant()
    def equal_configs_are_one_object(self) -> None:
        held = [log.config for log in self.state.logs.values()]
        assert len({id(config) for config in held}) == len(set(held))


TestCatalog = CatalogMachine.TestCase
TestCatalog.settings = settings(max_examples=40, stateful_step_count=30)
