"""Which logs there are, and where their records lie: told by the server, or by the manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.client.http import Server
from headrace.client.store import Missing, Store, unreadable
from headrace.core import ranges
from headrace.core.name_patterns import STAR, NamePatterns, unknown_log, unsealed_log
from headrace.core.owners import is_hidden
from headrace.formats.log_plan import LogPlan, Span
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.marks import Marks
from headrace.formats.segment import Piece
from headrace.spark.options import Where

EVERY_LOG = NamePatterns((), ("",))
T = TypeVar("T")
MANIFESTS_TRIED = 10
"""Manifests that a plan is made by, one after the other, while what they name goes away."""


class Placed(msgspec.Struct, frozen=True):
    """Rows of one log in one row group of a segment."""

    segment: str
    piece: Piece


class Catalog:
    """What can be read, as of one moment."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._store = Store(where.path) if where.path else None
        self._indexes: dict[str, pa.Table] = {}
        self._named_in: dict[tuple[str, NamePatterns], list[tuple[Piece, str]]] = {}
        self._owner: str | None = None

    @property
    def has_store(self) -> bool:
        return self._store is not None

    def plans(self, logs: NamePatterns, *, extents: bool) -> list[LogPlan]:
        """The logs that are meant, by name; with `extents`, what of them lies where."""
        if self._where.url is None:
            found = self._sealed_plans(logs)
        else:
            found = self._served_plans(logs, extents=extents)
        plans = {plan.log: plan for plan in found}
        return [plans[name] for name in sorted(plans)]

    def _served_plans(self, logs: NamePatterns, *, extents: bool) -> Iterator[LogPlan]:
        with self._server() as server:
            yield from server.logs(logs.names, extents=extents)
            for prefix in logs.prefixes:
                yield from server.logs_of(prefix, extents=extents)
            self._owner = server.store or self._owner

    def _server(self) -> Server:
        assert self._where.url is not None
        return Server(self._where.url, self._where.key, self._where.timeout_s)

    def check_names(self, names: Iterable[str], found: Iterable[LogPlan]) -> None:
        """LookupError for a name that no log has."""
        there = {plan.log for plan in found}
        for name in names:
            if name not in there:
                raise LookupError(self._unknown(name))

    def check_prefixes(self, prefixes: Iterable[str], found: Iterable[LogPlan]) -> None:
        """LookupError for a prefix that no log begins with."""
        there = [plan.log for plan in found]
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name in there):
                raise LookupError(self._unknown(prefix + STAR))

    def _unknown(self, pattern: str) -> str:
        if self._where.url is not None:
            with self._server() as server:
                return unknown_log(pattern, server.some_names())
        known = sorted(plan.log for plan in self._sealed_plans(EVERY_LOG))
        return unsealed_log(pattern, known, self._where.path)

    def placed(self, plans: Iterable[LogPlan]) -> dict[int, list[Placed]]:
        """Log → where its sealed records lie, ascending; nothing without an object store."""
        plans = list(plans)
        ids = {plan.epoch for plan in plans}
        if self._store is None or not any(plan.sealed for plan in plans):
            return {}
        return self._by_manifest(lambda manifest: self._placed(manifest, ids))

    def _placed(self, manifest: Manifest, logs: Collection[int]) -> dict[int, list[Placed]]:
        self._check_owner(manifest)
        found: dict[int, list[Placed]] = {}
        ids = pa.array(sorted(logs), pa.int64())
        for segment in manifest.segments:
            table = self._index(segment)
            for piece in _pieces(table.filter(pc.is_in(table.column("log_id"), ids))):
                found.setdefault(piece.log, []).append(Placed(segment.name, piece))
        for places in found.values():
            places.sort(key=lambda placed: placed.piece.first)
        return found

    def _check_owner(self, manifest: Manifest) -> None:
        if self._owner and manifest.owner and manifest.owner.directory != self._owner:
            # Logs of two servers have the same ids.
            raise LookupError(
                f"path: {self._where.path} is of another server than {self._where.url}"
            )

    def _by_manifest(self, look: Callable[[Manifest], T]) -> T:
        """What the newest manifest tells; again when what it names was replaced meanwhile."""
        manifest = self.manifest()
        for left in reversed(range(MANIFESTS_TRIED)):
            self._forget_others(manifest)
            try:
                return look(manifest)
            except Missing:
                before, manifest = manifest, self.manifest()
                if manifest.version == before.version or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _forget_others(self, manifest: Manifest) -> None:
        names = {segment.name for segment in manifest.segments}
        for name in self._indexes.keys() - names:
            del self._indexes[name]
        for known in [known for known in self._named_in if known[0] not in names]:
            del self._named_in[known]

    def manifest(self) -> Manifest:
        """The newest one of the store; LookupError where there is none."""
        assert self._store is not None
        try:
            manifest = self._store.manifest()
        except OSError as error:
            raise OSError(f"path: {self._where.path} cannot be read: {error}") from None
        if manifest is None:
            what = "something is sealed" if self._where.url is None else "this server seals"
            raise LookupError(
                f"path: there is no manifest in {self._where.path}; "
                f"it is a data directory, or its object store, where {what}"
            )
        return manifest

    # --- without a server ------------------------------------------------------------------------

    def sealed_names(self, logs: NamePatterns) -> set[str]:
        """Names of the logs that are meant and have rows in segments, dead or alive."""
        return self._by_manifest(
            lambda manifest: {
                name for segment in manifest.segments for _, name in self._named(segment, logs)
            }
        )

    def _sealed_plans(self, logs: NamePatterns) -> Iterable[LogPlan]:
        return self._by_manifest(lambda manifest: self._plans_by(manifest, logs))

    def _plans_by(self, manifest: Manifest, logs: NamePatterns) -> Iterable[LogPlan]:
        assert self._store is not None
        marks = self._store.marks(manifest)
        newest: dict[str, LogPlan] = {}
        for segment in manifest.segments:
            spans: dict[int, tuple[LogPlan, Span]] = {}
            for piece, name in self._named(segment, logs):
                if not ranges.contains(marks.live, piece.log):
                    continue
                plan = newest.get(name)
                if plan is None or plan.epoch < piece.log:
                    plan = newest[name] = _empty_plan(name, piece.log, marks)
                if plan.epoch == piece.log:
                    _count(plan, piece)
                    _, (first, _) = spans.get(piece.log, (plan, (piece.first, 0)))
                    spans[piece.log] = plan, (first, piece.last)
            for plan, span in spans.values():
                _extend(plan, span)
        return newest.values()

    def _named(self, segment: Segment, logs: NamePatterns) -> list[tuple[Piece, str]]:
        """The pieces of a segment whose logs are meant, with their names; seqs of a log ascend."""
        known = self._named_in.get((segment.name, logs))
        if known is None:
            try:
                known = [*self._find_named(segment, logs)]
            except (pa.ArrowException, OSError) as error:
                raise unreadable(segment.name, error) from None
            self._named_in[segment.name, logs] = known
        return known

    def _find_named(self, segment: Segment, logs: NamePatterns) -> Iterator[tuple[Piece, str]]:
        assert self._store is not None
        index, file = self._index(segment), self._store.parquet(segment.name)
        for group in range(file.num_row_groups):
            if not _may_hold(file, group, logs):
                continue
            names = file.read_row_group(group, columns=["log"], use_threads=False).column("log")
            for piece in _pieces(index.filter(pc.equal(index.column("row_group"), group))):
                name = names[piece.row_start].as_py()
                if logs.takes(name) and not is_hidden(name):
                    yield piece, name

    def _index(self, segment: Segment) -> pa.Table:
        """As a table: a segment may hold 100,000 logs of which one is meant."""
        assert self._store is not None
        known = self._indexes.get(segment.name)
        if known is None:
            known = self._indexes[segment.name] = self._store.index(segment)
        return known


def _pieces(index: pa.Table) -> Iterator[Piece]:
    columns = [column.to_pylist() for column in index.columns]
    return (Piece(*row) for row in zip(*columns, strict=True))


def _may_hold(file: pq.ParquetFile, group: int, logs: NamePatterns) -> bool:
    """Whether a row group may have rows of logs that are meant: it is sorted by their names."""
    chunk = file.metadata.row_group(group).column(0)
    stats = chunk.statistics
    if chunk.path_in_schema != "log" or stats is None or not stats.has_min_max:
        return True
    low, high = stats.min, stats.max
    return any(low <= name <= high for name in logs.names) or any(
        low <= prefix <= high or low.startswith(prefix) for prefix in logs.prefixes
    )


def _empty_plan(name: str, log: int, marks: Marks) -> LogPlan:
    return LogPlan(
        log=name,
        epoch=log,
        owner="",
        media=None,
        head_seq=0,
        earliest_seq=1,
        floor_seq=1,
        count=0,
        bytes=0,
        sealed=[],
        deleted=[*ranges.pairs(marks.dead.get(log, ranges.EMPTY))],
        lost=[],
    )


def _count(plan: LogPlan, piece: Piece) -> None:
    plan.count += piece.rows
    plan.bytes += piece.record_bytes


def _extend(plan: LogPlan, span: Span) -> None:
    """Along the segments the seqs of each log ascend."""
    assert isinstance(plan.sealed, list)
    plan.sealed.append(span)
    plan.head_seq = span[1]
    plan.earliest_seq = plan.sealed[0][0]
