"""What the surface has of manifests, over one engine: versions and what is made of them."""

from __future__ import annotations

from headrace.engine.engine import Engine
from headrace.processes.manifest_process import ManifestChecker
from headrace.surfaces.flags.closures import Closures
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifests import Manifests
from headrace.surfaces.flags.signing_keys import SigningKeys
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.surfaces.flags.tarballs import Tarballs
from headrace.surfaces.flags.uploads import Uploads
from headrace.surfaces.flags.versions import ManifestVersions, Retention


class ManifestStore:
    """Manifests of all namespaces, in operation: stored, loaded, and cut into closures."""

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        checker: ManifestChecker,
        metrics: ManifestMetrics,
        stream_metrics: StreamMetrics,
    ) -> None:
        self.engine = engine
        self.versions = ManifestVersions(engine, retention)
        self.manifests = Manifests(self.versions, checker, metrics)
        self.uploads = Uploads(self.versions, self.manifests, checker, metrics)
        self.closures = Closures(stream_metrics)
        self.tarballs = Tarballs(engine, self.versions, stream_metrics)
        self.keys = SigningKeys(engine)
