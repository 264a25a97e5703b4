"""The server's own metrics: only what happened, in intervals that follow each other."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from headrace.core.limits import SERIES_MAX
from headrace.core.names import METRICS_STREAM
from headrace.engine.engine import Engine
from headrace.engine.streams.metering import Meter, Metering
from headrace.schemas.registry import decode_registry
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop


async def read(engine: Engine) -> list[dict[str, Any]]:
    live = engine.streams.find(METRICS_STREAM)
    page = await engine.reader.read(live, 0, records_max=1000, bytes_max=1 << 20)
    return [
        msgspec.json.decode(part.block.data_at(at)) for part in page.slices for at in part.picks
    ]


def test_nothing_is_written_while_nothing_happens(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine, meter = started.engine, Meter()
        task = asyncio.create_task(Metering(engine, meter, 10_000).run())
        await asyncio.sleep(60)
        assert METRICS_STREAM not in engine.state.by_name
        position = engine.journal.tail
        meter.appended(3, 300)
        await asyncio.sleep(15)
        assert engine.journal.tail > position
        position = engine.journal.tail
        await asyncio.sleep(600)
        assert engine.journal.tail == position, "its own writes are nothing to tell"
        task.cancel()

    loop.run(story())


def test_intervals_follow_each_other_and_hold_what_came_in_between(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine, meter = started.engine, Meter()
        metering = Metering(engine, meter, 10_000)
        for round in (1, 2):
            meter.request("append", 0.5, done=True)
            meter.request("append", 9.0 * round, done=True)
            meter.request("append", 5, done=False)
            await asyncio.sleep(10)
            await metering.flush()
        found = [each for each in await read(engine) if each["metric"] == "stream.request"]
        ok = [each for each in found if each["attributes"]["outcome"] == "ok"]
        assert [each["count"] for each in ok] == [2, 2]
        assert [each["max"] for each in ok] == [9, 18]
        assert [each["buckets"] for each in ok] == [{"1": 1, "8": 1}, {"1": 1, "16": 1}]
        assert ok[0]["windowEnd"] == ok[1]["windowStart"]
        assert len(found) == 4
        log = engine.state.by_name[METRICS_STREAM]
        assert log.stream is not None
        registry = decode_registry(log.stream.registry)
        assert (registry.current_version, registry.routing_key, log.search) == (1, None, None)
        assert all(block.keys is None for block in engine.open_logs[log.id].tail.blocks)
        assert engine.state.count_of("streams") == 0

    loop.run(story())


def test_what_cannot_be_written_now_is_written_later(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine, meter = started.engine, Meter()
        metering = Metering(engine, meter, 10_000)
        meter.appended(1, 1)
        engine.admission.room.clear()
        await metering.flush()
        assert METRICS_STREAM not in engine.state.by_name
        engine.admission.room.set()
        meter.appended(1, 1)
        await metering.flush()
        records = [each for each in await read(engine) if each["unit"] == "count"]
        assert [each["count"] for each in records if each["metric"] == "stream.append.records"] == [
            2
        ]

    loop.run(story())


def test_there_are_only_so_many_series() -> None:
    meter = Meter()
    for number in range(SERIES_MAX + 10):
        meter.request(str(number), 1, done=True)
    assert len(meter.series) == SERIES_MAX
