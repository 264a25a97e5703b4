"""Rows of families in the order of keys: values of many logs in groups of equal ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.leb128 import Ints


class PlanRecords(NamedTuple):
    """The records of a chunk that share a plan, in the order of log and seq."""

    ids: Ints
    """The logs, ascending."""
    logs: Ints
    """For each record the index of its log."""
    seqs: Ints

    def prefixes(self, text: bytes) -> pa.Array:
        """The keys that begin with each log's id and go on with this."""
        return pa.array([int(log).to_bytes(8, "big") + text for log in self.ids], pa.binary())


class Groups(NamedTuple):
    """Elements by log and value."""

    order: Ints
    """The elements, sorted; equal ones as they came."""
    starts: Ints
    """Where in `order` each group begins."""
    logs: Ints
    """The index of each group's log."""
    values: pa.Array
    """The value of each group."""


class FamilyRows(NamedTuple):
    """Rows of a family, sorted within each log."""

    logs: Ints
    """The id of each row's log."""
    table: pa.Table


def group(logs: Ints, values: pa.Array) -> Groups:
    """Groups of elements with equal log and value, sorted by both; text by its UTF-8 bytes."""
    coded = values.dictionary_encode()
    return group_coded(logs, coded)


def group_coded(logs: Ints, coded: pa.DictionaryArray) -> Groups:
    """The same for values that are dictionary-encoded already."""
    distinct, codes = coded.dictionary, coded.indices.to_numpy(zero_copy_only=False)
    by_value = pc.sort_indices(distinct).to_numpy().astype(np.int64)
    ranks = np.empty(len(distinct), np.int64)
    ranks[by_value] = np.arange(len(distinct))
    several = len(logs) > 0 and logs[0] != logs[-1]
    if not several and len(distinct) == len(codes):
        # Every value once: codes count up, so the order of values is that of elements.
        starts = np.arange(len(codes))
        return Groups(by_value, starts, logs[:1].repeat(len(codes)), distinct.take(by_value))
    keys = ranks[codes]
    if several:
        keys += logs * len(distinct)
    order = np.argsort(_narrow(keys), kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    groups = keys[starts]
    at = groups % max(1, len(distinct)) if several else groups
    own = groups // max(1, len(distinct)) if several else logs[:1].repeat(len(groups))
    return Groups(order, starts, own, distinct.take(by_value[at]))


def _narrow(keys: Ints) -> Ints:
    """The same numbers, narrow ones in two bytes: those are sorted several times faster."""
    top = int(keys.max()) if len(keys) else 0
    return keys.astype(np.uint16 if top < 1 << 16 else np.uint32 if top < 1 << 32 else np.int64)


def joined(prefixes: pa.Array, values: pa.Array) -> pa.Array:
    """Keys from their parts."""
    return pc.binary_join_element_wise(prefixes, values, pa.scalar(b"", pa.binary()))


def assemble(pieces: Iterable[FamilyRows]) -> pa.Table | None:
    """One sorted table from pieces whose keys ascend from piece to piece within each log."""
    found = [piece for piece in pieces if len(piece.logs)]
    if not found:
        return None
    table = pa.concat_tables([piece.table for piece in found]).combine_chunks()
    logs = np.concatenate([piece.logs for piece in found])
    if np.all(logs[1:] >= logs[:-1]):
        return table
    return table.take(pa.array(np.argsort(logs, kind="stable")))


def order_by_key(table: pa.Table, *then: str) -> pa.Array:
    """The order by key and these columns of numbers; rows that are equal in them as they came."""
    numbers = [table.column(name).to_numpy() for name in reversed(then)]
    return pa.array(np.lexsort([*numbers, ranks(table.column("k").combine_chunks())]))


def ranks(values: pa.Array) -> Ints:
    """For each value its place among all different ones."""
    coded = values.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    found: Ints = places[coded.indices.to_numpy(zero_copy_only=False)]
    return found
