"""Liveness, readiness and metrics: what a load balancer and a scraper ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

import msgspec
from msgspec import UNSET, UnsetType

from headrace import __version__
from headrace.core.errors import Refused
from headrace.core.limits import METRICS_SETTLE_S
from headrace.core.owners import TOPICS
from headrace.engine.flow.loop_lag import LoopLag
from headrace.observe import render_prometheus, snapshot
from headrace.processes.pipeline_process import PipelineProcess
from headrace.surfaces.operations import wire
from headrace.surfaces.operations.metrics import (
    PIPELINE_NUMBERS,
    failing_jobs,
    pipeline_samples,
    read_samples,
)
from headrace.web.accept import prefers
from headrace.web.answers import JSON, Answer, json_answer
from headrace.web.calls import Call, Gate
from headrace.web.credentials import Scope
from headrace.web.surface import Surface

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Probes:
    """Answers from what the gate and the engine know; metrics wait a moment for the disk."""

    def __init__(
        self,
        gate: Gate,
        loop_lag: LoopLag,
        surfaces: Iterable[Surface],
        pipeline: PipelineProcess | None,
    ) -> None:
        self._pipeline = pipeline
        self._gate = gate
        self._loop_lag = loop_lag
        self._samples = [surface.samples for surface in surfaces if surface.samples]
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
            running=pipeline.status.get("running"),
            failing=failing_jobs(pipeline),
            **{name: pipeline.status.get(name, 0) for name in PIPELINE_NUMBERS},
        )

    async def metrics(self, call: Call) -> Answer:
        call.principal.require(Scope.READ)
        samples = read_samples(self._gate, self._loop_lag, self.uptime_ms)
        for of_surface in self._samples:
            samples += of_surface(call.principal)
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
