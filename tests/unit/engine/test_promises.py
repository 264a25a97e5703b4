"""Promised seqs: an append that needs a promise waits for the promise and for itself."""

from __future__ import annotations

import asyncio

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.core.state import State
from headrace.engine.caps import Caps
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import Appender
from headrace.engine.ports import SystemClock
from headrace.storage.journal import Journal
from headrace.storage.memory import MemoryDisk
from support.inline_ports import Inline


class Still:
    """A writer that does nothing by itself: the test commits."""

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_synced_promise_does_not_acknowledge_what_is_not_written() -> None:
    async def work() -> None:
        disk = MemoryDisk()
        journal = Journal(disk, 0)
        journal.open(lambda *_: Still())
        kernel = Kernel(State(), journal, SystemClock(), Inline(), Caps())
        appender = Appender(kernel)

        def start(records: int) -> asyncio.Task[object]:
            drafts = draft([b"1"] * records)
            append = appender.append("a", drafts, owner="topics", create=LogConfig())
            return asyncio.ensure_future(append)

        created = start(1)
        await asyncio.sleep(0)
        journal.commit(journal.reached)
        await created
        promising = start(599)
        await asyncio.sleep(0)
        journal.write_next()  # the promise and its own append, but not yet synced
        needing = start(450)  # beyond what was promised before, within the new promise
        await asyncio.sleep(0)
        journal.sync()
        journal.reached(journal.reached_by_writer)
        await promising
        await asyncio.sleep(0)
        assert not needing.done(), "acknowledged before the operating system had it"
        assert kernel.open_logs[1].visible == 600
        journal.commit(journal.reached)
        await needing

    asyncio.run(work())
