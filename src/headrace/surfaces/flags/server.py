"""The parts of the surface, chosen and joined."""

from __future__ import annotations

import asyncio

import msgspec

from headrace.engine.engine import Engine
from headrace.processes.manifest_process import ManifestChecker
from headrace.surfaces.flags import mount
from headrace.surfaces.flags.evaluation import EvaluationRoutes, Evaluator
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifest_routes import ManifestRoutes
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.metrics import FlagsMetrics
from headrace.surfaces.flags.ofrep import OfrepRoutes
from headrace.surfaces.flags.tenants import TenantRoutes
from headrace.surfaces.flags.tokens import TokenRoutes
from headrace.surfaces.flags.versions import Retention
from headrace.web.surface import Surface


class FlagsLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What there may be, what is kept, and how changes are delivered."""

    tenants: int
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

    def __init__(self, limits: FlagsLimits, checker: ManifestChecker) -> None:
        self._limits = limits
        self._checker = checker
        self._store: ManifestStore | None = None
        self.metrics = FlagsMetrics()
        self.manifest_metrics = ManifestMetrics(checker.counts)
        evaluator = Evaluator(self.store)
        self.surface: Surface = mount.surface(
            TenantRoutes(self.store, limits.tenants, limits.namespaces_per_tenant),
            TokenRoutes(limits.tokens_per_tenant),
            ManifestRoutes(self.store, limits.archive_bytes, limits.manifest_bytes),
            EvaluationRoutes(evaluator),
            OfrepRoutes(evaluator),
            self.metrics,
            self.manifest_metrics,
        )

    def store(self) -> ManifestStore:
        """What there is of manifests; there when the engine is."""
        assert self._store is not None
        return self._store

    def open(self, engine: Engine) -> None:
        """The engine is there."""
        retention = Retention(self._limits.retention_versions, self._limits.retention_ms)
        self._store = ManifestStore(engine, retention, self._checker, self.manifest_metrics)

    async def run(self) -> None:
        """What goes on beside requests, for as long as the server runs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._checker.run())
            tasks.create_task(self.store().versions.run())

    async def close(self) -> None:
        """End what was started; nothing goes on any more."""
        await self._checker.close()
