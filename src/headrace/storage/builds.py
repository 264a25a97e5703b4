"""Opening the builds of a manifest: their descriptors, and their files when they are needed.

Blocking; callers run it off the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import TIMEOUT_MAX, Lock
from time import perf_counter
from typing import Any

import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.core.limits import COMPANION_CACHE_BYTES
from headrace.formats.companion import (
    Descriptor,
    File,
    Hashes,
    decode_descriptor,
    decode_hashes,
)
from headrace.formats.manifest import Build, Manifest
from headrace.search.companions import Companions, TimeUp
from headrace.storage.cache import Cache
from headrace.storage.object_store_stats import GET, OPEN, Artifact, ObjectStoreStats, RequestCounts
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import gone_is_vanished

_OPEN_MAX = 64


class _OfBuild:
    """The share of one build in what is kept."""

    def __init__(self, decoded: Cache[tuple[str, object]], build: str) -> None:
        self._decoded = decoded
        self._build = build

    def get(self, key: object) -> Any:
        return self._decoded.get((self._build, key))

    def put(self, key: object, value: Any, size_bytes: int) -> None:
        self._decoded.put((self._build, key), value, size_bytes)


class _Opened:
    """The companions of a build, and for which log they are used: for one at a time."""

    def __init__(self, make: Callable[[_Opened], Companions]) -> None:
        self.log = 0
        self.lock = Lock()
        self.companions = make(self)


class Builds:
    """The builds that a manifest names."""

    def __init__(
        self, objects: Objects, requests: ObjectStoreStats, cache_bytes: int = COMPANION_CACHE_BYTES
    ) -> None:
        self._objects = objects
        self._requests = requests
        self._decoded: Cache[tuple[str, object]] = Cache(cache_bytes)
        self._of: dict[int, Build] = {}
        self._lock = Lock()
        self._descriptors: dict[str, Descriptor] = {}
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def use(self, manifest: Manifest) -> None:
        """Switch to a manifest; what it does not name is forgotten.

        What was decoded of it goes when there is need for its room: nobody asks for it again.
        """
        named = {build.name for build in manifest.builds}
        self._of = {number: build for build in manifest.builds for number in build.segments}
        with self._lock:
            for name in [name for name in self._opened if name not in named]:
                del self._opened[name]
            for name in [name for name in self._descriptors if name not in named]:
                del self._descriptors[name]

    @property
    def cached_bytes(self) -> int:
        """What is kept of what was decoded."""
        return self._decoded.size_bytes

    def of(self, segment: int) -> Build | None:
        """The build that speaks for a segment."""
        return self._of.get(segment)

    def describe(self, build: Build, log: int) -> Descriptor:
        """What a build is, for a log."""
        with self._lock:
            if (known := self._descriptors.get(build.name)) is not None:
                return known
        self._requests.count(log, Artifact.COMPANION, GET)
        with gone_is_vanished(build.name):
            raw = self._objects.get(build.name)
        if xxh3_64_hexdigest(raw) != build.checksum:
            raise Corrupt(build.name, 0, "checksum mismatch in the build")
        descriptor = decode_descriptor(raw, build.name)
        with self._lock:
            self._descriptors[build.name] = descriptor
        return descriptor

    @contextmanager
    def open(self, build: Build, log: int, wait_s: float = TIMEOUT_MAX) -> Iterator[Companions]:
        """The companions of a build, for a log and nobody else; waits so long for others."""
        descriptor = self.describe(build, log)
        with self._lock:
            opened = self._opened.get(build.name)
            if opened is None:
                opened = _Opened(partial(self._companions, build, descriptor))
                self._opened[build.name] = opened
                while len(self._opened) > _OPEN_MAX:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(build.name)
        if not opened.lock.acquire(timeout=min(wait_s, TIMEOUT_MAX)):
            raise TimeUp
        opened.log = log
        try:
            with gone_is_vanished(build.name):
                yield opened.companions
        finally:
            opened.lock.release()

    def _companions(self, build: Build, described: Descriptor, opened: _Opened) -> Companions:
        return Companions(
            described,
            partial(self._open_file, opened),
            partial(self._open_hashes, opened),
            _OfBuild(self._decoded, build.name),
            perf_counter,
            partial(self._count, opened, GET),
        )

    def _count(self, opened: _Opened, asked: RequestCounts) -> None:
        self._requests.count(opened.log, Artifact.COMPANION, asked)

    def _open_file(self, opened: _Opened, file: File) -> pq.ParquetFile:
        self._count(opened, OPEN)
        return pq.ParquetFile(self._objects.open(file.name))

    def _open_hashes(self, opened: _Opened, file: File) -> Hashes:
        self._count(opened, GET)
        return decode_hashes(self._objects.get(file.name))
