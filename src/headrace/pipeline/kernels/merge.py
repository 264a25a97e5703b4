"""Merging companions: sorted tables of a family into one, without taking postings apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats import leb128
from headrace.formats.companion import SCHEMAS, Family
from headrace.formats.leb128 import Ints
from headrace.formats.postings import cut
from headrace.search import histogram


def merge_tables(family: Family, tables: Sequence[pa.Table]) -> pa.Table:
    """One sorted table. No record of a log is in two of them."""
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables).combine_chunks()
    match family:
        case Family.TYPED:
            return table.take(_order(table, "seq"))
        case Family.ROLL:
            return _merge_roll(table)
        case _:
            return _merge_postings(family, table)


def _order(table: pa.Table, *then: str) -> pa.Array:
    """The order by key and these columns of numbers; rows that are equal in them as they came."""
    numbers = [table.column(name).to_numpy() for name in reversed(then)]
    return pa.array(np.lexsort([*numbers, _ranks(table.column("k").combine_chunks())]))


def _ranks(values: pa.Array) -> Ints:
    """For each value its place among all different ones."""
    coded = values.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    found: Ints = ranks[coded.indices.to_numpy(zero_copy_only=False)]
    return found


def _merge_postings(family: Family, table: pa.Table) -> pa.Table:
    table = table.take(_order(table, "first")).combine_chunks()
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


def _merge_roll(table: pa.Table) -> pa.Table:
    starts_ms = table.column("start").to_numpy()
    keys = _ranks(table.column("k").combine_chunks())
    dims = _ranks(table.column("dims").combine_chunks())
    order = np.lexsort((dims, starts_ms, keys))
    table = table.take(pa.array(order)).combine_chunks()
    again = np.zeros(len(order), bool)
    for numbers in (keys[order], starts_ms[order], dims[order]):
        again[1:] |= np.diff(numbers) != 0
    again[1:] = ~again[1:]
    starts = np.flatnonzero(~again)
    firsts = table.take(pa.array(starts))
    plain = pc.is_null(firsts.column("sum")).to_numpy(zero_copy_only=False)

    def reduced(name: str, how: np.ufunc) -> pa.Array:
        numbers = table.column(name).fill_null(0).to_numpy()
        return pa.array(how.reduceat(numbers, starts), mask=plain)

    columns = {
        "k": firsts.column("k"),
        "start": firsts.column("start"),
        "dims": firsts.column("dims"),
        "count": np.add.reduceat(table.column("count").to_numpy(), starts),
        "sum": reduced("sum", np.add),
        "min": reduced("min", np.minimum),
        "max": reduced("max", np.maximum),
        "hist": _merge_histograms(table.column("hist").combine_chunks(), starts),
    }
    return pa.table(columns, schema=SCHEMAS[Family.ROLL])


def _merge_histograms(raws: pa.Array, starts: Ints) -> pa.Array:
    found = raws.take(pa.array(starts)).to_pylist()
    stops = np.append(starts[1:], len(raws))
    for at in np.flatnonzero(stops - starts > 1).tolist():
        if found[at] is not None:
            rows = raws.slice(starts[at], stops[at] - starts[at]).to_pylist()
            found[at] = histogram.merged(rows)
    return pa.array(found, pa.binary())
