"""Starting and stopping an engine: recover, open the journal, put upkeep beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from headrace.core import state as catalog
from headrace.engine.caps import Caps
from headrace.engine.engine import Engine
from headrace.engine.ports import Clock, Ids, Pool, Sealer
from headrace.engine.upkeep import Pace, Upkeep
from headrace.formats import layout
from headrace.storage import unsynced
from headrace.storage.disk import Disk, sweep
from headrace.storage.journal import Journal, Writer
from headrace.storage.objects import Objects
from headrace.storage.ownership import own
from headrace.storage.recovery import Recovered, Recovery, settle
from headrace.storage.segments import Segments
from headrace.storage.staging import Staging


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is made of."""

    disk: Disk
    objects: Objects
    clock: Clock
    pool: Pool
    sealer: Sealer
    ids: Ids
    writer: Callable[[Journal, asyncio.AbstractEventLoop], Writer]
    caps: Caps
    pace: Pace
    block_cache_bytes: int = 64 << 20


class Started(msgspec.Struct, frozen=True):
    engine: Engine
    upkeep: Upkeep
    recovered: Recovered


async def start(parts: Parts, progress: Callable[[float], None] = lambda share: None) -> Started:
    """Recover what the disk holds and go into operation; losses are durable before anybody sees
    them.
    """
    # First of all: by another's manifest our journal would look damaged.
    ownership = await parts.pool.run(own, parts.disk, parts.objects)
    segments = Segments(parts.objects, parts.block_cache_bytes)
    recovery = Recovery(parts.disk, parts.objects, segments, progress)
    recovered = await parts.pool.run(recovery.run)
    staging = await parts.pool.run(Staging, parts.disk)
    await parts.pool.run(settle, parts.disk, recovered)
    await parts.pool.run(sweep, parts.disk, layout.FOLDERS)
    for loss in recovered.losses:
        catalog.apply(recovered.state, loss)
    journal = Journal(parts.disk, recovered.position)
    journal.open(parts.writer)
    engine = Engine(
        recovered.state, journal, segments, parts.clock, parts.pool, parts.caps, staging
    )
    for log in recovered.state.logs.values():
        live = engine.adopt(log, recovered.blocks.pop(log.id, []))
        if log.stream is not None:
            engine.streams.opened(live)
        if log.subscription is not None:
            engine.subscriptions.opened(live)
    upkeep = Upkeep(
        engine,
        parts.disk,
        parts.objects,
        parts.sealer,
        parts.pool,
        parts.ids,
        parts.pace,
        recovered.manifest,
        ownership,
    )
    upkeep.resume(recovered)
    engine.routers.open()
    await engine.transactions.open()
    await journal.wait_synced(journal.tail)
    if recovered.sync_failed:
        await parts.pool.run(unsynced.forget, parts.disk)
    return Started(engine, upkeep, recovered)


async def stop(started: Started) -> None:
    """No more writes; what is to be forwarded, snapshot, last sync, end of the writer."""
    started.engine.drain()
    await started.engine.subscriptions.stop()
    await started.engine.routers.forwarder.stop()
    await started.upkeep.stop()
    await started.engine.journal.close()
