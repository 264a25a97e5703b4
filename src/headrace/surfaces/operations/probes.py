"""Liveness, readiness and metrics: what a load balancer and a scraper ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from time import monotonic

import msgspec
from msgspec import UNSET, UnsetType

from headrace import __version__
from headrace.core import lease
from headrace.core.config import Durability, Kind
from headrace.core.errors import Refused
from headrace.core.limits import METRICS_SETTLE_S
from headrace.core.owners import TOPICS
from headrace.engine.chunks import Waiting
from headrace.engine.engine import Engine
from headrace.engine.live import Live
from headrace.engine.pulse import Pulse
from headrace.engine.upkeep import Backlog
from headrace.observe import Histogram, render_prometheus, snapshot
from headrace.processes.pipeline_process import PipelineProcess
from headrace.storage.journal import Journal
from headrace.surfaces.operations import wire
from headrace.surfaces.operations.metrics import PIPELINE_NUMBERS, pipeline_samples, read_samples
from headrace.web.accept import prefers
from headrace.web.answers import JSON, Answer, json_answer
from headrace.web.calls import Call, Gate
from headrace.web.credentials import Scope

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Probes:
    """Answers from what the gate and the engine know; metrics wait a moment for the disk."""

    def __init__(
        self, gate: Gate, pulse: Pulse, sessions: Sized, pipeline: PipelineProcess | None
    ) -> None:
        self._pipeline = pipeline
        self._gate = gate
        self._pulse = pulse
        self._sessions = sessions
        self._started = monotonic()

    @property
    def uptime_ms(self) -> int:
        return int((monotonic() - self._started) * 1000)

    async def health(self, call: Call) -> Answer:
        reply = wire.HealthReply(status="ok", version=__version__, uptime_ms=self.uptime_ms)
        return json_answer(msgspec.json.encode(reply))

    async def ready(self, call: Call) -> Answer:
        reply = wire.ReadyReply(
            status="ready",
            wal_replay_complete=True,
            topics=call.engine.state.count_of(TOPICS),
            pipeline=self._pipeline_body(),
        )
        return json_answer(msgspec.json.encode(reply))

    def _pipeline_body(self) -> wire.PipelineBody | UnsetType:
        pipeline = self._pipeline
        if pipeline is None:
            return UNSET
        return wire.PipelineBody(
            state=pipeline.state,
            restarts=pipeline.restarts,
            problem=pipeline.problem,
            **{name: pipeline.status.get(name, 0) for name in PIPELINE_NUMBERS},
        )

    async def metrics(self, call: Call) -> Answer:
        call.principal.require(Scope.READ)
        vitals = Vitals(self._gate, self._pulse, len(self._sessions), self.uptime_ms)
        samples = read_samples(vitals, call.principal)
        if self._pipeline is not None:
            samples += pipeline_samples(self._pipeline)
        await self._settle()
        if prefers(call.req.accept, "text/plain", JSON) == JSON:
            return json_answer(msgspec.json.encode(snapshot(samples)))
        headers = [("content-type", PROMETHEUS), ("cache-control", "no-store")]
        return Answer(200, headers, render_prometheus(samples).encode())

    async def _settle(self) -> None:
        """Tell of what is durable; but whoever looks after a disk that hangs needs the numbers."""
        if self._gate.ready:
            journal = self._gate.engine.journal
            with suppress(TimeoutError, Refused):
                async with asyncio.timeout(METRICS_SETTLE_S):
                    await journal.wait_synced(journal.tail)


class Vitals:
    """The engine as the metrics want to see it; zeros while it recovers."""

    def __init__(self, gate: Gate, pulse: Pulse, watch_sessions: int, uptime_ms: int) -> None:
        self._engine: Engine | None = gate.engine if gate.ready else None
        self._now_ms = self._engine.clock.now_ms() if self._engine else 0
        self.ready = gate.ready
        self.sse_connections = len(gate.streams)
        self.watch_sessions = watch_sessions
        self.recovery_progress = gate.progress
        self.uptime_ms = uptime_ms
        self.loop_stall_max_ms = pulse.stall_max_ms
        self.pressure = self._engine.turns.pressure.level if self._engine else 0.0

    @property
    def topics_by_class(self) -> Mapping[str, int]:
        counts = dict.fromkeys((durability.value for durability in Durability), 0)
        for (owner, durability, _), count in self._census():
            if owner == TOPICS:
                counts[durability.value] += count
        return counts

    @property
    def routers(self) -> int:
        return len(self._engine.routers) if self._engine else 0

    @property
    def records_live(self) -> int:
        return self._engine.state.count if self._engine else 0

    @property
    def bytes_live(self) -> int:
        return self._engine.state.size_bytes if self._engine else 0

    @property
    def queue_topics(self) -> int:
        return len(self._engine.state.queues) if self._engine else 0

    @property
    def queue_leases_in_flight(self) -> int:
        engine = self._engine
        lives = [engine.lives[log] for log in engine.state.queues] if engine else []
        return sum(lease.count(live.log, live.visible, self._now_ms).in_flight for live in lives)

    @property
    def staged(self) -> Waiting:
        return self._engine.transactions.waiting if self._engine else Waiting()

    @property
    def backlog(self) -> Backlog:
        return self._engine.backlog() if self._engine else Backlog()

    @property
    def segments(self) -> int:
        return self._engine.segments.count if self._engine else 0

    @property
    def journal(self) -> JournalVitals:
        return JournalVitals(self._engine.journal if self._engine else None)

    def topics(self, wanted: Callable[[str], bool]) -> Iterator[TopicVitals]:
        if self._engine is None:
            return
        state = self._engine.state
        for name in state.names("", "", TOPICS):
            if wanted(name):
                yield TopicVitals(self._engine.lives[state.by_name[name].id], self._now_ms)

    def _census(self) -> Iterable[tuple[tuple[str, Durability, Kind], int]]:
        return self._engine.state.census.items() if self._engine else ()


class TopicVitals:
    """One topic."""

    def __init__(self, live: Live, now_ms: int) -> None:
        log = live.log
        queue = lease.count(log, live.visible, now_ms) if log.queue is not None else None
        self.name = log.name
        self.head_seq = live.visible
        self.earliest_seq = min(log.earliest, live.visible + 1)
        self.records_live = log.count
        self.bytes_live = log.size_bytes
        self.queue_ready = queue.ready if queue else None
        self.queue_in_flight = queue.in_flight if queue else None


class JournalVitals:
    """The journal's own counts."""

    def __init__(self, journal: Journal | None) -> None:
        stats = journal.stats if journal else None
        self.frames = stats.frames if stats else 0
        self.batches = stats.batches if stats else 0
        self.fsyncs = stats.syncs if stats else 0
        self.bytes_written = stats.bytes_written if stats else 0
        self.rotations = stats.rotations if stats else 0
        self.queue_depth = journal.queue_depth if journal else 0
        self.queue_depth_peak = stats.queue_peak if stats else 0
        self.submit_full = stats.turned_away if stats else 0
        self.read_only = journal is not None and journal.failure is not None
        self.fsync_latency_us = stats.sync_latency_us if stats else Histogram("none", "", (1,))
