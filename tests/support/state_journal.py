"""A diary of an engine's states, and a client of its streams: what crashes are judged by.

There is one journal, and each group in it is true as a whole or not at all. So whatever a crash
leaves must be a state that the engine was in between two commits, not before the last commit that
somebody was told of. What the states themselves may be, the property tests say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headrace.core.entry import Append, Entry, Follow, Following
from headrace.core.log import Log
from headrace.core.record import Drafts, draft
from headrace.core.state import State
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import Write
from headrace.core.subscription import LinkWork
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.formats.snapshot import Captured, encode_part
from headrace.profiles.catalogue import parse_profile
from headrace.schemas.evolution import parse_update

T = TypeVar("T")
TEXT = "text/plain"
JSON = "application/json"


def picture(state: State) -> tuple[object, ...]:
    """Everything a state holds, as values: where records lie aside."""
    logs = {log.id: _plain(log) for log in state.logs.values()}
    return logs, dict(state.retired), state.epoch_floor, dict(state.tokens)


def _plain(log: Log) -> bytes:
    return encode_part(Captured(0, log.id, msgspec.structs.replace(log, extents=())))


@dataclass
class StateJournal:
    """The states an engine went through, one for each commit, and how much of it was promised."""

    pages: list[tuple[object, ...]] = field(default_factory=list)
    records: dict[tuple[int, int], bytes] = field(default_factory=dict)
    promised: int = 0
    _writers: dict[int, asyncio.Task[Any] | None] = field(default_factory=dict)

    def watch(self, engine: Engine) -> None:
        commit = engine.commit
        self.pages.append(picture(engine.state))

        def noted(entries: Sequence[Entry], *, sync: bool, **how: Any) -> int:
            position = commit(entries, sync=sync, **how)
            # Notes that a subscription needs no more go some time; nobody is told of that.
            tidies = not sync and all(isinstance(entry, Follow) for entry in entries)
            self._writers[len(self.pages)] = None if tidies else asyncio.current_task()
            self.pages.append(picture(engine.state))
            for entry in entries:
                if isinstance(entry, Append):
                    block = entry.block
                    for at in range(block.count):
                        self.records[entry.log, block.seq_at(at)] = block.data_at(at)
            return position

        engine.commit = noted  # type: ignore[method-assign]

    def acknowledge(self) -> None:
        """Whoever asked was answered: its commits must survive everything."""
        task = asyncio.current_task()
        mine = [page for page, writer in self._writers.items() if writer is task]
        self.promised = max([self.promised, *mine])

    def judge(self, promised: int, offered: int, found: tuple[object, ...]) -> None:
        assert found in self.pages[promised : offered + 1], (
            f"not a state between {promised} and {offered}: "
            f"{[at for at, page in enumerate(self.pages) if page == found]}"
        )


class Client:
    """Does what writers do; tells the diary what it was told."""

    def __init__(self, engine: Engine, state_journal: StateJournal) -> None:
        self.engine = engine
        self._state_journal = state_journal

    async def told(self, work: Awaitable[T]) -> T:
        """Do something else, and be told of it."""
        answer = await work
        self._state_journal.acknowledge()
        return answer

    async def create(self, name: str, *datas: bytes, **spec: Any) -> None:
        wanted = Spec(**{"content_type": None if "source" in spec else TEXT, **spec})
        source = self.engine.state.by_name[wanted.source] if wanted.source else None
        kind = source.stream.content_type if source and source.stream else wanted.content_type
        await self.engine.streams.create(name, wanted, _drafts(datas, kind) if datas else None)
        self._state_journal.acknowledge()

    async def write(self, name: str, *datas: bytes, **wanted: Any) -> None:
        stream = self.engine.state.by_name[name].stream
        assert stream is not None
        asked = Write(**{"content_type": stream.content_type if datas else None, **wanted})
        drafts = _drafts(datas, asked.content_type) if datas else None
        await self.engine.streams.write(name, drafts, asked)
        self._state_journal.acknowledge()

    async def delete(self, name: str) -> None:
        await self.engine.streams.delete(name)
        self._state_journal.acknowledge()

    async def evolve(self, name: str, **update: Any) -> None:
        live = self.engine.streams.own(name)
        await self.engine.ingest.install_schema(live, parse_update(msgspec.json.encode(update)))
        self._state_journal.acknowledge()

    async def adopt(self, name: str, **profile: Any) -> None:
        live = self.engine.streams.own(name)
        await self.engine.ingest.install_profile(live, parse_profile(profile))
        self._state_journal.acknowledge()

    async def subscribe(self, id: str, kind: str, created_by: str = "", **more: Any) -> None:
        asked = {"pattern": None, "streams": [], "url": None, "wake_stream": None, **more}
        following = Following(
            kind, asked["pattern"], asked["streams"], asked["url"], asked["wake_stream"], 3000,
            None, "", self.engine.clock.now_ms(),
        )  # fmt: skip
        await self.engine.subscriptions.put(id, following, created_by)
        self._state_journal.acknowledge()

    async def work(self, id: str) -> None:
        """Claim, ack all there is, and say that it is done."""
        subscriptions = self.engine.subscriptions
        active, works = await subscriptions.claim(id, "worker")
        self._state_journal.acknowledge()
        subscription = active.subscription
        acks = [(work.path, work.tail.epoch, work.tail.seq) for work in works]
        await subscriptions.acknowledge(
            active, subscription.wake or "", subscription.generation, acks, done=True
        )
        self._state_journal.acknowledge()


def _drafts(datas: tuple[bytes, ...], content_type: str | None) -> Drafts:
    drafts = draft(datas)
    drafts.media = None if content_type == JSON else TEXT
    return drafts


async def done(live: OpenLog, works: list[LinkWork]) -> bool:
    """A webhook that does everything at once."""
    return True


async def check_records(engine: Engine, live: OpenLog, state_journal: StateJournal) -> None:
    """Every record up to the head is there, those of the source before those of its own."""
    page = await engine.reader.read(live, 0, records_max=1000, bytes_max=1 << 20)
    found = {
        piece.block.seq_at(at): piece.block.data_at(at)
        for piece in page.slices
        for at in piece.picks
    }
    assert found == {
        seq: state_journal.records[origin(engine, live.log, seq), seq] for seq in found
    }
    assert len(found) == live.log.head, f"{live.log.name}: {sorted(found)} of {live.log.head}"


def origin(engine: Engine, log: Log, seq: int) -> int:
    """The log that holds this record."""
    while seq <= log.inherited:
        assert log.stream is not None
        assert log.stream.fork is not None
        log = engine.state.logs[log.stream.fork.source]
    return log.id
