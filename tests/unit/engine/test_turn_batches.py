"""Batches of a turn: whatever becomes of one, each writer is told, and the others go on."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.record import draft
from headrace.engine.logs.append_batch import AppendBatch, TurnBatches
from headrace.engine.start import Started
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop


async def make_logs(server: Started) -> None:
    for name in ("bad", "good"):
        await server.engine.logs.put(name, "topics", LogConfig(), "")


@pytest.mark.parametrize("error", [ZeroDivisionError(), Refused(Code.INVALID, "no")])
def test_what_cannot_be_appended_is_told_to_each_writer(
    loop: VirtualLoop, error: Exception
) -> None:
    def append(batch: AppendBatch) -> None:
        if batch.live.log.name == "bad":
            raise error
        batch.first = 1
        batch.commit()

    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await make_logs(server)
        engine = server.engine
        batches = TurnBatches(engine.journal, append)
        drafts, writers = draft([b"1"]), []
        for name in ("bad", "good"):
            live = engine.open_logs[engine.state.by_name[name].id]
            assert not batches.takes(live, drafts), "the first one goes straight in"
            for _ in range(2):
                assert batches.takes(live, drafts)
                writers.append(batches.join(live, drafts))
        told = await asyncio.gather(*writers, return_exceptions=True)
        assert told == [error, error, 1, 2]

    loop.run(story())
