"""Rules by key on every way into a log, at a start and while a log changes, and what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.entry import Append, Delete
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.limits import SURPLUS_STEP
from headrace.core.record import draft
from headrace.core.transaction import Chunk
from headrace.engine.engine import Engine
from headrace.engine.routers.control import RouterPlan
from headrace.storage.checks.findings import Problem
from headrace.storage.replay import frames_of, journal_files
from headrace.storage.verification import Verification
from support.engine_harness import Unhurried, boot, view
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

NEWEST = LogConfig(durability=Durability.FSYNC, keep_per_key=1)


async def append(engine: Engine, name: str, *keys: str | None, create: LogConfig = NEWEST) -> None:
    drafts = draft([b"1"] * len(keys), keys=list(keys))
    await engine.appender.append(name, drafts, owner="topics", create=create)


async def held(engine: Engine, name: str) -> dict[int, str | None]:
    found = await view(engine, name)
    assert not found.gaps, "what is superseded is no loss"
    assert found.count == len(found.records)
    return {seq: record.key for seq, record in found.records.items()}


def run(loop: VirtualLoop, work: Coroutine[Any, Any, None]) -> None:
    loop.run(work)


def test_an_append_and_what_it_supersedes_are_one_frame(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk = HostileDisk()
        started = await boot(disk, VirtualClock(loop))
        await append(started.engine, "a", "k", None)
        await append(started.engine, "a", "k")
        frames = [
            [type(entry) for entry in frame.entries]
            for file in journal_files(disk)
            for frame in frames_of(disk, file)
        ]
        assert [Append, Delete] in frames
        assert await held(started.engine, "a") == {2: None, 3: "k"}

    run(loop, story())


def test_a_transaction_supersedes(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, "a", "k", "l")
        for chunk in ("1", "2"):
            drafts = draft([b"1"] * 3, keys=["k", "k", chunk])
            await engine.transactions.stage("t", 1, chunk, Chunk("a", drafts))
        await engine.transactions.commit("t", 1, ["1", "2"], owner="topics", create=None)
        assert await held(engine, "a") == {2: "l", 5: "1", 7: "k", 8: "2"}

    run(loop, story())


def test_copies_of_a_router_supersede_and_do_so_again_after_a_crash(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await append(engine, "source", "k", "l", create=LogConfig(durability=Durability.FSYNC))
        await engine.logs.put("dest", "topics", NEWEST)
        await engine.routers.put("r", RouterPlan("source", "dest", Rule(), after=0), "topics")
        await append(engine, "source", "k", None, "m", "m")
        expected = {2: "l", 3: "k", 4: None, 6: "m"}
        assert await held(engine, "dest") == expected
        disk = disk.lose_power(Survival.NOTHING, Random(0))
        engine = (await boot(disk, clock)).engine
        assert await held(engine, "dest") == expected

    run(loop, story())


def test_a_new_rule_is_true_at_once_wherever_records_lie(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock, pool=Unhurried())
        engine, upkeep = started.engine, asyncio.create_task(started.upkeep.run())
        plain = LogConfig(durability=Durability.FSYNC)
        for _ in range(3):
            await append(engine, "a", "k", "l", "m", None, create=plain)
            await engine.seal()
        await append(engine, "a", "l", create=plain)
        rule = LogConfig(durability=Durability.FSYNC, keep_per_key=1, keys_max=2)
        # Somebody appends while the log learns what it has.
        await asyncio.gather(
            engine.logs.put("a", "topics", rule), append(engine, "a", "n", create=plain)
        )
        expected = {4: None, 8: None, 12: None, 13: "l", 14: "n"}
        assert await held(engine, "a") == expected
        upkeep.cancel()
        disk = disk.lose_power(Survival.NOTHING, Random(0))
        assert not [f for f in Verification(disk.copy().kill()).run() if isinstance(f, Problem)]
        engine = (await boot(disk, clock)).engine
        assert await held(engine, "a") == expected
        await engine.logs.put("a", "topics", plain)
        await append(engine, "a", "n", "n")
        assert len(await held(engine, "a")) == len(expected) + 2

    run(loop, story())


def test_a_start_goes_on_with_a_rule_that_a_crash_came_between(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await append(engine, "a", "k", "l", "k", create=LogConfig(durability=Durability.FSYNC))

        async def nothing(live: object) -> None:
            """A crash would come before this."""

        engine.key_rules.enforce = nothing  # type: ignore[method-assign, assignment]
        await engine.logs.put("a", "topics", NEWEST)
        engine = (await boot(disk.kill(), clock)).engine
        assert await held(engine, "a") == {2: "l", 3: "k"}

    run(loop, story())


def test_a_log_that_is_dropped_while_a_rule_comes_is_gone_for_good(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is journaled of it behind the drop would keep the server from starting."""
    monkeypatch.setattr("headrace.engine.flow.time_slices.WALK_MS", -1)

    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        keys = [f"k{n}" for n in range(3 * SURPLUS_STEP)] * 2
        await append(engine, "a", *keys, create=LogConfig(durability=Durability.FSYNC))
        live = engine.live("a")
        ruling = asyncio.ensure_future(engine.logs.put("a", "topics", NEWEST))
        for _ in range(1000):
            if live.deletions:
                break
            await asyncio.sleep(0.001)
        assert 0 < live.deletions < 3
        await engine.logs.drop("a", if_empty=False, owner="topics")
        with pytest.raises(Refused):
            await ruling
        engine = (await boot(disk.kill(), clock)).engine
        assert "a" not in engine.state.by_name

    run(loop, story())


def test_a_rule_and_a_cap_come_true_though_another_config_comes_between(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.flow.time_slices.WALK_MS", -1)

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        for number in range(10):
            await append(engine, "a", f"k{number}", create=LogConfig())
        rule = LogConfig(durability=Durability.FSYNC, keep_per_key=1, cap_records=5)
        await asyncio.gather(
            engine.logs.put("a", "topics", rule),
            engine.logs.put("a", "topics", LogConfig(durability=Durability.FSYNC)),
        )
        assert engine.live("a").log.config == rule
        assert list((await view(engine, "a")).records) == [6, 7, 8, 9, 10]

    run(loop, story())


def test_what_was_refused_is_not_remembered_for_followers(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, "a", "k")
        live = engine.live("a")
        live.listen(lambda: None)
        with monkeypatch.context() as patched:
            patched.setattr(engine.journal, "enqueue", refuse)
            with pytest.raises(Refused):
                await append(engine, "a", "k")
        await append(engine, "a", "l")
        await append(engine, "a", "l")
        recalled = live.recall(2, 3)
        assert recalled is not None
        assert [(block.first, block.keys) for block in recalled] == [(2, ["l"]), (3, ["l"])]

    run(loop, story())


def test_what_a_cap_takes_while_keys_are_learnt_is_not_known_by_key(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.flow.time_slices.WALK_MS", -1)

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        cap = LogConfig(durability=Durability.FSYNC, cap_records=6)
        rule = LogConfig(durability=Durability.FSYNC, cap_records=6, keep_per_key=1)
        await append(engine, "a", *(f"k{n}" for n in range(6)), create=cap)
        await asyncio.gather(engine.logs.put("a", "topics", rule), append(engine, "a", "l", "m"))
        live = engine.live("a")
        assert live.keyed is not None
        assert (live.keyed.records, live.log.count) == (6, 6)
        assert sorted(live.keyed.keys()) == ["k2", "k3", "k4", "k5", "l", "m"]

    run(loop, story())


@pytest.mark.parametrize("one", [True, False])
def test_what_is_deleted_on_purpose_is_not_remembered_for_followers(
    loop: VirtualLoop, one: bool
) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, "a", "k")
        live = engine.live("a")
        live.listen(lambda: None)
        await append(engine, "a", "k")
        await append(engine, "a", "k")
        assert live.recall(2, 3) is not None
        if one:
            assert await engine.deleter.delete_seq("a", 3, owner="topics")
        else:
            await engine.deleter.delete("a", None, None)
        assert live.recall(2, 3) is None

    run(loop, story())


def refuse(*_: object, **__: object) -> None:
    raise Refused(Code.BATCH_TOO_LARGE, "this is more than a frame may hold")


def test_a_retry_is_told_of_the_record_that_was_superseded(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        drafts = draft([b"1"], keys=["k"])

        async def write(key: str) -> int:
            done = await engine.appender.append("a", drafts, owner="topics", create=NEWEST, key=key)
            return done.first

        assert [await write("x"), await write("y"), await write("x")] == [1, 2, 1]
        assert await held(engine, "a") == {2: "k"}

    run(loop, story())


def test_a_rule_on_a_queue_is_refused_and_changes_nothing(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        with pytest.raises(Refused):
            await engine.logs.put("a", "topics", LogConfig(keys_max=2))
        assert "a" not in engine.state.by_name

    run(loop, story())


def test_memory_holds_what_is_kept_and_not_all_that_ever_came(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        rule = LogConfig(durability=Durability.EPHEMERAL, keep_per_key=1, keys_max=50)
        await append(engine, "a", "the first stays", *(f"k{n}" for n in range(49)), create=rule)
        live = engine.live("a")
        for turn in range(5000):
            await append(engine, "a", f"k{turn % 49}")
        assert len(await held(engine, "a")) == 50
        records = sum(block.count for block in live.tail.blocks)
        assert records < 50 + 3 * 256
        assert engine.tail_bytes == sum(
            len(block.data) + len(block.ends) + 320 for block in live.tail.blocks
        )

    run(loop, story())


def test_a_ledger_forgets_what_is_superseded(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        engine = (await boot(HostileDisk(), clock)).engine
        rule = LogConfig(keep_per_key=1, cap_records=1000)
        await append(engine, "a", "the first stays", create=rule)
        for _ in range(3000):
            clock.skew_ms += 1  # runs of equal records would be one
            await append(engine, "a", "k")
        ledger = engine.live("a").log.ledger
        assert ledger is not None
        assert len(ledger.dump()[0]) // 8 < 3 * 256
        assert await held(engine, "a") == {1: "the first stays", 3001: "k"}

    run(loop, story())


def test_marks_of_what_is_superseded_are_as_many_as_records_that_are_left(
    loop: VirtualLoop,
) -> None:
    async def story() -> None:
        engine, random = (await boot(HostileDisk(), VirtualClock(loop))).engine, Random(1)
        for _ in range(300):
            keys = [f"k{random.randrange(40)}" for _ in range(10)]
            await append(engine, "a", *keys)
        log = engine.live("a").log
        assert len(log.deleted) // 2 <= log.count + 1 <= 41

    run(loop, story())


def test_a_time_is_found_among_records_that_are_superseded(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        started = await boot(HostileDisk(), clock)
        engine, upkeep = started.engine, asyncio.create_task(started.upkeep.run())
        times: list[int] = []
        for turn in range(12):
            clock.skew_ms += 1000
            times.append(clock.now_ms())
            await append(engine, "a", "k" if turn % 3 else f"stays {turn}")
            if turn == 6:
                await engine.seal()
        live = engine.live("a")
        assert list(await held(engine, "a")) == [1, 4, 7, 10, 12]
        for turn, at_ms in enumerate(times):
            after = await engine.reader.seek(live, at_ms * 1_000_000)
            page = await engine.reader.read(live, after, records_max=1, bytes_max=100)
            first = page.slices[0].block.seq_at(page.slices[0].picks[0])
            assert first == min(seq for seq in (1, 4, 7, 10, 12) if seq > turn)
        upkeep.cancel()

    run(loop, story())
