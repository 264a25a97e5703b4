"""Trackers in operation: made, polled, deleted.

A tracker is a log without records, so that it is journaled, recovered and dropped as any log.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Literal

import msgspec

from headrace.core import read as reading
from headrace.core import state as core_state
from headrace.core import tracker as rules
from headrace.core.config import Durability, LogConfig
from headrace.core.entry import Drop, NotePoll, SetTracker
from headrace.core.errors import Code, Refused
from headrace.core.owners import TRACKER_PREFIX, TRACKERS
from headrace.core.read import Gap, Page
from headrace.core.tracker import Tracker
from headrace.engine.consumers.sources import Sources
from headrace.engine.kernel import Kernel
from headrace.engine.logs.reader import Reader
from headrace.engine.open_log import OpenLog

_CONFIG = LogConfig(durability=Durability.FSYNC, auto_create=False)


class Tracked(msgspec.Struct, frozen=True):
    """A tracker as it was when somebody looked."""

    name: str
    live: OpenLog
    source: OpenLog | None
    """None once the log that it reads is gone."""
    state: Tracker
    """A copy: what changes from then on may not be durable when this is told."""


class Polled(msgspec.Struct, frozen=True):
    """What a poll found: records to be handled, and where the tracker stands."""

    tracked: Tracked
    page: Page
    """`page.next` is what to acknowledge when all of it is handled."""


class Trackers:
    """The trackers of one engine, of all surfaces: `name` begins with that of the surface."""

    def __init__(self, kernel: Kernel, sources: Sources, reader: Reader) -> None:
        self._kernel = kernel
        self._sources = sources
        self._reader = reader
        self._noted: dict[int, int] = {}
        """Where each tracker was last written down, by its log."""
        kernel.observe(self._dropped, Drop)

    def _dropped(self, live: OpenLog, _: Drop) -> None:
        self._noted.pop(live.log.id, None)

    def __contains__(self, name: str) -> bool:
        return TRACKER_PREFIX + name in self._kernel.state.by_name

    def find(self, name: str) -> Tracked:
        log = self._kernel.state.by_name.get(TRACKER_PREFIX + name)
        if log is None:
            title = name.rpartition("/")[2]
            raise Refused(Code.TRACKER_NOT_FOUND, f'tracker "{title}" does not exist')
        return self._tracked(self._kernel.open_logs[log.id])

    def _tracked(self, live: OpenLog) -> Tracked:
        state = live.log.consumer
        assert isinstance(state, Tracker)
        name, source = live.log.name.removeprefix(TRACKER_PREFIX), self._sources.find(state.source)
        return Tracked(name, live, source, copy(state))

    async def get(self, name: str) -> Tracked:
        """A tracker, once what is told of it is durable."""
        tracked = self.find(name)
        await self._settle([tracked])
        return tracked

    async def _settle(self, told: list[Tracked]) -> None:
        """Wait until what there is to tell of trackers is durable."""
        positions = (
            max(self._noted.get(each.live.log.id, 0), each.live.config_position) for each in told
        )
        await self._kernel.journal.wait_to_tell(max(positions, default=0), sync=True)

    async def page(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[Tracked], bool]
    ) -> tuple[list[Tracked], bool]:
        """Up to `count_max` trackers by name, and whether there are more, once that is durable."""
        found, more = self._look(after, prefix, count_max, wanted)
        await self._settle(found)
        await self._kernel.settle_control()
        return found, more

    def _look(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[Tracked], bool]
    ) -> tuple[list[Tracked], bool]:
        kernel, found = self._kernel, list[Tracked]()
        behind = TRACKER_PREFIX + after if after else ""
        for name in kernel.state.names(behind, TRACKER_PREFIX + prefix, TRACKERS):
            tracked = self._tracked(kernel.open_logs[kernel.state.by_name[name].id])
            if not wanted(tracked):
                continue
            if len(found) == count_max:
                return found, True
            found.append(tracked)
        return found, False

    async def put(
        self,
        name: str,
        source: str,
        start_from: Literal["earliest", "latest"],
        created_by: str = "",
    ) -> tuple[Tracked, bool]:
        """Make a tracker, or find it; says whether it is new.

        One whose log is gone begins anew with the log that has the name now.
        """
        kernel = self._kernel
        kernel.check_open()
        found = self._sources.open(source)
        log, visible = found.log, found.visible
        cursor = visible if start_from == "latest" else min(log.earliest - 1, visible)
        known = kernel.state.by_name.get(TRACKER_PREFIX + name)
        if known is None:
            kernel.caps.check_logs(kernel.state, TRACKERS, created_by)
            created = core_state.create(
                kernel.state,
                TRACKER_PREFIX + name,
                TRACKERS,
                _CONFIG,
                kernel.clock.now_ms(),
                created_by,
            )
            begin = SetTracker(created.log, log.id, log.name, cursor)
            await kernel.commit_synced([created, begin], together=True)
            return self.find(name), True
        tracked = self.find(name)
        if tracked.state.source != log.id:
            if tracked.source is not None:
                raise Refused(
                    Code.CONFLICT,
                    f'the tracker reads "{tracked.state.source_name}"; delete it first',
                    source=tracked.state.source_name,
                )
            await kernel.commit_synced([SetTracker(known.id, log.id, log.name, cursor)])
        else:
            await kernel.journal.wait_synced(tracked.live.config_position)
        return self.find(name), False

    async def delete(self, name: str) -> None:
        self._kernel.check_open()
        await self._kernel.commit_synced([Drop(self.find(name).live.log.id)])

    async def poll(
        self,
        name: str,
        node: str,
        *,
        ack: int | None,
        fence: int | None,
        records_max: int,
        bytes_max: int,
    ) -> Polled:
        """Acknowledge what is handled, renew the lease or take it, and get what comes next.

        All of it is durable when this returns.
        """
        kernel = self._kernel
        kernel.check_open()
        tracked = self.find(name)
        source, live, tracker = tracked.source, tracked.live, tracked.state
        if source is None:
            raise _gone(tracker)
        kernel.expire_now(source)
        lost = self._loss(source, tracker.cursor)
        try:
            entry = rules.poll(
                live.log.id,
                tracker,
                node,
                ack=ack,
                fence=fence,
                lost_upto=0 if lost is None else lost.last,
                now_ms=kernel.clock.now_ms(),
            )
        except Refused:
            await self._settle([tracked])  # who holds it, and how far it came
            raise
        if (lost := self._loss(source, entry.cursor)) is not None:
            if entry.cursor > tracker.cursor:  # else nobody could acknowledge what is lost behind
                await kernel.journal.wait_synced(self._note(entry))
            await kernel.settle(source)
            raise _expired(lost, entry.cursor)
        position = self._note(entry)
        page = await self._reader.read(
            source, entry.cursor, records_max=records_max, bytes_max=bytes_max
        )
        kernel.check_alive(live)
        if page.gap is not None:
            raise _expired(page.gap, entry.cursor)
        tracked = self._tracked(live)
        if tracked.state.fence != entry.fence:
            raise Refused(Code.FENCED, "another node has taken over meanwhile")
        if page.next > tracked.state.given:
            position = self._note(rules.give(live.log.id, tracked.state, page.next))
            tracked = self._tracked(live)
        await kernel.journal.wait_synced(position)
        return Polled(tracked, page)

    def _note(self, entry: NotePoll) -> int:
        position = self._noted[entry.log] = self._kernel.commit([entry], sync=True)
        return position

    def _loss(self, source: OpenLog, cursor: int) -> Gap | None:
        """What retention or a crash took right behind the cursor."""
        return reading.plan(source.log, source.visible, cursor, None).gap


def _gone(tracker: Tracker) -> Refused:
    return Refused(
        Code.SOURCE_DELETED,
        f'the log "{tracker.source_name}" was deleted; put the tracker again to read a new one',
        source=tracker.source_name,
    )


def _expired(lost: Gap, cursor: int) -> Refused:
    return Refused(
        Code.CURSOR_EXPIRED,
        f"records {lost.first} to {lost.last} are gone; acknowledge {lost.last} to go on behind",
        cursor_seq=cursor,
        lost_from_seq=lost.first,
        lost_to_seq=lost.last,
        earliest_seq=lost.last + 1,
        reason=lost.reason.value,
    )
