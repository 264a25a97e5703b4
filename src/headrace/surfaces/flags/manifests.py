"""Manifests ready for use: which files a version has, what they name, what they define.

Nothing is parsed here. What a file defines comes from the manifest process in a form that is quick
to read, and is read when somebody asks for it. Files that do not change from one version to the
next are held once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

from headrace.core.batching import batches
from headrace.core.limits import (
    MANIFEST_BATCH_BYTES,
    MANIFEST_BATCH_FILES,
    MANIFESTS_LOADED_BYTES,
    SLICE_MS,
)
from headrace.core.sized_cache import SizedCache
from headrace.engine.flow.time_slices import slices
from headrace.engine.open_log import OpenLog
from headrace.flags.closure import SegmentGraph, hash_row
from headrace.flags.evaluation import Definitions
from headrace.flags.model import Definition, FlagDefinition, NamespaceDefinition, SegmentDefinition
from headrace.flags.tree import NAMESPACE_PATH, FileKind, key_of, kind_of
from headrace.processes.manifest_messages import FilesParsed, FileSummary, ParseFiles
from headrace.processes.manifest_process import ManifestChecker
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.names import parse_log
from headrace.surfaces.flags.versions import ManifestVersions

D = TypeVar("D", bound=Definition)

_decode_definition = msgspec.msgpack.Decoder(Definition | None).decode

_FILE_BYTES = 600
_DEFINITION_FACTOR = 6
_CONTAINER_BYTES = 96
_CONTAINERS = bytes(range(0x80, 0xA0))
"""What a file takes of memory, by measurement: so much; its definition as it was sent so many
times; and for each short array or map in that, whose head is one of these bytes in msgpack. One
that is empty is sent as a single byte, and variants may hold nothing else.
"""


class ManifestFile:
    """One file of a manifest. Versions that have the same one share it."""

    __slots__ = (
        "__weakref__",
        "_definition",
        "_raw",
        "key",
        "kind",
        "row",
        "segments_used",
        "size_bytes",
        "weight",
    )

    def __init__(self, path: str, digest: bytes, summary: FileSummary) -> None:
        self.kind = kind_of(path)
        self.key = key_of(path)
        self.row = hash_row(path, digest)
        self.segments_used = summary.segments_used
        self.weight = len(summary.definition)
        """How much it defines, in bytes as they were sent."""
        containers = self.weight - len(summary.definition.translate(None, _CONTAINERS))
        self.size_bytes = (
            _FILE_BYTES + _DEFINITION_FACTOR * self.weight + _CONTAINER_BYTES * containers
        )
        """What it takes of memory, by estimate."""
        self._raw: bytes | None = summary.definition
        self._definition: Definition | None = None

    @property
    def definition(self) -> Definition | None:
        """What the file defines; None if it has errors, which no manifest that is stored has."""
        raw = self._raw
        if raw is not None:  # (in this order: a thread may ask at the same time)
            self._definition = _decode_definition(raw)
            self._raw = None
        return self._definition


class _Defined(Mapping[str, D]):
    """What files define, by key; read when it is asked for."""

    __slots__ = ("_files",)

    def __init__(self, files: Mapping[str, ManifestFile]) -> None:
        self._files = files

    def __getitem__(self, key: str) -> D:
        return cast(D, self._files[key].definition)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class LoadedManifest:
    """One version of a namespace's manifest, ready for use. It never changes."""

    __slots__ = (
        "_flags",
        "_segments",
        "_weights",
        "definitions",
        "digests",
        "files",
        "rows",
        "segment_graph",
        "version",
        "weight",
    )

    def __init__(
        self, version: int, digests: Mapping[str, bytes], files: Mapping[str, ManifestFile]
    ) -> None:
        self.version = version
        self.digests = digests
        """Path → SHA-256 of the content."""
        self.files = files
        """All of them by path: they are shared while somebody holds them."""
        self.rows = {path: files[path].row for path in sorted(files)}
        """What each file adds to the hash of a closure, by path as hashes want them: characters
        and their bytes sort alike.
        """
        self._flags = _of_kind(files, FileKind.FLAG)
        self._segments = _of_kind(files, FileKind.SEGMENT)
        self.segment_graph = SegmentGraph(_used(self._flags), _used(self._segments))
        namespace = files.get(NAMESPACE_PATH)
        self.definitions = Definitions(
            _Defined[FlagDefinition](self._flags),
            _Defined[SegmentDefinition](self._segments),
            None if namespace is None else cast(NamespaceDefinition, namespace.definition),
        )
        self.weight = sum(file.weight for file in files.values())
        """How much all files define."""
        self._weights: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        """What it takes of memory, by estimate, with files that other versions share."""
        return sum(file.size_bytes for file in self.files.values())

    def weight_of(self, flag: str) -> int:
        """How much a flag and the segments that it needs define."""
        weight = self._weights.get(flag)
        if weight is None:
            reached = self.segment_graph.reachable((flag,))
            weight = self._flags[flag].weight + sum(self._segments[key].weight for key in reached)
            self._weights[flag] = weight
        return weight


def _of_kind(files: Mapping[str, ManifestFile], kind: FileKind) -> dict[str, ManifestFile]:
    return {file.key: file for file in files.values() if file.kind is kind}


def _used(files: Mapping[str, ManifestFile]) -> dict[str, tuple[str, ...]]:
    return {key: file.segments_used for key, file in files.items()}


class Manifests:
    """Loads manifests, and keeps those that were used last."""

    def __init__(
        self,
        versions: ManifestVersions,
        checker: ManifestChecker,
        metrics: ManifestMetrics,
        bytes_max: int = MANIFESTS_LOADED_BYTES,
    ) -> None:
        self._versions = versions
        self._checker = checker
        self._metrics = metrics
        self._loaded: SizedCache[tuple[int, int]] = SizedCache(bytes_max, kept_min=1)
        self._loading: dict[tuple[int, int], asyncio.Future[None]] = {}
        self._files: WeakValueDictionary[tuple[str, bytes], ManifestFile] = WeakValueDictionary()
        """All files of manifests that somebody holds, by path and digest."""

    @property
    def size_bytes(self) -> int:
        """What manifests at hand take of memory, by estimate."""
        return self._loaded.size_bytes

    def find(self, live: OpenLog, version: int | None = None) -> LoadedManifest | None:
        """A version, by default the current one, if it is at hand."""
        key = live.log.id, live.visible if version is None else version
        found: LoadedManifest | None = self._loaded.get(key)
        return found

    async def load(self, live: OpenLog, version: int | None = None) -> LoadedManifest:
        """A version, by default the current one; refuses what is not there or not available.

        Whoever asks for what somebody else is loading waits for that.
        """
        if version is None:
            version = live.visible
        while (found := self.find(live, version)) is None:
            loading = self._loading.get((live.log.id, version))
            if loading is None:
                return await self._load_for_all(live, version)
            await asyncio.shield(loading)
        return found

    def add(
        self,
        live: OpenLog,
        version: int,
        digests: Mapping[str, bytes],
        files: Mapping[str, ManifestFile],
    ) -> None:
        """A version that was just stored, whose files are known."""
        self._keep(live, LoadedManifest(version, digests, files))

    async def known_files(self, digests: Mapping[str, bytes]) -> dict[str, ManifestFile]:
        """Those of these files that are at hand, by path; looked for in slices."""
        files, found = self._files, dict[str, ManifestFile]()
        portions = batches(digests.items(), lambda _: 1, MANIFEST_BATCH_FILES)
        async with aclosing(slices(portions, SLICE_MS, 0)) as sliced:
            async for portion in sliced:
                for path, digest in portion:
                    if (file := files.get((path, digest))) is not None:
                        found[path] = file
        return found

    def make_files(
        self, digests: Mapping[str, bytes], summaries: Iterable[FileSummary]
    ) -> dict[str, ManifestFile]:
        """Files that came from the manifest process; they are at hand while somebody holds them."""
        made: dict[str, ManifestFile] = {}
        for summary in summaries:
            path = summary.path
            made[path] = file = ManifestFile(path, digests[path], summary)
            self._files[path, digests[path]] = file
        return made

    # --- loading ----------------------------------------------------------------------------------

    async def _load_for_all(self, live: OpenLog, version: int) -> LoadedManifest:
        key = live.log.id, version
        self._loading[key] = ready = asyncio.get_running_loop().create_future()
        try:
            loaded = await self._load(live, version)
        except Exception as error:
            ready.set_exception(error)
            ready.exception()  # (it is nobody's fault if nobody else wanted to know)
            raise
        finally:
            del self._loading[key]
            if not ready.done():
                ready.set_result(None)  # loaded, or given up: then the next one begins anew
        return loaded

    async def _load(self, live: OpenLog, version: int) -> LoadedManifest:
        self._metrics.loads.add()
        digests = await self._versions.tree(live, version)
        files = await self.known_files(digests)
        tenant, _ = parse_log(live.log.name)
        # Neighbours together: files of a manifest may lie in as many places as it has versions.
        unknown = self._versions.sort_by_place(
            {path: digest for path, digest in digests.items() if path not in files}
        )
        for paths in batches(unknown, lambda _: 1, MANIFEST_BATCH_FILES):
            contents = await self._versions.read({path: digests[path] for path in paths})
            for batch in batches(contents.items(), lambda file: len(file[1]), MANIFEST_BATCH_BYTES):
                parsed = await self._parse(tenant, dict(batch))
                self._metrics.files_parsed.add(parsed.files_parsed)
                files |= self.make_files(digests, parsed.files)
        loaded = LoadedManifest(version, digests, files)
        self._keep(live, loaded)
        return loaded

    async def _parse(self, tenant: str, files: dict[str, bytes]) -> FilesParsed:
        return await self._checker.converse(
            tenant, lambda conversation: conversation.ask(ParseFiles(files), FilesParsed)
        )

    def _keep(self, live: OpenLog, loaded: LoadedManifest) -> None:
        self._loaded.put((live.log.id, loaded.version), loaded, loaded.size_bytes)
