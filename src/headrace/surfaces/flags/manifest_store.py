"""What the surface has of manifests, over one engine: versions, those at hand, uploads."""

from __future__ import annotations

from headrace.engine.engine import Engine
from headrace.processes.manifest_process import ManifestChecker
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifests import Manifests
from headrace.surfaces.flags.uploads import Uploads
from headrace.surfaces.flags.versions import ManifestVersions, Retention


class ManifestStore:
    """Manifests of all namespaces, in operation."""

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        checker: ManifestChecker,
        metrics: ManifestMetrics,
    ) -> None:
        self.versions = ManifestVersions(engine, retention)
        self.manifests = Manifests(self.versions, checker, metrics)
        self.uploads = Uploads(self.versions, self.manifests, checker, metrics)
