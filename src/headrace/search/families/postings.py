"""Rows of postings: the records of a key. What keys, exact values and words have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats import leb128
from headrace.formats.companion import SCHEMAS, Family, sortable
from headrace.formats.leb128 import Ints
from headrace.formats.postings import cut, decode_postings, encode_postings
from headrace.search.extraction import Column
from headrace.search.families.groups import (
    FamilyRows,
    PlanRecords,
    group_coded,
    joined,
    order_by_key,
)

POSTINGS = ("k", "n", "first", "last", "post")


def presence_rows(records: PlanRecords, name: bytes, rows: Ints) -> FamilyRows:
    """For each log the records that are at some rows."""
    logs = records.logs[rows]
    starts = np.flatnonzero(np.diff(logs, prepend=-1))
    keys = records.prefixes(name).take(pa.array(logs[starts]))
    return _piece(records, logs[starts], keys, records.seqs[rows], starts)


def value_rows(
    records: PlanRecords, prefix: bytes, column: Column, coded: pa.DictionaryArray
) -> FamilyRows:
    """For each log and value the records that have it."""
    logs = records.logs[column.rows]
    found = group_coded(logs, coded)
    seqs = records.seqs[column.rows][found.order]
    starts = found.starts
    if column.several:
        # A document may name a value twice.
        heads = np.zeros(len(seqs), bool)
        heads[starts] = True
        kept = heads | (np.diff(seqs, prepend=-1) != 0)
        seqs, starts = seqs[kept], np.flatnonzero(heads[kept])
    keys = joined(records.prefixes(prefix).take(pa.array(found.logs)), _binary(found.values))
    return _piece(records, found.logs, keys, seqs, starts)


def _binary(values: pa.Array) -> pa.Array:
    """Values as they are in keys."""
    if pa.types.is_binary(values.type):
        return values
    return sortable(values.to_numpy(zero_copy_only=False))


def _piece(
    records: PlanRecords, logs: Ints, keys: pa.Array, seqs: Ints, starts: Ints
) -> FamilyRows:
    table = pa.table({"k": keys, **encode_postings(seqs, starts)}, schema=SCHEMAS[Family.EXACT])
    return FamilyRows(records.ids[logs], table)


def decode_rows(table: pa.Table) -> list[Ints]:
    """The records of each row."""
    columns = [table.column(name).to_pylist() for name in POSTINGS[1:]]
    return [decode_postings(*row) for row in zip(*columns, strict=True)]


def decode_column(table: pa.Table) -> tuple[Ints, Ints]:
    """The records of all rows one behind the other, and for each the row."""
    n = table.column("n").to_numpy()
    firsts = table.column("first").to_numpy()
    posts = table.column("post").combine_chunks()
    posts = posts.chunk(0) if isinstance(posts, pa.ChunkedArray) else posts
    rows = np.repeat(np.arange(len(n)), n)
    starts = np.cumsum(n) - n
    steps = np.ones(len(rows), np.int64)  # of runs; the others come here
    coded = posts.is_valid().to_numpy(zero_copy_only=False)
    inner = np.repeat(coded, n)
    inner[starts] = False
    raw = b"".join(posts.drop_null().to_pylist())
    if raw:
        steps[inner] = leb128.decode(raw)
    steps[starts] = 0
    sums = np.cumsum(steps)
    seqs: Ints = sums - np.repeat(sums[starts] - firsts, n)
    return seqs, rows


def merge_postings(family: Family, table: pa.Table) -> pa.Table:
    """Each key once, without taking postings apart. No record of a log is in two rows of a key."""
    table = table.take(order_by_key(table, "first")).combine_chunks()
    keys = table.column("k").combine_chunks()
    again = np.zeros(len(table), bool)
    again[1:] = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1))
    if not again.any():
        return table
    starts = np.flatnonzero(~again)
    stops = np.append(starts[1:], len(table))
    counts = table.column("n").to_numpy()
    firsts, lasts = table.column("first").to_numpy(), table.column("last").to_numpy()
    columns: dict[str, Any] = {
        "k": keys.take(pa.array(starts)),
        "n": np.add.reduceat(counts, starts),
        "first": firsts[starts],
        "last": lasts[stops - 1],
    }
    runs = columns["last"] - columns["first"] == columns["n"] - 1
    posts = _filled(table.column("post").combine_chunks(), counts)
    bridges = np.zeros(len(table), np.int64)
    bridges[1:] = firsts[1:] - lasts[:-1]
    columns["post"] = _joined(posts, bridges, again, starts, runs)
    if family is Family.TEXT:
        positions = table.column("pos").combine_chunks()
        columns["pos"] = cut(_octets(positions), _cuts(positions)[np.append(starts, len(table))])
    return pa.table(columns, schema=SCHEMAS[family])


def _filled(posts: pa.Array, counts: Ints) -> pa.Array:
    """Postings with the distances of runs written out."""
    if not posts.null_count:
        return posts
    missing = np.flatnonzero(pc.is_null(posts))
    ones = pa.array([b"\1" * (int(n) - 1) for n in counts[missing]], pa.binary())
    mask = np.zeros(len(posts), bool)
    mask[missing] = True
    return pc.replace_with_mask(posts, pa.array(mask), ones)


def _joined(
    posts: pa.Array, bridges: Ints, again: NDArray[np.bool_], starts: Ints, runs: NDArray[np.bool_]
) -> pa.Array:
    """The postings of each key: those of its rows, with the distances between them."""
    octets, places = leb128.encode(bridges[again])
    ends = np.zeros(len(again) + 1, np.int64)
    np.cumsum(again, out=ends[1:])
    whole = pc.binary_join_element_wise(
        cut(octets, places[ends]), posts, pa.scalar(b"", pa.binary())
    )
    cuts = _cuts(whole)[np.append(starts, len(again))]
    return pc.if_else(pa.array(runs), pa.scalar(None, pa.binary()), cut(_octets(whole), cuts))


def _octets(values: pa.Array) -> NDArray[np.uint8]:
    data = values.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _cuts(values: pa.Array) -> Ints:
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
