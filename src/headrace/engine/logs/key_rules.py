"""Rules by key in operation: what logs that have one know of their records by key, and the end of
records that were there before the rule.

What an append supersedes is decided with it (`core.supersession`); this is for all else: a start,
and a rule that is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing, suppress

from headrace.core import supersession
from headrace.core.entry import Delete
from headrace.core.errors import Refused
from headrace.core.keyed_records import KeyedRecords
from headrace.core.limits import SURPLUS_STEP
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.live_records import index_records
from headrace.engine.open_log import OpenLog


class KeyRules:
    """The rules by key of all logs of an engine."""

    def __init__(self, kernel: Kernel, fetcher: Fetcher) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._unfinished: set[int] = set()

    async def open(self) -> None:
        """At a start: learn what there is, and end what a crash left of a rule that was new."""
        ruled = [live for live in self._kernel.open_logs.values() if live.log.config.keyed]
        for live in ruled:
            await self.fill(live)
        for live in ruled:
            with suppress(Refused):  # no room: appends go on with it
                await self.enforce(live)

    async def fill(self, live: OpenLog) -> None:
        """Learn the keys of every live record there is."""
        keyed = await index_records(self._fetcher, live, KeyedRecords)
        keyed.drop_below(live.log.floor)
        live.keyed = keyed

    async def enforce(self, live: OpenLog) -> None:
        """Delete what a log has beyond its rule, step by step; durable when this returns.

        Should a crash come between, the next start goes on with it; should it be refused, who asks
        for the same rule again, or the next append of each key.
        """
        kernel, log, position = self._kernel, live.log, 0
        self._unfinished.add(log.id)
        async with aclosing(slices(self._surplus(live))) as steps:
            async for delete in steps:
                if delete is not None:
                    kernel.check_writable()
                    kernel.check_alive(live)  # it may have been dropped during a rest
                    position = kernel.commit([delete], sync=True)
        self._unfinished.discard(log.id)
        if position:
            await kernel.journal.wait_synced(position, live.wake)

    async def finish(self, live: OpenLog) -> None:
        """Go on with a rule that was refused half-way."""
        if live.log.id in self._unfinished:
            await self.enforce(live)

    def _surplus(self, live: OpenLog) -> Iterator[Delete | None]:
        """What is too much, decided anew at each step: others write, and change rules, between."""
        log, keyed, at = live.log, live.keyed, 0
        # Nearly always a start finds one record of each key: there is nothing to look for.
        keys = keyed.keys() if keyed is not None and keyed.records > keyed.count else []
        while at < len(keys) and live.keyed is not None:
            delete, at = supersession.surplus(log, live.keyed, keys, at, SURPLUS_STEP)
            yield delete
        while live.keyed is not None:
            delete = supersession.surplus_keys(log, live.keyed, SURPLUS_STEP)
            if delete is None:
                return
            yield delete
