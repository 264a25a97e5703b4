"""What the surface has of closures, over one engine: those at hand, tarballs, and signing keys."""

from __future__ import annotations

from headrace.engine.engine import Engine
from headrace.surfaces.flags.closures import Closures
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.signing_keys import SigningKeys
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.surfaces.flags.tarballs import Tarballs


class ClosureStore:
    """Closures of all namespaces, in operation."""

    def __init__(self, engine: Engine, store: ManifestStore, metrics: StreamMetrics) -> None:
        self.engine = engine
        self.versions = store.versions
        self.manifests = store.manifests
        self.closures = Closures(metrics)
        self.tarballs = Tarballs(engine, store.versions, metrics)
        self.keys = SigningKeys(engine)
