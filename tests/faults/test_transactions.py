"""Transactions through crashes: every disk call of a workload as crash point.

Whatever happened, a client that stages and commits again what was not acknowledged, cut otherwise
than before, finds every batch in its logs exactly once.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest
from hostile import HARMLESS, HostileDisk, Survival
from rig import boot, small, view_all
from virtual import VirtualClock, VirtualLoop

from headrace.core.config import Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.record import draft
from headrace.core.streaming import Spec
from headrace.core.transaction import Chunk
from headrace.engine.engine import Engine
from headrace.engine.transactions import Committed
from headrace.storage.verification import Verification

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
            if await engine.transactions.stage(transaction, batch, name, chunk):
                names.append(name)
    return names


async def commit(engine: Engine, transaction: str, batch: int, names: list[str]) -> Committed:
    return await engine.transactions.commit(
        transaction, batch, names, owner="topics", create=LogConfig()
    )


async def send(engine: Engine, transaction: str, batch: int, attempt: int) -> Committed:
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


def record(loop: VirtualLoop, clock: VirtualClock) -> list[Moment]:
    moments: list[Moment] = []
    acked: list[tuple[str, int]] = []
    disk = HostileDisk()

    def note(number: int, kind: str, path: str) -> None:
        if kind not in HARMLESS:
            moments.append(Moment(number, f"{kind} {path}", disk.copy(), frozenset(acked)))

    disk.before = note
    loop.run(run_workload(disk, clock, acked))
    assert len(acked) == len(BATCHES)
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
    assert sorted(disk.list("staged")) == ["t.4.commit", "u.4.commit"]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    with small():
        yield made
    made.close()


def test_crash_at_every_call(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    moments = record(loop, clock)
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
        loop.run(recover(disk.kill(), clock, frozenset(acked)))


def test_staged_files_and_notes_stand_up_to_verification(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    disk, acked = HostileDisk(), list[tuple[str, int]]()
    loop.run(run_workload(disk, clock, acked))
    assert not list(Verification(disk.kill()).run())
