"""What is known of a log beside its records: where they lie, and how far companions have come.

A survey of a log reads indexes of segments and descriptors of builds, so it is made in a thread; it
is kept until another manifest is in force or the log has another plan. Files hold the rows of many
logs: the bytes of one of them are its share, by records.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_hexdigest

from headrace.core.limits import RECORD_OVERHEAD_BYTES, SURVEYS_MAX
from headrace.core.log import Extent, Log
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog
from headrace.engine.search.search_configs import plan_of
from headrace.engine.upkeep.manifest_follower import ManifestFollower
from headrace.formats import layout
from headrace.formats.companion import Descriptor, Part
from headrace.formats.manifest import Build, Manifest
from headrace.storage.object_store_stats import Artifact, RequestCounts
from headrace.storage.segments import Segments


class Stretch(NamedTuple):
    """A segment with records of a log."""

    rows: int
    payload_bytes: int
    object_bytes: int
    last_ts_ms: int
    indexed: bool
    """Whether there is a build of it: its keys are known."""
    current: bool
    """Whether the build was made by the plan that the log has now."""


class Share(msgspec.Struct):
    """What a log has of the files of a family."""

    size_bytes: int = 0
    objects: int = 0


class IndexProgress(NamedTuple):
    """How far companions have come with the segments of a log."""

    total: int
    covered: int
    contiguous: int
    """How many there are before the first that is missing."""
    stale: int
    """Of the others, how many were made by another plan."""
    lag_ms: int | None
    """How much older the last record of those is than the last of all; None when there is none."""


class Survey(msgspec.Struct, frozen=True):
    """Where the sealed records of a log lie."""

    stretches: tuple[Stretch, ...] = ()
    own_payload_bytes: int = 0
    """Of records that are not inherited."""
    shares: dict[str, Share] = {}
    """By family, or with `.hash` behind it for the hashes of its keys."""
    exact: dict[str, Share] = {}
    """By field."""
    builds: int = 0
    """Builds that were made by the plan that the log has now."""
    keys_at_ms: int | None = None
    """When the last build came that knows its keys."""
    plan_at_ms: int | None = None
    """When the last one came that was made by its plan."""
    cut_at_ms: int | None = None
    """When the last segment came."""

    @property
    def object_bytes(self) -> int:
        return sum(stretch.object_bytes for stretch in self.stretches)

    def share(self, family: str) -> Share:
        return self.shares.get(family) or Share()

    def by_keys(self) -> IndexProgress:
        return self._progress(lambda stretch: stretch.indexed)

    def by_plan(self) -> IndexProgress:
        return self._progress(lambda stretch: stretch.current)

    def _progress(self, covers: Callable[[Stretch], bool]) -> IndexProgress:
        stretches = self.stretches
        first = next((at for at, s in enumerate(stretches) if not covers(s)), len(stretches))
        lag_ms = stretches[-1].last_ts_ms - stretches[first - 1].last_ts_ms if first else None
        covered = sum(map(covers, stretches))
        stale = sum(stretch.indexed and not covers(stretch) for stretch in stretches)
        return IndexProgress(len(stretches), covered, first, stale, lag_ms)


class PublishedManifest(NamedTuple):
    """The manifest in force, as an object."""

    version: int = 0
    checksum: str | None = None
    size_bytes: int | None = None
    at_ms: int | None = None


class _Reach(NamedTuple):
    """Records of a log that another one, or itself, shows."""

    log: int
    last: int
    extents: Sequence[Extent]
    inherited: bool


class IndexStatus:
    """Surveys of one engine's logs."""

    def __init__(self, kernel: Kernel, fetcher: Fetcher, manifests: ManifestFollower) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._manifests = manifests
        self._published = PublishedManifest()
        self._surveys: OrderedDict[int, tuple[object, Survey]] = OrderedDict()
        self._waiters: set[asyncio.Future[None]] = set()
        manifests.observe(self._renewed)

    @property
    def manifest(self) -> Manifest:
        """The manifest in force."""
        return self._manifests.manifest

    # --- waiting ---------------------------------------------------------------------------------

    def _renewed(self) -> None:
        """Another manifest is in force."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def watch(self, live: OpenLog) -> asyncio.Future[None]:
        """Done when something changes of a log or of the manifest. Take it before you look."""
        woken = live.wakeup()
        self._waiters.add(woken)
        return woken

    def forget(self, live: OpenLog, woken: asyncio.Future[None]) -> None:
        live.forget(woken)
        self._waiters.discard(woken)

    # --- looking ---------------------------------------------------------------------------------

    async def published(self, live: OpenLog) -> PublishedManifest:
        """The manifest in force, for somebody who asks about a log."""
        version, segments = self.manifest.version, self._fetcher.segments
        if self._published.version != version:
            self._published = await self._kernel.pool.run(_publish, segments, version, live.log.id)
        return self._published

    def requests(self, live: OpenLog) -> dict[Artifact, RequestCounts]:
        """How often the object store was asked for a log since the start, by what for."""
        found = dict(self._fetcher.segments.requests.of(live.log.id))
        if sealed := live.sealed:
            for artifact in (Artifact.SEGMENT, Artifact.INDEX, Artifact.MANIFEST):
                found[artifact] = found.get(artifact, RequestCounts()) + RequestCounts(puts=sealed)
        return found

    async def survey(self, live: OpenLog) -> Survey:
        """Where the sealed records of a log lie now, and which companions there are of them."""
        log = live.log
        reaches = list(self._reaches(live, live.visible))
        if not any(reach.extents for reach in reaches):
            return Survey()
        wanted = None if log.search is None else plan_of(log).hash
        key = (self.manifest.version, wanted, [(r.log, r.last, len(r.extents)) for r in reaches])
        known = self._surveys.pop(log.id, None)
        if known is None or known[0] != key:
            found = await self._fetcher.sealed(_survey, self._fetcher.segments, reaches, wanted)
            known = (key, found)
        self._surveys[log.id] = known
        while len(self._surveys) > SURVEYS_MAX:
            self._surveys.popitem(last=False)
        return known[1]

    def sealed_last(self, live: OpenLog) -> int:
        """Every record up to here is in a segment."""
        sealed = 0
        for reach in self._reaches(live, live.visible):
            last = max((extent[2] for extent in reach.extents), default=0)
            if last < reach.last:
                return max(sealed, last)
            sealed = reach.last
        return sealed

    def _reaches(self, live: OpenLog, last: int) -> Iterable[_Reach]:
        log: Log = live.log
        inherited = min(log.inherited, last)
        if inherited:
            source = self._kernel.source_of(live)
            for reach in self._reaches(source, inherited):
                yield reach._replace(inherited=True)
        if inherited < last:
            yield _Reach(log.id, last, tuple(log.extents), False)


def _publish(segments: Segments, version: int, log: int) -> PublishedManifest:
    name = layout.manifest(version)
    listed = segments.look(name, log, Artifact.MANIFEST)
    raw = segments.load(name, log, Artifact.MANIFEST)
    if listed is None or raw is None:
        return PublishedManifest(version)  # forgotten meanwhile: there are newer ones
    return PublishedManifest(version, xxh3_64_hexdigest(raw), len(raw), listed.modified_ms)


class _Built(NamedTuple):
    """A build, and the rows that a log has in its segments."""

    build: Build
    part: Part | None
    described: Descriptor
    rows: int


def _survey(segments: Segments, reaches: list[_Reach], wanted: str | None) -> Survey:
    stretches: list[Stretch] = []
    built: dict[tuple[str, int], _Built] = {}
    own_bytes = 0
    newest: int | None = None
    for reach in reaches:
        for number, first, last in reach.extents:
            segment = segments.known(number)
            held = segments.held(number, reach.log) if segment is not None else None
            if segment is None or held is None or first > reach.last:
                continue
            newest = number
            share = (min(last, reach.last) - first + 1) / (last - first + 1)
            rows = round(held.rows * share)
            payload = round((held.record_bytes - RECORD_OVERHEAD_BYTES * held.rows) * share)
            whole = max(1, segment.record_bytes)
            own_bytes += 0 if reach.inherited else payload
            found = _built(segments, number, reach.log, built, rows)
            current = found is not None and found.part is not None and found.part.hash == wanted
            size = round(segment.file_bytes * held.record_bytes * share / whole)
            last_ts_ms = held.last_ts_ms
            stretches.append(Stretch(rows, payload, size, last_ts_ms, found is not None, current))
    stored_at_ms = partial(_last_stored_at_ms, segments, reaches[-1].log)
    shares, exact = _shares(built.values(), wanted)
    current_builds = [b for b in built.values() if b.part is not None and b.part.hash == wanted]
    cut = segments.known(newest) if newest is not None else None
    return Survey(
        tuple(stretches),
        own_bytes,
        shares,
        exact,
        len({b.build.name for b in current_builds}),
        stored_at_ms([b.build.name for b in built.values()], Artifact.COMPANION),
        stored_at_ms([b.build.name for b in current_builds], Artifact.COMPANION),
        None if cut is None else stored_at_ms([cut.name], Artifact.SEGMENT),
    )


def _built(
    segments: Segments, number: int, log: int, built: dict[tuple[str, int], _Built], rows: int
) -> _Built | None:
    build = segments.builds.of(number)
    if build is None:
        return None
    known = built.get((build.name, log))
    if known is None:
        described = segments.builds.describe(build, log)
        part = next((part for part in described.parts if part.log == log), None)
        known = _Built(build, part, described, 0)
    known = built[build.name, log] = known._replace(rows=known.rows + rows)
    return known


def _shares(
    built: Iterable[_Built], wanted: str | None
) -> tuple[dict[str, Share], dict[str, Share]]:
    shares: dict[str, Share] = {}
    exact: dict[str, Share] = {}
    for one in built:
        planned = sum(part.rows for part in one.described.parts)
        for file in one.described.files:
            if file.family.startswith("lex"):
                size = file.file_bytes * one.rows // max(1, one.described.rows)
            elif one.part is not None and one.part.hash == wanted:
                size = file.file_bytes * one.part.rows // max(1, planned)
            else:
                continue
            _add(shares, file.family, size)
            if file.family.startswith("exact") and one.part is not None and one.part.exact:
                for field in one.part.exact:
                    _add(exact, field, size // len(one.part.exact), "hash" not in file.family)
    return shares, exact


def _add(shares: dict[str, Share], name: str, size_bytes: int, objects: int = 1) -> None:
    share = shares.setdefault(name, Share())
    share.size_bytes += size_bytes
    share.objects += objects


def _last_stored_at_ms(
    segments: Segments, log: int, names: Sequence[str], artifact: Artifact
) -> int | None:
    """When the last of some objects was stored; they were made in the order of their names' use."""
    listed = segments.look(names[-1], log, artifact) if names else None
    return None if listed is None else listed.modified_ms
