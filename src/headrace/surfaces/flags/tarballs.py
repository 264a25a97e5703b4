"""Closures as tarballs: made beside the loop, once for all who ask at a time, and kept for others.

The bytes are the same whenever they are made.
"""

from __future__ import annotations

import asyncio

from headrace.core.limits import TARBALLS_AT_ONCE, TARBALLS_KEPT_BYTES
from headrace.core.sized_cache import SizedCache
from headrace.delivery.tasks import Tasks
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.flags.archive import compress_tar, tar_size, write_tar
from headrace.flags.delta import Closure
from headrace.flags.subscription import FlagSet
from headrace.surfaces.flags.closures import ClosureKey
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.surfaces.flags.versions import ManifestVersions


class Tarballs:
    """Tarballs that were made, those that were asked for last."""

    def __init__(self, engine: Engine, versions: ManifestVersions, metrics: StreamMetrics) -> None:
        self._engine = engine
        self._versions = versions
        self._metrics = metrics
        self._kept: SizedCache[ClosureKey] = SizedCache(TARBALLS_KEPT_BYTES)
        self._making: dict[ClosureKey, asyncio.Future[bytes]] = {}
        self._room = asyncio.Semaphore(TARBALLS_AT_ONCE)

    @property
    def size_bytes(self) -> int:
        """What those that are kept take."""
        return self._kept.size_bytes

    async def get(self, tasks: Tasks, live: OpenLog, flags: FlagSet, closure: Closure) -> bytes:
        """The tarball of a closure. Refuses if its files went meanwhile.

        Whoever asks while it is being made waits for the same; it does not end with who asked.
        """
        key = (live.log.id, closure.version, flags)
        known: bytes | None = self._kept.get(key)
        if known is not None:
            self._metrics.tarball("cached")
            return known
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.get_running_loop().create_future()
            tasks.start(self._make(key, closure, making), lambda: None)
        else:
            self._metrics.tarball("shared")
        return await asyncio.shield(making)

    async def _make(self, key: ClosureKey, closure: Closure, making: asyncio.Future[bytes]) -> None:
        try:
            async with self._room:
                files = await self._versions.read(closure.digests)
                tarball = await self._engine.pool.run(_pack, files)
        except BaseException as error:
            making.set_exception(error)
            making.exception()  # told of here, should nobody wait any more
            if not isinstance(error, Exception):
                raise
            return
        finally:
            del self._making[key]
        self._metrics.tarball("made")
        self._kept.put(key, tarball, len(tarball) + key[2].size_bytes)
        making.set_result(tarball)

    def measure(self, closure: Closure) -> int:
        """The bytes of the tarball of a closure before it is packed."""
        return tar_size(self._engine.contents.sizes_of(closure.digests.values()))


def _pack(files: dict[str, bytes]) -> bytes:
    return compress_tar(write_tar(files))
