"""A whole engine on a disk of choice, without threads, processes or real time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Refused
from headrace.core.inbound_route import Rule
from headrace.core.read import Gap
from headrace.core.record import RECORD_OVERHEAD_BYTES
from headrace.engine.callbacks.sender import NoReceivers, Receivers
from headrace.engine.caps import Caps
from headrace.engine.consumers.webhook_format import WebhookFormat
from headrace.engine.engine import Engine, EngineParts
from headrace.engine.ports import Load, Pool
from headrace.engine.routers.forwarding import Forwarder
from headrace.engine.start import Started, start
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.storage.journal import Journal, Writer
from headrace.storage.objects import LocalObjects
from support.hostile import Crash, HostileDisk
from support.inline_ports import CountedIds, Inline, InlineSealer
from support.virtual import VirtualClock, VirtualLoop
from support.writers import Delay, server_writer

CAPS = Caps(tail_bytes=600)
PACE = UpkeepPace(seal_bytes=500, disk_sync_ms=200)
RESERVE_SEQS = 4


class Swallowed(logging.Handler):
    """Exceptions that the product caught and logged, so that others go on: bugs, and assertions of
    tests that ran inside it. What a disk that fails brings about is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._problems: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None and not isinstance(problem, Crash | OSError | Refused):
            self._problems.append(problem)

    def check(self) -> None:
        """Raise the first of them, if there is one."""
        problems, self._problems = self._problems, []
        for problem in problems:
            raise problem


@contextmanager
def nothing_swallowed() -> Iterator[Swallowed]:
    """What was caught and logged inside is raised at the end, unless something else was."""
    swallowed = Swallowed()
    log = logging.getLogger("headrace")
    log.addHandler(swallowed)
    try:
        yield swallowed
    finally:
        log.removeHandler(swallowed)
    swallowed.check()


@contextmanager
def small(perf_counter: Callable[[], float] = lambda: 0.0) -> Iterator[Swallowed]:
    """Few seqs promised ahead, so that promises run out; time slices as told.

    Nothing is forgotten of where copies came from: the model does not either.
    """
    with (
        nothing_swallowed() as swallowed,
        mock.patch("headrace.core.origin.ORIGINS_KEPT", 1 << 30),
        mock.patch("headrace.core.state.RESERVE_SEQS_MIN", RESERVE_SEQS),
        mock.patch("headrace.engine.open_log.RESERVE_SEQS_MIN", RESERVE_SEQS),
        mock.patch("headrace.engine.open_log.RESERVE_SEQS_MAX", RESERVE_SEQS * 4),
        mock.patch("headrace.engine.streams.touch_notifier.perf_counter", perf_counter),
        mock.patch("headrace.engine.upkeep.cycle.perf_counter", perf_counter),
        mock.patch("headrace.engine.flow.time_slices.perf_counter", perf_counter),
        mock.patch("headrace.engine.routers.forwarding.perf_counter", perf_counter),
        mock.patch("headrace.engine.streams.touch_notifier.perf_counter", perf_counter),
        mock.patch("headrace.engine.search.time_slices.perf_counter", perf_counter),
        mock.patch("headrace.delivery.channel.perf_counter", perf_counter),
    ):
        yield swallowed


class Unhurried:
    """A pool whose work takes some rounds of the loop, so that others come in between."""

    busy = 0.0
    load = Load(1, 0, 0)

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        done = work(*args, **kwargs)
        for _ in range(3):
            await asyncio.sleep(0)
        return done


async def boot(
    disk: HostileDisk,
    clock: VirtualClock,
    *,
    caps: Caps = CAPS,
    pace: UpkeepPace = PACE,
    pool: Pool | None = None,
    make_writer: Callable[[Journal, Delay], Writer] = server_writer,
    delay_s: Delay = lambda: 0.0,
    throttled: bool = False,
    forwarding: bool = True,
    receivers: Receivers | None = None,
    webhook_formats: Mapping[str, WebhookFormat] | None = None,
) -> Started:
    """Start the engine as a server does, on this disk; writers are not held back unless told.

    Without `forwarding`, what was found can be looked at before routers go on.
    """
    disk.make_folder("")
    disk.lock("LOCK")
    ids, pool = CountedIds(), pool or Inline()
    objects = LocalObjects(disk, CountedIds().token)
    parts = EngineParts(
        disk=disk,
        objects=objects,
        clock=clock,
        pool=pool,
        sealer=InlineSealer(disk, objects, pool),
        ids=ids,
        writer=lambda journal, loop: make_writer(journal, delay_s),
        caps=caps,
        pace=pace,
        receivers=receivers or NoReceivers(),
        webhook_formats=webhook_formats or {},
    )
    with nullcontext() if forwarding else mock.patch.object(Forwarder, "_schedule"):
        started = await start(parts)
    started.engine.routers.forwarder._closed = not forwarding
    if not throttled:
        started.upkeep._memory_max = 1 << 30
    return started


def go_on(started: Started) -> None:
    """Let routers go on in an engine that was started without forwarding."""
    started.engine.routers.forwarder._closed = False
    started.engine.routers.open()


def halt(started: Started) -> None:
    """The process is gone, and its timers with it."""
    started.engine.routers.forwarder._closed = True


class Record(NamedTuple):
    """One record as a reader gets it."""

    data: bytes
    meta: bytes | None
    tag: str | None
    node: str | None
    ts_ms: int
    key: str | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.meta or b"") + RECORD_OVERHEAD_BYTES


class View(NamedTuple):
    """All a reader can learn of one log."""

    id: int
    config: LogConfig
    records: dict[int, Record]
    gaps: list[Gap]
    head: int
    floor: int
    earliest: int
    count: int
    size_bytes: int
    inbound_routes: dict[str, tuple[int, int, int, Rule]]
    """Router → (source, cursor, copies made)."""

    def lost(self, seq: int) -> bool:
        """Whether readers are told that this seq is gone."""
        return any(gap.first <= seq <= gap.last for gap in self.gaps)


async def view(engine: Engine, name: str) -> View:
    """Read one log from its start to its head, in small pages."""
    live = engine.state_of(name)
    records: dict[int, Record] = {}
    gaps: list[Gap] = []
    after = 0
    while True:
        page = await engine.reader.read(live, after, records_max=4, bytes_max=400)
        if page.gap is not None:
            gaps.append(page.gap)
        for piece in page.slices:
            block = piece.block
            for at in piece.picks:
                seq = block.seq_at(at)
                assert seq > after, f"{name}: seq {seq} is not above {after}"
                assert seq not in records, f"{name}: seq {seq} came twice"
                records[seq] = Record(
                    block.data_at(at),
                    block.metas[at] if block.metas else None,
                    block.tags[at] if block.tags else None,
                    block.nodes[at] if block.nodes else None,
                    block.ts_at(at),
                    block.keys[at] if block.keys else None,
                )
        if page.caught_up:
            break
        assert page.next > after, f"{name}: a read after {after} makes no progress"
        after = page.next
    log = live.log
    inbound_routes = {
        name: (inbound.source, inbound.cursor, inbound.forwarded, inbound.rule)
        for name, inbound in (log.inbound_routes or {}).items()
    }
    return View(
        log.id, log.config, records, gaps, live.visible, log.floor, log.earliest, log.count,
        log.size_bytes, inbound_routes,
    )  # fmt: skip


async def view_all(engine: Engine) -> dict[str, View]:
    return {name: await view(engine, name) for name in list(engine.state.names("", ""))}


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """Time that passes when everybody waits, and sizes that make much happen."""
    made = VirtualLoop()
    with small():
        yield made
    made.close()
