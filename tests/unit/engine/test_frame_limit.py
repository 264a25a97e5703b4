"""No frame is larger than can be read back: what would need one is split, or refused before it
changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from unittest import mock

import pytest

from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON
from headrace.core.transaction import Chunk
from headrace.engine.engine import Engine
from headrace.engine.routers.control import RouterPlan
from headrace.engine.routers.steps import Pass
from headrace.engine.timings import Timings
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.schemas.evolution import parse_update
from headrace.storage.replay import frames_of, journal_files
from support.engine_harness import boot, view, view_all
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

FRAME_BYTES = 4000
JOB = b'"%s"' % (b"x" * 600)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    with (
        mock.patch("headrace.formats.frame.FRAME_BYTES_MAX", FRAME_BYTES),
        mock.patch("headrace.engine.queues.dead_letters.MOVE_BYTES_MAX", 1500),
        mock.patch("headrace.engine.routers.steps.FORWARD_FRAME_BYTES", 1500),
        mock.patch("headrace.engine.logs.chunks.CHUNK_BYTES_MAX", 3000),
    ):
        yield made
    made.close()


async def fill(engine: Engine, name: str, count: int, data: bytes = JOB, **config: object) -> None:
    made = LogConfig(**config)  # type: ignore[arg-type]
    for _ in range(count):
        await engine.appender.append(name, draft([data]), owner="topics", create=made)


async def check(disk: HostileDisk, clock: VirtualClock, engine: Engine) -> None:
    """All frames are small enough, and a start finds what there was."""
    left = disk.copy().kill()
    sizes = [frame.size for file in journal_files(left) for frame in frames_of(left, file)]
    assert max(sizes) <= FRAME_BYTES + 100
    found = {name: seen.records for name, seen in (await view_all(engine)).items() if name != "a"}
    after = await view_all((await boot(left.kill(), clock)).engine)
    assert {name: seen.records for name, seen in after.items() if name != "a"} == found


def test_dead_letters_move_by_bytes_and_back(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock, pace=UpkeepPace())).engine
        await fill(engine, "q", 20, kind=Kind.QUEUE, max_deliveries=1, dead_letter="dead")
        for _ in range(20):
            claimed = await engine.queues.claim("q", "n", 20, 10_000, Timings())
            seqs = [piece.block.seq_at(at) for piece in claimed.jobs for at in piece.picks]
            await engine.queues.nack("q", "n", seqs, None, 0)
        await engine.queues.claim("q", "n", 1, None, Timings())
        assert (await view(engine, "q")).count == 0
        assert (await view(engine, "dead")).count == 20
        await check(disk, clock, engine)
        done = await engine.queues.redrive("dead", 100, None, lambda name: None, owner="topics")
        assert (done.redriven, done.skipped, done.left) == (20, 0, 0)
        assert (await view(engine, "q")).count == 20
        await check(disk, clock, engine)

    loop.run(work())


def test_an_append_that_is_too_large_changes_nothing(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock, pace=UpkeepPace())).engine
        await fill(engine, "a", 1)
        before, large = await view_all(engine), draft([JOB] * 8)
        for name, create in (("a", None), ("new", LogConfig())):
            with pytest.raises(Refused) as refused:
                await engine.appender.append(name, large, owner="topics", create=create)
            assert refused.value.code is Code.BODY_TOO_LARGE
        assert await view_all(engine) == before
        await fill(engine, "a", 1)
        await check(disk, clock, engine)

    loop.run(work())


def test_forwards_of_many_routers_share_frames_that_are_small_enough(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock, pace=UpkeepPace(), forwarding=False)).engine
        # Copies cannot name what is not in the journal.
        await engine.logs.put("a", "topics", LogConfig(durability=Durability.EPHEMERAL))
        for number in range(12):
            await engine.logs.put(f"d{number}", "topics", LogConfig())
            plan = RouterPlan("a", f"d{number}", Rule(), after=0)
            await engine.routers.put(f"r{number}", plan, "topics")
        await fill(engine, "a", 2)
        work = Pass(engine, {})
        for router in engine.routers._routers.values():
            work.step(router)
        work.commit()
        for number in range(12):
            assert (await view(engine, f"d{number}")).count == 2
        await check(disk, clock, engine)

    loop.run(work())


def test_a_chunk_that_no_frame_could_hold_is_refused_when_it_is_staged(loop: VirtualLoop) -> None:
    async def work() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop), pace=UpkeepPace())).engine
        chunk = Chunk("a", draft([JOB] * 8), is_json=True)
        with pytest.raises(Refused) as refused:
            await engine.transactions.stage("t", 0, "c", chunk)
        assert refused.value.code is Code.BODY_TOO_LARGE
        assert engine.transactions.waiting.chunks == 0

    loop.run(work())


def test_a_chunk_that_no_frame_could_hold_once_it_is_formed_is_refused(loop: VirtualLoop) -> None:
    """With its notes: what is decided has to arrive."""

    async def work() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop), pace=UpkeepPace())).engine
        live, _ = await engine.streams.create("s", Spec(content_type=JSON), None)
        await engine.ingest.install_schema(live, parse_update(b'{"schema":{"type":"string"}}'))
        transactions, sent, arrived = engine.transactions, 0, 0
        for sent, size in enumerate(range(FRAME_BYTES - 400, FRAME_BYTES, 10), 1):
            name, record = f"t{sent}", b'"%b"' % (b"x" * size)
            await transactions.stage(name, 0, "c", Chunk("s", draft([record])))
            with suppress(Refused):
                await transactions.commit(name, 0, ["c"], owner="topics", create=None)
                arrived += 1
            assert (transactions.last(name) is not None) == (arrived == sent), "decided, not there"
            assert live.visible == arrived
        assert 0 < arrived < sent

    with (
        mock.patch("headrace.engine.logs.chunks.CHUNK_BYTES_MAX", 2 * FRAME_BYTES),
        mock.patch("headrace.engine.logs.transactions.CHUNK_NOTES_BYTES_MAX", 200),
    ):
        loop.run(work())
