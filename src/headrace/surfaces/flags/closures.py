"""Closures of subscriptions: each is worked out once for a version, whoever asks for it."""

from __future__ import annotations

from headrace.core.limits import CLOSURES_KEPT_BYTES
from headrace.core.sized_cache import SizedCache
from headrace.engine.open_log import OpenLog
from headrace.flags.closure import closure_hash, closure_paths
from headrace.flags.delta import Closure
from headrace.flags.subscription import FlagSet
from headrace.flags.tree import NAMESPACE_PATH
from headrace.surfaces.flags.manifests import LoadedManifest
from headrace.surfaces.flags.stream_metrics import StreamMetrics

ClosureKey = tuple[int, int, FlagSet]
"""The log of a namespace, a version and the flags that are wanted: what a closure is made of."""

_FILE_BYTES = 112
"""What a file of a closure takes of memory, by measurement: a place in a dictionary. Its path and
its digest are those of the manifest.
"""


class Closures:
    """Closures that were worked out, those that were used last."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics
        self._kept: SizedCache[ClosureKey] = SizedCache(CLOSURES_KEPT_BYTES)

    def of(self, live: OpenLog, manifest: LoadedManifest, flags: FlagSet) -> Closure:
        """What these flags need of a version."""
        key = (live.log.id, manifest.version, flags)
        known: Closure | None = self._kept.get(key)
        if known is not None:
            return known
        closure = _work_out(manifest, flags)
        self._metrics.computed()
        # (What is asked for may be much longer than what there is of it.)
        self._kept.put(key, closure, _FILE_BYTES * len(closure.digests) + flags.size_bytes)
        return closure


def _work_out(manifest: LoadedManifest, flags: FlagSet) -> Closure:
    digests, rows = manifest.digests, manifest.rows
    if flags.keys is None:  # they need every file there is: as they are, nothing is looked for
        return Closure(manifest.version, digests, closure_hash(rows.values()))
    paths = closure_paths(manifest.segment_graph, NAMESPACE_PATH in digests, flags)
    return Closure(
        manifest.version,
        {path: digests[path] for path in paths},
        closure_hash([rows[path] for path in paths]),
    )
