"""Starting and stopping an engine: recover, open the journal, put upkeep beside it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core import state as core_state
from headrace.engine.engine import Engine, EngineParts
from headrace.engine.upkeep.cycle import Upkeep
from headrace.formats import layout
from headrace.storage import unsynced
from headrace.storage.disk import sweep
from headrace.storage.journal import Journal
from headrace.storage.ownership import own
from headrace.storage.recovery import Recovered, Recovery, settle
from headrace.storage.segments import Segments
from headrace.storage.staging import Staging


class Started(msgspec.Struct, frozen=True):
    engine: Engine
    upkeep: Upkeep
    recovered: Recovered


async def start(
    parts: EngineParts, progress: Callable[[float], None] = lambda share: None
) -> Started:
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
        core_state.apply(recovered.state, loss)
    journal = Journal(parts.disk, recovered.position)
    journal.open(parts.writer)
    engine = Engine(parts, recovered, journal, segments, staging, ownership)
    for log in recovered.state.logs.values():
        live = engine.adopt(log, recovered.blocks.pop(log.id, []))
        if log.stream is not None:
            engine.streams.expiry.opened(live)
        if log.subscription is not None:
            engine.subscriptions.active.opened(live)
    engine.upkeep.resume(recovered)
    await engine.key_rules.open()
    await engine.identified_appender.open()
    engine.routers.open()
    engine.webhooks.delivery.open()
    await engine.transactions.open()
    await journal.wait_synced(journal.tail)
    if recovered.sync_failed:
        await parts.pool.run(unsynced.forget, parts.disk)
    return Started(engine, engine.upkeep, recovered)


async def stop(started: Started) -> None:
    """No more writes; what is to be forwarded, snapshot, last sync, end of the writer."""
    started.engine.drain()
    await started.engine.sender.stop()
    await started.engine.routers.forwarder.stop()
    await started.upkeep.stop()
    await started.engine.journal.close()
