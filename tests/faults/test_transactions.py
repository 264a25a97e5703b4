"""Transactions through crashes: every disk call of a workload as crash point.

Whatever happened, a client that stages and commits again what was not acknowledged, cut otherwise
than before, finds every batch in its logs exactly once.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.core.transaction import Caller, Chunk
from headrace.engine.engine import Engine
from headrace.engine.logs.transactions import BatchCommitted
from headrace.schemas.evolution import parse_update
from headrace.storage.verification import Verification
from support.engine_harness import Unhurried, boot, view, view_all
from support.hostile import HARMLESS, HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

LOGS = ("s", "b", "a")
"""A stream, and topics of class fsync and disk: what is synced least comes last."""
BATCHES = [(transaction, batch) for batch in (0, 4) for transaction in ("t", "u")]
ROWS = 3


def payload(transaction: str, batch: int, log: str, row: int) -> bytes:
    return json.dumps([transaction, batch, log, row]).encode()


async def stage(engine: Engine, transaction: str, batch: int, attempt: int) -> list[str]:
    """The chunks of a batch for every log; another attempt cuts them otherwise."""
    names = []
    size = 2 + attempt
    for part, log in enumerate(LOGS):
        for index, start in enumerate(range(0, ROWS, size)):
            rows = range(start, min(start + size, ROWS))
            chunk = Chunk(log, draft([payload(transaction, batch, log, row) for row in rows]))
            name = f"{part}-{attempt}-{index}"
            await engine.transactions.stage(transaction, batch, name, chunk)
            names.append(name)
    return names


async def commit(engine: Engine, transaction: str, batch: int, names: list[str]) -> BatchCommitted:
    return await engine.transactions.commit(
        transaction, batch, names, owner="topics", create=LogConfig()
    )


async def send(engine: Engine, transaction: str, batch: int, attempt: int) -> BatchCommitted:
    return await commit(
        engine, transaction, batch, await stage(engine, transaction, batch, attempt)
    )


async def prepare(engine: Engine) -> None:
    await engine.logs.put("a", "topics", LogConfig(durability=Durability.DISK))
    await engine.logs.put("b", "topics", LogConfig(durability=Durability.FSYNC))
    if "s" not in engine.state.by_name:
        await engine.streams.create("s", Spec(content_type="application/json"), None)


async def live(engine: Engine, acked: list[tuple[str, int]]) -> None:
    """Two transactions at a time, a second commit of another attempt, an abort."""
    await prepare(engine)
    for batch in (0, 4):
        first, second = await asyncio.gather(
            send(engine, "t", batch, 0), send(engine, "u", batch, 0)
        )
        assert not first.repeated
        assert not second.repeated
        acked += [("t", batch), ("u", batch)]
    again = await send(engine, "t", 4, 1)
    assert again.repeated
    await stage(engine, "u", 5, 0)
    await engine.transactions.abort("u", 5)
    await stage(engine, "t", 5, 0)  # nobody commits it
    await asyncio.sleep(1)
    waiting = engine.transactions.waiting
    assert (waiting.transactions, waiting.chunks) == (1, 6)
    assert waiting.size_bytes > 0
    assert waiting.age_ms >= 1000


async def run_workload(
    disk: HostileDisk, clock: VirtualClock, acked: list[tuple[str, int]]
) -> None:
    started = await boot(disk, clock)
    upkeep = asyncio.create_task(started.upkeep.run())
    try:
        await live(started.engine, acked)
    finally:
        upkeep.cancel()


@dataclass
class Moment:
    number: int
    call: str
    disk: HostileDisk
    acked: frozenset[tuple[str, int]]

    def survivors(self) -> Iterator[tuple[str, HostileDisk]]:
        yield "kill", self.disk.kill()
        yield "kill inside", self.disk.kill(torn=Random(self.number))
        for survival in Survival:
            yield survival.value, self.disk.lose_power(survival, Random(self.number))


Workload = Callable[[HostileDisk, VirtualClock, list[tuple[str, int]]], Awaitable[None]]


def record(
    loop: VirtualLoop, clock: VirtualClock, workload: Workload = run_workload
) -> list[Moment]:
    moments: list[Moment] = []
    acked: list[tuple[str, int]] = []
    disk = HostileDisk()

    def note(number: int, kind: str, path: str) -> None:
        if kind not in HARMLESS:
            moments.append(Moment(number, f"{kind} {path}", disk.copy(), frozenset(acked)))

    disk.before = note
    loop.run(workload(disk, clock, acked))
    return moments


async def contents(engine: Engine) -> dict[str, list[bytes]]:
    views = await view_all(engine)
    return {name: [r.data for r in views[name].records.values()] for name in LOGS if name in views}


def check(found: dict[str, list[bytes]], batches: set[tuple[str, int]]) -> None:
    """Each log holds these batches, each whole, in order, and once."""
    for log in LOGS:
        held = found.get(log, [])
        for transaction in ("t", "u"):
            own = [data for data in held if json.loads(data)[0] == transaction]
            want = [
                payload(transaction, batch, log, row)
                for name, batch in sorted(batches)
                if name == transaction
                for row in range(ROWS)
            ]
            assert own == want, f"{log}, {transaction}: {own}"


async def recover(
    disk: HostileDisk, clock: VirtualClock, acked: frozenset[tuple[str, int]]
) -> None:
    engine = (await boot(disk, clock)).engine
    await engine.transactions.resume()
    decided = {
        (transaction, batch)
        for transaction, batch in BATCHES
        if batch <= (last if (last := engine.transactions.last(transaction)) is not None else -1)
    }
    assert acked <= decided, f"forgotten: {acked - decided}"
    for transaction, _ in decided:
        with pytest.raises(Refused, match="belongs to another key"):
            engine.transactions.check(transaction, Caller("other"))
    check(await contents(engine), decided)
    await prepare(engine)
    for transaction, batch in BATCHES:
        if (transaction, batch) not in acked:
            done = await send(engine, transaction, batch, 2)
            assert done.repeated is ((transaction, batch) in decided)
    check(await contents(engine), set(BATCHES))
    await engine.transactions.abort("t", 5)
    await engine.transactions.abort("u", 5)
    left = [name for name in disk.list("staged") if name.endswith(".chunk")]
    assert not left, left
    assert sorted(disk.list("staged")) == ["t.4.done", "u.4.done"]


def test_crash_at_every_call(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    moments = record(loop, clock)
    assert len(moments[-1].acked) == len(BATCHES)
    crash_everywhere(loop, clock, moments, recover)


Recovery = Callable[
    [HostileDisk, VirtualClock, frozenset[tuple[str, int]]], Coroutine[Any, Any, None]
]


def crash_everywhere(
    loop: VirtualLoop, clock: VirtualClock, moments: list[Moment], recover: Recovery
) -> None:
    assert len(moments) > 100, "the workload does too little"
    known: set[object] = set()
    problems: list[str] = []
    for moment in moments:
        for how, disk in moment.survivors():
            case = (moment.acked, disk.world.contents())
            if case in known:
                continue
            known.add(case)
            try:
                loop.run(recover(disk, clock, moment.acked))
            except Exception as problem:  # noqa: BLE001  (reported below, all together)
                problems.append(f"call {moment.number} ({moment.call}), {how}: {problem!r}")
    head = f"{len(problems)} of {len(known)} went wrong\n"
    assert not problems, head + "\n".join(problems[:10])


def test_fail_every_call(loop: VirtualLoop) -> None:
    """A call that fails is survived by trying again, after a restart where that is needed."""
    clock = VirtualClock(loop)
    for moment in record(loop, clock)[::5]:
        disk, acked = HostileDisk(), list[tuple[str, int]]()
        disk.faults[moment.number] = errno.EIO
        try:
            loop.run(run_workload(disk, clock, acked))
        except OSError:
            pass
        except Refused as refused:
            if refused.code not in (Code.READ_ONLY, Code.INVALID):
                raise
        except AssertionError:
            pass  # the story went another way
        left = disk.kill(evicted=Random(moment.number))
        loop.run(recover(left, clock, frozenset(acked)))


def test_staged_files_and_notes_stand_up_to_verification(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    disk, acked = HostileDisk(), list[tuple[str, int]]()
    loop.run(run_workload(disk, clock, acked))
    assert not list(Verification(disk.kill()).run())


# --- with changes of the streams between ----------------------------------------------------------

CHANGES = range(0, 64, 13)
"""Rounds of the loop between a commit and the changes that come after it: one batch for each."""


def shaped(change: int, batch: int) -> bytes:
    return b'{"a":[%d,%d]}' % (change, batch)


async def evolve(engine: Engine, name: str, **update: object) -> None:
    live = engine.streams.own(name)
    await engine.ingest.install_schema(live, parse_update(msgspec.json.encode(update)))


def schema(key: str) -> dict[str, object]:
    return {"type": "object", "properties": {key: {}}, "required": [key]}


def rename(name: str) -> dict[str, object]:
    ops = [{"op": "rename", "from": "/a", "to": "/b"}]
    return {"apiVersion": "durable.lens/v1", "schema": name, "from": 1, "to": 2, "ops": ops}


async def change(engine: Engine, number: int, acked: list[tuple[str, int]]) -> None:
    """Close one stream and give another one another schema."""
    await engine.streams.write(f"c{number}", None, Write(close=True))
    acked.append(("close", number))
    live = engine.streams.own(f"v{number}")
    if engine.ingest.version(live.log) < 2:
        name = live.log.name
        await evolve(engine, name, schema=schema("b"), lens=rename(name))
    acked.append(("evolve", number))


async def stage_shaped(engine: Engine, number: int, attempt: int) -> list[str]:
    transaction, names = f"t{number}", [f"{part}-{attempt}-0" for part in range(3)]
    for name, log in zip(names, (f"c{number}", f"v{number}", "a"), strict=True):
        chunk = Chunk(log, draft([shaped(number, row) for row in range(2)]))
        await engine.transactions.stage(transaction, 0, name, chunk)
    return names


async def commit_shaped(engine: Engine, number: int, names: list[str]) -> BatchCommitted | None:
    """One batch for both streams; None when they do not take it any more."""
    try:
        return await commit(engine, f"t{number}", 0, names)
    except Refused as refused:
        if refused.code not in (Code.LOG_INCOMPATIBLE, Code.INVALID):
            raise
        return None


async def prepare_changes(engine: Engine) -> None:
    await engine.logs.put("a", "topics", LogConfig(durability=Durability.DISK))
    for number in CHANGES:
        for name in (f"c{number}", f"v{number}"):
            if name not in engine.state.by_name:
                await engine.streams.create(name, Spec(content_type=JSON), None)
        if not engine.ingest.version(engine.state.by_name[f"v{number}"]):
            await evolve(engine, f"v{number}", schema=schema("a"))


async def run_changes(disk: HostileDisk, clock: VirtualClock, acked: list[tuple[str, int]]) -> None:
    started = await boot(disk, clock, pool=Unhurried())
    engine = started.engine
    upkeep = asyncio.create_task(started.upkeep.run())
    await prepare_changes(engine)
    for number in CHANGES:
        names = await stage_shaped(engine, number, 0)
        sending = asyncio.create_task(commit_shaped(engine, number, names))
        for _ in range(number):
            await asyncio.sleep(0)
        await change(engine, number, acked)
        if await sending is not None:
            acked.append(("commit", number))
    upkeep.cancel()


async def promoted(engine: Engine, name: str) -> list[bytes]:
    live = engine.streams.find(name)
    page = await engine.reader.read(live, 0, records_max=99, bytes_max=1 << 20)
    page = engine.ingest.promoted(live.log, page)
    return [piece.block.data_at(at) for piece in page.slices for at in piece.picks]


async def check_changes(engine: Engine, number: int, *, is_in: bool) -> None:
    want = [shaped(number, row) for row in range(2)] if is_in else []
    if f"c{number}" in engine.state.by_name:
        assert await promoted(engine, f"c{number}") == want
    if f"v{number}" in engine.state.by_name:
        live = engine.streams.find(f"v{number}")
        key = b"b" if engine.ingest.version(live.log) == 2 else b"a"
        assert await promoted(engine, f"v{number}") == [row.replace(b"a", key) for row in want]
    there = "a" in engine.state.by_name
    held = [r.data for r in (await view(engine, "a")).records.values()] if there else []
    assert [data for data in held if json.loads(data)["a"][0] == number] == want


async def recover_changes(
    disk: HostileDisk, clock: VirtualClock, acked: frozenset[tuple[str, int]]
) -> None:
    """Whoever was not answered asks again at once; what was decided comes before that."""
    engine = (await boot(disk, clock, pool=Unhurried())).engine
    transactions = engine.transactions
    decided = {number for number in CHANGES if transactions.last(f"t{number}") is not None}
    assert {number for what, number in acked if what == "commit"} <= decided
    for what, number in acked:
        if what == "close":
            stream = engine.state.by_name[f"c{number}"].stream
            assert stream is not None
            assert stream.closed
        if what == "evolve":
            assert engine.ingest.version(engine.state.by_name[f"v{number}"]) == 2
    await asyncio.gather(
        transactions.resume(),
        *(
            change(engine, n, [])
            for n in CHANGES
            if f"v{n}" in engine.state.by_name
            and engine.ingest.version(engine.state.by_name[f"v{n}"])
        ),
    )
    await prepare_changes(engine)
    for number in CHANGES:
        await check_changes(engine, number, is_in=number in decided)
        done = await commit_shaped(engine, number, await stage_shaped(engine, number, 1))
        assert (number in decided) is (done is not None and done.repeated)
        await check_changes(engine, number, is_in=done is not None)
        await transactions.abort(f"t{number}", 0)
    assert not [name for name in disk.list("staged") if name.endswith(".chunk")]


def test_crash_at_every_call_while_streams_change(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    moments = record(loop, clock, run_changes)
    committed = [number for what, number in moments[-1].acked if what == "commit"]
    assert 0 < len(committed) < len(CHANGES), "all batches came before the changes, or behind them"
    crash_everywhere(loop, clock, moments, recover_changes)


# --- first batches of several writers to a topic that is not there --------------------------------

FIRSTS = (0, 2, 6)
"""Rounds of the loop between two writers who both bring a topic its first batch."""


def writers(number: int) -> tuple[str, str]:
    return f"t{number}", f"u{number}"


async def send_first(engine: Engine, transaction: str, attempt: int) -> BatchCommitted:
    """A batch for a topic that is there or not; another attempt has chunks of its own."""
    chunk = Chunk(f"n{transaction[1:]}", draft([json.dumps(transaction).encode()]))
    name = f"0-{attempt}-0"
    await engine.transactions.stage(transaction, 0, name, chunk)
    return await commit(engine, transaction, 0, [name])


async def run_firsts(disk: HostileDisk, clock: VirtualClock, acked: list[tuple[str, int]]) -> None:
    engine = (await boot(disk, clock, delay_s=lambda: 0.01)).engine

    async def send(transaction: str, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert not (await send_first(engine, transaction, 0)).repeated
        acked.append((transaction, 0))

    for number in FIRSTS:
        first, second = writers(number)
        await asyncio.gather(send(first, 0), send(second, number))


async def recover_firsts(
    disk: HostileDisk, clock: VirtualClock, acked: frozenset[tuple[str, int]]
) -> None:
    engine = (await boot(disk, clock)).engine
    transactions = engine.transactions
    await transactions.resume()
    everybody = [transaction for number in FIRSTS for transaction in writers(number)]
    decided = {each for each in everybody if transactions.last(each) is not None}
    assert {transaction for transaction, _ in acked} <= decided

    async def held() -> list[str]:
        views = await view_all(engine)
        return sorted(json.loads(r.data) for v in views.values() for r in v.records.values())

    assert await held() == sorted(decided), "decided, and not there"
    for transaction in everybody:
        done = await send_first(engine, transaction, 1)
        assert done.repeated is (transaction in decided)
    assert await held() == sorted(everybody)


def test_crash_at_every_call_of_first_batches(loop: VirtualLoop) -> None:
    """A batch is not decided for a topic that a crash could still take."""
    clock = VirtualClock(loop)
    moments = record(loop, clock, run_firsts)
    assert len(moments[-1].acked) > len(FIRSTS)
    crash_everywhere(loop, clock, moments, recover_firsts)
