"""A short life of an engine in which everything happens once, told to the model as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.entry import Entry
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.match import TagEq, TagMatch, TagPrefix
from headrace.core.record import draft
from headrace.engine.routers.control import RouterPlan
from headrace.engine.start import Started
from support.engine_harness import Record, view_all
from support.oracle import History, ModelLog, State, judge
from support.relay import Relay
from support.virtual import VirtualClock

T = TypeVar("T")

EPHEMERAL, MEMORY, DISK, FSYNC = Durability


class ReadOnly(Exception):
    """The engine writes no more."""


class Client:
    """Does what a user may do, and tells the model before and after."""

    def __init__(self, started: Started, clock: VirtualClock, history: History) -> None:
        self.engine = started.engine
        self.upkeep = started.upkeep
        self.history = history
        self._clock = clock
        self._sent = 0
        self._relay, apply = Relay(self.engine, history), self.engine.apply

        def watched(entry: Entry) -> None:
            apply(entry)
            self._relay.follow(entry)

        self.engine.apply = watched  # type: ignore[method-assign]

    def _records(self, count: int, tag: str | None, meta: bytes | None) -> list[Record]:
        """Payloads nobody else ever sends, of different lengths."""
        made = []
        for at in range(count):
            self._sent += 1
            data = b'{"log":%d,"n":%d}' % (len(self.history.states), self._sent) + b" " * (at % 3)
            tagged = tag if at % 2 == 0 else None
            made.append(Record(data, meta, tagged, None, 0, tagged))
        return made

    def _log(self, name: str, config: LogConfig | None = None) -> ModelLog:
        """The log in the model, made if need be, with its age accounted for."""
        log = self.history.now.get(name)
        if log is None:
            assert config is not None
            log = ModelLog(self.engine.state.next_id, config)
            self.history.step(name, log)
            return log
        aged = log.expire(self._clock.now_ms())
        if aged is not log:
            self.history.step(name, aged)
        return aged

    async def append(
        self,
        name: str,
        count: int = 1,
        *,
        key: str | None = None,
        tag: str | None = None,
        meta: bytes | None = None,
        config: LogConfig | None = None,
    ) -> None:
        await self._calm()
        records = self._records(count, tag, meta)
        drafts = draft(
            [record.data for record in records],
            metas=[record.meta for record in records] if meta else None,
            tags=[record.tag for record in records] if tag else None,
            keys=[record.key for record in records] if tag else None,
        )
        call = partial(
            self.engine.appender.append, name, drafts, owner="topics", create=config, key=key
        )
        if self.engine.journal.failure is not None:
            await _refused(call, Code.READ_ONLY)
            raise ReadOnly
        before = self._log(name, config)
        if key in before.keys and name in self.history.now:
            appended = await _writing(call)
            assert appended.deduped
            assert (appended.first, appended.last) == before.keys[key][:2]
            return
        if before.full(records):
            await _refused(call, Code.LOG_FULL)
            return
        log = before.append(records, key, self._clock.now_ms())
        self.history.step(name, log)
        index = len(self.history.states) - 1
        appended = await _writing(call)
        assert not appended.deduped
        assert (appended.first, appended.last) == (before.head + 1, log.head)
        assert appended.log.id == log.id
        self.history.acknowledge(index, log.config.durability)
        stamped = [record._replace(ts_ms=log.last_ts_ms) for record in records]
        self.history.show(log.id, enumerate(stamped, appended.first), appended.last)

    async def put(self, name: str, config: LogConfig) -> None:
        await self._calm()
        known = name in self.history.now
        log = self._log(name, config)
        if known and config != log.config:
            log = replace(log, config=config)
            self.history.step(name, log)
            expired = log.trim().expire(self._clock.now_ms())
            for trimmed in (log.trim(), expired, expired.obey()):
                if trimmed is not log:
                    log = trimmed
                    self.history.step(name, log)
        index = len(self.history.states) - 1
        found, created = await _writing(partial(self.engine.logs.put, name, "topics", config))
        assert created is not known
        assert found.id == log.id
        self.history.acknowledge(index, FSYNC)

    async def delete(
        self, name: str, *, before: int | None = None, match: TagMatch | None = None
    ) -> None:
        await self._settle(name)
        await self._calm()
        log = self._log(name)
        shrunk = log.delete(
            lambda seq, record: (
                (before is None or seq < before) and (match is None or match.matches(record.tag))
            )
        )
        if shrunk.deleted != log.deleted:
            self.history.step(name, shrunk)
        index = len(self.history.states) - 1
        _, count = await _writing(partial(self.engine.deleter.delete, name, before, match))
        assert count == len(log.records) - len(shrunk.records)
        self.history.acknowledge(index, log.config.durability)

    async def drop(self, name: str) -> None:
        await self._settle(name)
        await self._calm()
        self._log(name)
        leading = self.engine.routers.routes.outbound_routes.get(self._log(name).id, {})
        for router, dest in leading.items():
            cut = self.engine.state.logs[dest].name
            held = self.history.now[cut]
            left = {k: inbound for k, inbound in held.inbound_routes.items() if k != router}
            self.history.step(cut, replace(held, inbound_routes=left))
        self.history.step(name, None)
        index = len(self.history.states) - 1
        assert await _writing(partial(self.engine.logs.drop, name, if_empty=False))
        self.history.acknowledge(index, FSYNC)

    async def route(
        self, source: str, dest: str, *, after: int | None = None, **rule: object
    ) -> None:
        """A router between logs that are there."""
        await self._settle(source, dest)
        plan = RouterPlan(source, dest, Rule(**rule), after=after)  # type: ignore[arg-type]
        put = partial(self.engine.routers.put, f"{source}->{dest}", plan, "topics")
        await _writing(put)
        self.history.acknowledge(self._relay.controlled, FSYNC)

    async def unroute(self, source: str, dest: str) -> None:
        assert await _writing(partial(self.engine.routers.delete, f"{source}->{dest}"))
        self.history.acknowledge(self._relay.controlled, FSYNC)

    async def _calm(self) -> None:
        """Wait until the journal can be written: what is asked then is decided then."""
        while self.engine.journal.stall is not None:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.1)

    async def _settle(self, *names: str) -> None:
        """Routers have come as far as they can, so that what is asked now happens at once."""
        lives = [self.engine.live(name) for name in names if name in self.history.now]
        for live in lives:
            await self.engine.routers.forwarder.finish_from(live)
        await self.engine.routers.catch_up(*lives)

    async def seal(self, *, retire: bool = False) -> None:
        """Have all of it sealed, as an operator may; readers and the model see no difference."""
        await self._calm()
        await _writing(partial(self.engine.seal, retire=retire))

    async def look(self) -> None:
        """Read everything; it must be what the model says."""
        await _writing(self._look)

    async def _look(self) -> None:
        await self._settle(*self.history.now)
        if self.engine.journal.failure is not None:
            raise ReadOnly
        for name in list(self.history.now):
            self._log(name)
        mark = self.history.mark()
        views = await view_all(self.engine)
        judge(self.history, mark, None, views, self._clock.now_ms())
        for found in views.values():
            self.history.show(found.id, found.records.items(), found.head)


Call = Callable[[], Awaitable[T]]


async def _refused(call: Call[object], code: Code) -> None:
    while True:
        with pytest.raises(Refused) as refused:
            await call()
        if refused.value.code is not Code.STORAGE_UNAVAILABLE:
            break
        await asyncio.sleep(0.1)
    assert refused.value.code is code


async def _writing(call: Call[T]) -> T:
    while True:
        try:
            return await call()
        except Refused as refused:
            if refused.code is Code.READ_ONLY:
                raise ReadOnly from None
            if refused.code is not Code.STORAGE_UNAVAILABLE:
                raise
        await asyncio.sleep(0.1)  # it was told that it may try again


_NAMES = {"eph": EPHEMERAL, "mem": MEMORY, "disk": DISK, "sync": FSYNC}


async def live(client: Client) -> None:
    """The whole story, one thing after another, some of them at once."""
    for name, durability in _NAMES.items():
        await client.append(name, 2, config=LogConfig(durability=durability))
    await client.put("cap", LogConfig(durability=DISK, cap_records=5))
    await client.put("ttl", LogConfig(durability=FSYNC, ttl_ms=5_000))
    await client.append("ttl", 2, tag="t")
    for turn in range(3):
        await asyncio.gather(
            *(client.append(name, 1 + turn, tag=f"t{turn}", key=f"k{turn}") for name in _NAMES),
            client.append("cap", 2, meta=b'{"m":1}'),
        )
    await client.append("disk", 3, key="k1")  # a retry: nothing happens
    await client.delete("disk", match=TagEq("t1"))
    await client.delete("sync", before=3)
    await client.delete("eph", match=TagEq("t0"))
    await client.seal()
    await client.look()
    await asyncio.sleep(3)  # long enough to seal what comes from here on
    await client.append("ttl", 1)
    await client.append("full", 2, config=LogConfig(cap_records=3, discard=Discard.REJECT))
    await client.append("full", 2)
    await asyncio.sleep(3)
    await client.append("ttl", 2)  # pushes out what is too old
    await client.put("eph", LogConfig(durability=DISK))
    await client.append("eph", 2, tag="now kept")
    await client.append("cap", 7)  # more than there is room for
    await client.drop("mem")
    await client.append("mem", 1, config=LogConfig(durability=MEMORY))
    await client.put("disk", LogConfig(durability=EPHEMERAL, cap_records=9))
    await client.append("disk", 2, key="lost")
    await client.append("disk", 3, tag="x")
    await client.look()
    await client.put("sync", LogConfig(durability=FSYNC, cap_bytes=150))
    await client.delete("cap", before=1000)
    await client.append("sync", 1)
    await client.put("disk", LogConfig(durability=DISK))
    await client.append("disk", 1)
    await client.seal(retire=True)
    await client.append("mem", 5)
    await client.delete("eph", before=2)
    await client.look()


async def forward(client: Client) -> None:
    """A shorter story, of logs that routers join."""
    await client.append("a", 2, tag="t", config=LogConfig(durability=DISK))
    await client.put("b", LogConfig(durability=FSYNC))
    await client.put("c", LogConfig(durability=DISK, cap_records=5))
    await client.append("e", 1, config=LogConfig(durability=EPHEMERAL))
    await client.put("f", LogConfig(durability=MEMORY, discard=Discard.REJECT, cap_records=4))
    await client.route("a", "b", after=0, exactly_once=True)
    await client.route("b", "c", match=TagPrefix("t"), keep_tag=False)
    await client.route("c", "a", allow_cycle=True)
    await client.route("e", "f")
    await asyncio.gather(
        client.append("a", 3, tag="t"), client.append("b", 1, tag="t", meta=b'{"m":1}'),
        client.append("c", 1), client.append("e", 2),
    )  # fmt: skip
    await client.seal()
    await client.look()
    await client.append("e", 4)  # more than there is room for
    await client.put("e", LogConfig(durability=EPHEMERAL, cap_records=2))  # lost on the way
    await client.append("a", 4, tag="u")
    await client.delete("f", before=4)
    await client.put("a", LogConfig(durability=EPHEMERAL))
    await client.append("a", 2, tag="t")
    await client.look()
    await client.unroute("b", "c")
    await client.append("b", 2)
    await client.put("a", LogConfig(durability=DISK))
    await asyncio.sleep(1)  # long enough to seal it
    await client.append("a", 1, tag="t")
    await client.route("b", "c", after=3, allow_cycle=True)
    await client.drop("e")
    await client.delete("b", match=TagEq("u"))
    await client.look()


async def supersede(client: Client) -> None:
    """A story of logs that keep the newest records of each key."""
    await client.put("one", LogConfig(durability=FSYNC, keep_per_key=1))
    await client.put("few", LogConfig(durability=EPHEMERAL, keep_per_key=2, keys_max=2))
    await client.put("cap", LogConfig(durability=DISK, keep_per_key=2, cap_records=4))
    await client.append("late", 4, tag="a", config=LogConfig(durability=DISK))
    names = ("one", "few", "cap", "late")
    for tag in ("b", "a", "c"):
        await asyncio.gather(*(client.append(name, 3, tag=tag) for name in names))
    await client.append("one", 1, tag="d", key="again")
    await client.append("one", 1, tag="d", key="again")
    await client.seal()
    await client.put("late", LogConfig(durability=DISK, keep_per_key=1, keys_max=2))
    await client.put("few", LogConfig(durability=FSYNC, keep_per_key=1))
    await asyncio.gather(*(client.append(name, 1, tag="b") for name in names))
    await client.delete("one", match=TagEq("a"))
    await client.put("late", LogConfig(durability=EPHEMERAL, keep_per_key=1))
    await client.append("late", 5, tag="b")
    await client.route("one", "cap", after=0)
    await client.append("one", 2, tag="c")
    await client.look()
    await client.put("one", LogConfig(durability=FSYNC))
    await client.append("one", 2, tag="c")


async def probe(client: Client, before: State) -> None:
    """Go on after a recovery: new seqs are new, keys still work, nothing is in the way."""
    for name, log in before.items():
        await client.append(name, 1, tag="probe")
        for key in log.keys:
            await client.append(name, 1, key=key)
    for name in list(before)[::2]:
        await client.delete(name, match=TagEq("t1"))
    await client.append("probe", 2, config=LogConfig(durability=FSYNC))
    await client.look()


async def stay_read_only(client: Client) -> None:
    """Every write is refused, every read goes on."""
    engine, history = client.engine, client.history
    drafts = draft([b"{}"])
    name = next(iter(engine.state.names("", "")))
    for call in (
        partial(engine.appender.append, name, drafts, owner="topics", create=None),
        partial(engine.appender.append, "new", drafts, owner="topics", create=LogConfig()),
        partial(engine.logs.put, "new", "topics", LogConfig()),
        partial(engine.logs.put, name, "topics", LogConfig(cap_records=77)),
        partial(engine.logs.drop, name, if_empty=False),
    ):
        await _refused(call, Code.READ_ONLY)
    views = await view_all(engine)
    for full in (name for name, found in views.items() if found.records):
        await _refused(partial(engine.deleter.delete, full, 1000, None), Code.READ_ONLY)
    possible = history.states[history.written :]
    for name, found in views.items():
        states = [state[name].records for state in possible if name in state]
        for seq, record in found.records.items():
            assert any(s.get(seq) == record for s in states), f"{name}: seq {seq} from nowhere"
        for seq in set.intersection(*(set(s) for s in states)) - found.records.keys():
            assert (found.id, seq) not in history.named, f"{name}: seq {seq} cannot be read"
