"""Postings: which records have a value, and where in them a word stands.

Records of a key: `n` of them, from `first` to `last`, and the distances between them as LEB128;
nothing when they are all of `first` to `last`. Postings of later records go behind those of earlier
ones with one distance in between, so merging does not decode.

Positions: one number for each occurrence of a word, in the order of records and words: the word's
place, or its distance to the one before in the same record, times two, plus one for the first in a
record. Words of a field's second value are `VALUE_STRIDE` further on, and so forth.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.formats import leb128
from headrace.formats.leb128 import Ints

VALUE_STRIDE = 1 << 24


def cut(
    octets: NDArray[np.uint8], cuts: Ints, missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Bytes as an array of binary, cut at these places."""
    assert int(cuts[-1]) < 1 << 31
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    offsets = pa.py_buffer(cuts.astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [valid, offsets, pa.py_buffer(np.ascontiguousarray(octets))]
    )


def encode_postings(seqs: Ints, starts: Ints) -> dict[str, pa.Array]:
    """The columns for groups of ascending seqs that start at these places."""
    stops = np.append(starts, len(seqs))[1:]
    counts = stops - starts
    firsts, lasts = seqs[starts], seqs[stops - 1]
    runs = lasts - firsts == counts - 1
    coded = ~np.repeat(runs, counts)
    coded[starts] = False
    octets, places = leb128.encode(np.diff(seqs, prepend=0)[coded])
    ends = np.cumsum(np.where(runs, 0, counts - 1))
    return {
        "n": pa.array(counts),
        "first": pa.array(firsts),
        "last": pa.array(lasts),
        "post": cut(octets, places[np.append(0, ends)], runs),
    }


def decode_postings(n: int, first: int, last: int, post: bytes | None) -> Ints:
    if post is None:
        return np.arange(first, last + 1, dtype=np.int64)
    seqs = np.empty(n, np.int64)
    seqs[0] = first
    seqs[1:] = leb128.decode(post)
    return np.cumsum(seqs, out=seqs)


def encode_positions(places: Ints, firsts: NDArray[np.bool_], starts: Ints) -> pa.Array:
    """Positions of occurrences, cut into groups that start at these places."""
    distances = np.diff(places, prepend=0)
    octets, cuts = leb128.encode(np.where(firsts, places, distances) << 1 | firsts)
    return cut(octets, cuts[np.append(starts, len(places))])


def decode_positions(pos: bytes) -> tuple[Ints, Ints]:
    """For each occurrence the index of its record among the postings, and its place there."""
    numbers = leb128.decode(pos)
    firsts = (numbers & 1).astype(bool)
    steps = numbers >> 1
    sums = np.cumsum(steps)
    records = np.cumsum(firsts) - 1
    heads = np.flatnonzero(firsts)
    return records, sums - (sums - steps)[heads][records]
