"""One pass over a segment makes all its companions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence, Set

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.formats.companion import Descriptor, Family, Part
from headrace.formats.index_plans import IndexPlan, IndexPlans
from headrace.formats.leb128 import Ints
from headrace.pipeline.kernels.merge import merge_tables
from headrace.pipeline.kernels.output import Write, join_parts, store
from headrace.schemas.promotion import Promoter
from headrace.schemas.registry import decode_registry
from headrace.search.config import Field, FieldKind, Search, parse_search
from headrace.search.extraction import Column, read_columns
from headrace.search.families.exact import (
    TypedValues,
    presence_piece,
    record_piece,
    value_piece,
)
from headrace.search.families.groups import FamilyRows, PlanRecords, assemble
from headrace.search.families.keys import key_piece
from headrace.search.families.rollup import extra_paths, roll_pieces
from headrace.search.families.text import text_piece
from headrace.search.families.typed import typed_piece
from headrace.search.values import PathReader

CHUNK_ROWS = 131_072
CHUNK_BYTES = 48 << 20
"""PlanRecords are worked on in chunks of whole row groups, so many rows or bytes at once."""

Documents = Sequence[bytes | None]
Pieces = dict[Family, list[FamilyRows]]


class _Wanted:
    """A plan that some logs have in common, ready for use."""

    def __init__(self, plan: IndexPlan) -> None:
        self.plan = plan
        self.search: Search = parse_search(msgspec.json.decode(plan.search))
        self.fields = [self.search.fields[name] for name in sorted(self.search.fields)]
        paths = [field.path() for field in self.fields]
        self.reader = PathReader([*paths, *extra_paths(self.search)])
        self._promoter = promoter_of(plan)
        self.repeated = {f.name: TypedValues() for f in self.fields if f.typed and _is_exact(f)}
        """What may come to be in `exact`, by field."""

    def current(self, seqs: Ints, documents: Documents) -> Documents:
        """The documents of records with these seqs as they are in the current schema version."""
        if self._promoter is None:
            return documents
        return self._promoter.attempt(seqs.tolist(), documents)


def promoter_of(plan: IndexPlan) -> Promoter | None:
    """What the documents of a plan's logs go through first."""
    versions = bytes(plan.versions)
    return Promoter(decode_registry(versions)) if versions else None


def build(
    rows: pq.ParquetFile,
    index: pa.Table,
    plans: IndexPlans,
    write: Write,
    *,
    segment: int,
    generation: int,
    only: Set[int] | None = None,
) -> Descriptor:
    """The companions of a segment, given its index of logs, by this generation of plans.

    Keys are indexed for every log, the rest for logs with a plan. With `only` these logs alone are
    looked at, and no keys: what else there is to know of the segment is in another build.
    """
    if only is not None:
        index = with_logs(index, only)
    wanted = _by_log(plans, index, only)
    shared = {id(own): own for own in wanted.values()}.values()
    tables: dict[Family, list[pa.Table]] = {family: [] for family in Family}
    seen: dict[int, list[Part]] = {}
    for groups in chunks(rows.metadata, index):
        pieces: Pieces = {family: [] for family in Family}
        table = _by_id(_read(rows, index, groups, columns_of(index, groups, wanted)))
        if only is None:
            _add_keys(table, pieces)
        for part in _add_plans(table, wanted, pieces):
            seen.setdefault(part.log, []).append(part)
        for family, found in pieces.items():
            table = assemble(found)
            if table is not None:
                tables[family].append(table)
    left_out = _add_repeated(shared, tables[Family.EXACT])
    return Descriptor(
        segments=(segment,),
        plans=generation,
        rows=rows.metadata.num_rows,
        parts=tuple(_without(join_parts(seen[log]), left_out) for log in sorted(seen)),
        files=tuple(
            file
            for family, found in tables.items()
            if found
            for file in store(family, [merge_tables(family, found)], write)
        ),
    )


def _add_repeated(shared: Iterable[_Wanted], tables: list[pa.Table]) -> set[tuple[str, str]]:
    """Add the values of typed fields that repeat; which fields of which plans do not."""
    pieces: list[FamilyRows] = []
    left_out: set[tuple[str, str]] = set()
    for own in shared:
        for name, values in own.repeated.items():
            if not values.empty:
                piece = values.piece(name)
                if piece is not None:
                    pieces.append(piece)
                else:
                    left_out.add((own.plan.hash, name))
    table = assemble(pieces)
    if table is not None:
        tables.append(table)
    return left_out


def _without(part: Part, left_out: set[tuple[str, str]]) -> Part:
    kept = tuple(name for name in part.exact if (part.hash, name) not in left_out)
    return msgspec.structs.replace(part, exact=kept)


def with_logs(index: pa.Table, logs: Set[int]) -> pa.Table:
    """The index, of the row groups alone that have rows of these logs."""
    held = pc.is_in(index.column("log_id"), pa.array(sorted(logs), pa.int64()))
    groups = pc.unique(index.filter(held).column("row_group"))
    return index.filter(pc.is_in(index.column("row_group"), groups))


def bytes_to_read(
    footer: pq.FileMetaData, index: pa.Table, planned: Set[int], only: Set[int] | None
) -> int:
    """What is read of a segment to build it, of its bytes."""
    if only is not None:
        index = with_logs(index, only)
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    return sum(
        footer.row_group(group).column(places[column]).total_compressed_size
        for groups in chunks(footer, index)
        for column in columns_of(index, groups, planned)
        for group in groups
    )


def _by_log(plans: IndexPlans, index: pa.Table, only: Set[int] | None) -> dict[int, _Wanted]:
    """The plans of logs that are in the segment; equal ones are prepared once."""
    here = set(pc.unique(index.column("log_id")).to_pylist())
    if only is not None:
        here &= only
    shared: dict[str, _Wanted] = {}
    found: dict[int, _Wanted] = {}
    for plan in plans.plans:
        if plan.log_id in here:
            if plan.hash not in shared:
                shared[plan.hash] = _Wanted(plan)
            found[plan.log_id] = shared[plan.hash]
    return found


def chunks(metadata: pq.FileMetaData, index: pa.Table) -> Iterator[list[int]]:
    """Row groups that the index knows of, as they are worked on together."""
    chunk: list[int] = []
    rows = size = 0
    for at in sorted(pc.unique(index.column("row_group")).to_pylist()):
        group = metadata.row_group(at)
        if chunk and (
            rows + group.num_rows > CHUNK_ROWS or size + group.total_byte_size > CHUNK_BYTES
        ):
            yield chunk
            chunk, rows, size = [], 0, 0
        chunk.append(at)
        rows += group.num_rows
        size += group.total_byte_size
    if chunk:
        yield chunk


def columns_of(index: pa.Table, groups: list[int], planned: Container[int]) -> list[str]:
    """What is read of row groups: no documents where nobody wants them indexed."""
    logs = pc.unique(_in_groups(index, groups).column("log_id")).to_pylist()
    wanted = any(log in planned for log in logs)
    return ["log_id", "seq", "key", *(["media", "data"] if wanted else [])]


def _in_groups(index: pa.Table, groups: list[int]) -> pa.Table:
    return index.filter(pc.is_in(index.column("row_group"), pa.array(groups, pa.int64())))


def _read(rows: pq.ParquetFile, index: pa.Table, groups: list[int], columns: list[str]) -> pa.Table:
    """The rows of a chunk; `ValueError` unless they are those that the index tells of."""
    table = rows.read_row_groups(groups, columns=columns).combine_chunks()
    pieces = _in_groups(index, groups).sort_by(
        [("row_group", "ascending"), ("row_start", "ascending")]
    )
    logs, firsts, lasts, counts = (
        pieces.column(name).to_numpy() for name in ("log_id", "first_seq", "last_seq", "rows")
    )
    stops = np.cumsum(counts)
    ids, seqs = (table.column(name).to_numpy() for name in ("log_id", "seq"))
    if (
        stops[-1] != len(table)
        or (ids != np.repeat(logs, counts)).any()
        or (seqs[stops - counts] != firsts).any()
        or (seqs[stops - 1] != lasts).any()
    ):
        raise ValueError("the rows are not those that the index of the segment tells of")
    return table


def _add_keys(table: pa.Table, pieces: Pieces) -> None:
    keys = table.column("key").combine_chunks()
    if keys.null_count < len(keys):
        pieces[Family.LEX].append(key_piece(_records(table), keys))


def _add_plans(table: pa.Table, wanted: dict[int, _Wanted], pieces: Pieces) -> Iterator[Part]:
    if "data" not in table.column_names:
        return
    shared: dict[str, list[int]] = {}
    ids = table.column("log_id").to_numpy()
    for log in np.unique(ids).tolist():
        if log in wanted:
            shared.setdefault(wanted[log].plan.hash, []).append(log)
    for logs in shared.values():
        own = wanted[logs[0]]
        chosen = table.filter(pa.array(np.isin(ids, logs))) if len(logs) < len(ids) else table
        yield from _add_plan(own, chosen, pieces)


def _by_id(table: pa.Table) -> pa.Table:
    """The rows by log id; in a segment they are by the names of logs."""
    ids = table.column("log_id").to_numpy()
    if np.all(ids[1:] >= ids[:-1]):
        return table
    return table.take(pa.array(np.argsort(ids, kind="stable"))).combine_chunks()


def _records(table: pa.Table) -> PlanRecords:
    ids, logs = np.unique(table.column("log_id").to_numpy(), return_inverse=True)
    return PlanRecords(ids, logs, table.column("seq").to_numpy())


def _add_plan(own: _Wanted, table: pa.Table, pieces: Pieces) -> Iterator[Part]:
    records = _records(table)
    json = pc.is_null(table.column("media"))
    stored: Documents = pc.if_else(json, table.column("data"), None).to_pylist()
    documents = own.current(records.seqs, stored)
    columns, extra = read_columns(own.fields, own.reader, documents)
    pieces[Family.EXACT].append(record_piece(records))
    for field, column in zip(own.fields, columns, strict=True):
        if len(column.rows):
            _add_field(own, records, field, column, pieces)
    named = {field.name: column for field, column in zip(own.fields, columns, strict=True)}
    pieces[Family.ROLL] += roll_pieces(records, own.search, named, extra)
    exact = tuple(field.name for field in own.fields if _is_exact(field))
    several = _several(records, named)
    starts = np.flatnonzero(np.diff(records.logs, prepend=-1))
    stops = np.append(starts[1:], len(records.seqs))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield Part(
            log=int(records.ids[records.logs[start]]),
            hash=own.plan.hash,
            spans=((int(records.seqs[start]), int(records.seqs[stop - 1])),),
            rows=stop - start,
            exact=exact,
            several=tuple(n for n, logs in several.items() if int(records.logs[start]) in logs),
        )


def _several(records: PlanRecords, columns: dict[str, Column]) -> dict[str, set[int]]:
    """For each field of which a record has more than one value, the logs of such records."""
    found = {name: column.rows for name, column in columns.items() if column.several}
    return {n: {*records.logs[rows[1:][np.diff(rows) == 0]].tolist()} for n, rows in found.items()}


def _is_exact(field: Field) -> bool:
    return field.exact or field.prefix


def _add_field(
    own: _Wanted, records: PlanRecords, field: Field, column: Column, pieces: Pieces
) -> None:
    pieces[Family.EXACT].append(presence_piece(records, field, column))
    if field.typed:
        pieces[Family.TYPED].append(typed_piece(records, field, column))
    elif field.kind is FieldKind.TEXT:
        pieces[Family.TEXT].append(text_piece(records, field, column))
    if field.name in own.repeated:
        own.repeated[field.name].add(records, column)
    elif _is_exact(field):
        pieces[Family.EXACT].append(value_piece(records, field, column))
