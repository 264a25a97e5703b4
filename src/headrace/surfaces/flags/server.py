"""The parts of the surface, chosen and joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import msgspec

from headrace.core.cap import Cap
from headrace.engine.engine import Engine
from headrace.processes.manifest_process import ManifestChecker
from headrace.surfaces.flags import mount
from headrace.surfaces.flags.closure_routes import ClosureRoutes
from headrace.surfaces.flags.deliveries import Deliveries
from headrace.surfaces.flags.evaluation import EvaluationRoutes, Evaluator
from headrace.surfaces.flags.event_routes import EventRoutes
from headrace.surfaces.flags.following import FlagStreamRules
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifest_routes import ManifestRoutes
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.metrics import FlagsMetrics
from headrace.surfaces.flags.ofrep import OfrepRoutes
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.surfaces.flags.tenants import TenantRoutes
from headrace.surfaces.flags.tokens import TokenRoutes
from headrace.surfaces.flags.versions import Retention
from headrace.web.concurrency import Slots
from headrace.web.surface import Surface


class FlagsLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What there may be, what is kept, and how changes are delivered."""

    tenants: int
    namespaces: int
    namespaces_per_tenant: int
    tokens_per_tenant: int
    archive_bytes: int
    manifest_bytes: int
    retention_versions: int
    retention_ms: int
    connections_per_token: int
    keepalive_ms: int
    idle_close_ms: int
    inline_files: int


class Flags:
    """Flags as a server has them."""

    def __init__(
        self, limits: FlagsLimits, checker: ManifestChecker, public_url: str | None
    ) -> None:
        self._limits = limits
        self._checker = checker
        self._store: ManifestStore | None = None
        self._deliveries: Deliveries | None = None
        self.metrics = FlagsMetrics()
        self.manifest_metrics = ManifestMetrics(checker.counts)
        self.stream_metrics = StreamMetrics()
        evaluator = Evaluator(self.store)
        self.surface: Surface = mount.surface(
            TenantRoutes(
                self.store, limits.tenants, limits.namespaces, limits.namespaces_per_tenant
            ),
            TokenRoutes(limits.tokens_per_tenant),
            ManifestRoutes(self.store, limits.archive_bytes, limits.manifest_bytes),
            EvaluationRoutes(evaluator),
            OfrepRoutes(evaluator),
            EventRoutes(
                self.deliveries,
                self.stream_metrics,
                Slots(per_key=Cap("max_connections_per_token", limits.connections_per_token)),
                FlagStreamRules(limits.keepalive_ms / 1000, limits.idle_close_ms / 1000 or inf),
                public_url,
            ),
            ClosureRoutes(self.store),
            self.metrics,
            self.manifest_metrics,
            self.stream_metrics,
        )

    def store(self) -> ManifestStore:
        """What there is of manifests; there when the engine is."""
        assert self._store is not None
        return self._store

    def deliveries(self) -> Deliveries:
        """What brings versions to streams; there when the engine is."""
        assert self._deliveries is not None
        return self._deliveries

    def open(self, engine: Engine, has_ended: Callable[[str], bool]) -> None:
        """The engine is there. `has_ended` says of the id of a principal whether nobody can show
        its credential any more.
        """
        self.metrics.open(engine.state)
        limits, metrics = self._limits, self.stream_metrics
        self.manifest_metrics.contents = engine.contents
        retention = Retention(limits.retention_versions, limits.retention_ms)
        self._store = ManifestStore(
            engine, retention, self._checker, self.manifest_metrics, metrics
        )
        self._deliveries = Deliveries(
            self._store, metrics, files_max=limits.inline_files, has_ended=has_ended
        )

    async def run(self) -> None:
        """What goes on beside requests, for as long as the server runs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._checker.run())
            tasks.create_task(self.store().versions.run())

    async def close(self) -> None:
        """End what was started; nothing goes on any more."""
        await self._checker.close()
