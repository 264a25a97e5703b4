"""Which logs there are, and where their records lie: told by the server, or by the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client.http import Server
from headrace.client.store import Store, unreadable
from headrace.core import ranges
from headrace.core.name_patterns import STAR, NamePatterns, unknown_log
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.marks import Marks
from headrace.formats.plan import LogPlan, Span
from headrace.formats.segment import Piece
from headrace.spark.options import Where

EVERY_LOG = NamePatterns((), ("",))


class Placed(msgspec.Struct, frozen=True):
    """Rows of one log in one row group of a segment."""

    segment: str
    piece: Piece


class Catalog:
    """What can be read, as of one moment."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._store = Store(where.path) if where.path else None
        self._indexes: dict[str, list[Piece]] = {}
        self._names: dict[int, str] = {}
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
        return Server(self._where.url, self._where.key, self._where.patience_s)

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
        found: dict[int, list[Placed]] = {}
        if self._store is None or not any(plan.sealed for plan in plans):
            return found
        manifest = self.manifest()
        if self._owner and manifest.owner and manifest.owner.directory != self._owner:
            # Logs of two servers have the same ids.
            raise LookupError(
                f"path: {self._where.path} is of another server than {self._where.url}"
            )
        for segment in manifest.segments:
            for piece in self._pieces(segment):
                if piece.log in ids:
                    found.setdefault(piece.log, []).append(Placed(segment.name, piece))
        for places in found.values():
            places.sort(key=lambda placed: placed.piece.first)
        return found

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
        return {
            name for segment in self.manifest().segments for _, name in self._named(segment, logs)
        }

    def _sealed_plans(self, logs: NamePatterns) -> Iterator[LogPlan]:
        assert self._store is not None
        manifest = self.manifest()
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
        yield from newest.values()

    def _named(self, segment: Segment, logs: NamePatterns) -> Iterator[tuple[Piece, str]]:
        """The pieces of a segment whose logs are meant, with their names."""
        assert self._store is not None
        file: pq.ParquetFile | None = None
        names: dict[int, pa.ChunkedArray | None] = {}
        for piece in self._pieces(segment):
            name = self._names.get(piece.log)
            if name is None:
                group = piece.row_group
                if group not in names:
                    try:
                        file = file or self._store.parquet(segment.name)
                        names[group] = _names_of(file, group, logs)
                    except (pa.ArrowException, OSError) as error:
                        raise unreadable(segment.name, error) from None
                column = names[group]
                if column is None:
                    continue
                name = self._names[piece.log] = column[piece.row_start].as_py()
            if logs.takes(name):
                yield piece, name

    def _pieces(self, segment: Segment) -> list[Piece]:
        assert self._store is not None
        known = self._indexes.get(segment.name)
        if known is None:
            table = self._store.index(segment)
            columns = [column.to_pylist() for column in table.columns]
            known = [Piece(*row) for row in zip(*columns, strict=True)]
            self._indexes[segment.name] = known
        return known


def unsealed_log(pattern: str, known: Sequence[str], path: str | None) -> str:
    """One sentence on a log of which a store knows nothing."""
    said = unknown_log(pattern, known)
    return f"{said} (in {path}, where only what is sealed is known)"


def _names_of(file: pq.ParquetFile, group: int, logs: NamePatterns) -> pa.ChunkedArray | None:
    """The names in a row group; None when none of them can be meant."""
    chunk = file.metadata.row_group(group).column(0)
    stats = chunk.statistics
    if chunk.path_in_schema == "log" and stats is not None and stats.has_min_max:
        low, high = stats.min, stats.max
        exact = any(low <= name <= high for name in logs.names)
        if not exact and not any(
            low <= prefix <= high or low.startswith(prefix) for prefix in logs.prefixes
        ):
            return None
    return file.read_row_group(group, columns=["log"]).column("log")


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
