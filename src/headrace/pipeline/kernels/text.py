"""Words of text fields, with their positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.companion import NUL, SCHEMAS, Family, shorts
from headrace.formats.leb128 import Ints
from headrace.formats.postings import VALUE_STRIDE, encode_positions, encode_postings
from headrace.pipeline.kernels.groups import Piece, Records, group, joined
from headrace.search.config import Field
from headrace.search.extraction import Column
from headrace.search.values import analyze

_LETTERS = np.zeros(256, np.uint8)
"""ASCII letters and digits in lower case; 0 for what lies between words."""
for _octet in b"0123456789abcdefghijklmnopqrstuvwxyz":
    _LETTERS[_octet] = _octet
    _LETTERS[ord(chr(_octet).upper())] = _octet


class Words(NamedTuple):
    """The words of some texts, in order."""

    owners: Ints
    """The text of each."""
    places: Ints
    """Its place there."""
    words: pa.Array


def text_piece(records: Records, field: Field, column: Column) -> Piece:
    """The words of a field."""
    found = split(column.values)
    rows = column.rows[found.owners]
    places = found.places
    if column.several:
        places = places + VALUE_STRIDE * _ordinals(column.rows)[found.owners]
    groups = group(records.logs[rows], shorts(found.words.cast(pa.binary())))
    seqs, places = records.seqs[rows][groups.order], places[groups.order]
    heads = np.zeros(len(seqs), bool)
    heads[groups.starts] = True
    firsts = heads | (np.diff(seqs, prepend=-1) != 0)
    prefixes = records.prefixes(field.name.encode() + NUL)
    keys = joined(prefixes.take(pa.array(groups.logs)), groups.values)
    table = pa.table(
        {
            "k": keys,
            **encode_postings(seqs[firsts], np.flatnonzero(heads[firsts])),
            "pos": encode_positions(places, firsts, groups.starts),
        },
        schema=SCHEMAS[Family.TEXT],
    )
    return Piece(records.ids[groups.logs], table)


def split(texts: pa.Array) -> Words:
    """What `analyze` makes of each text."""
    plain = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    if plain.all():
        return _split_plain(texts)
    easy, hard = np.flatnonzero(plain), np.flatnonzero(~plain)
    first = _split_plain(texts.take(pa.array(easy)))
    second = _split_any(texts.take(pa.array(hard)).to_pylist())
    owners = np.concatenate([easy[first.owners], hard[second.owners]])
    order = np.argsort(owners, kind="stable")
    return Words(
        owners[order],
        np.concatenate([first.places, second.places])[order],
        pa.concat_arrays([first.words, second.words]).take(pa.array(order)),
    )


def _split_any(texts: list[str]) -> Words:
    words = [analyze(text) for text in texts]
    counts = np.array([len(found) for found in words], np.int64)
    owners = np.repeat(np.arange(len(texts)), counts)
    flat = pa.array([word for found in words for word in found], pa.string())
    return Words(owners, _ordinals(owners), flat)


def _split_plain(texts: pa.Array) -> Words:
    _, offsets, data = texts.buffers()
    cuts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    base = int(cuts[0])
    octets = np.frombuffer(data, np.uint8)[base : cuts[-1]] if data else np.zeros(0, np.uint8)
    lower = _LETTERS[octets]
    inside = lower != 0
    starting = inside.copy()
    starting[1:] &= ~inside[:-1]
    heads = cuts[:-1].astype(np.int64) - base
    heads = heads[heads < len(octets)]
    starting[heads] = inside[heads]
    starts = np.flatnonzero(starting)
    owners = np.searchsorted(cuts, starts + base, "right") - 1
    ends = np.append(np.cumsum(inside, dtype=np.int32)[starts] - 1, np.count_nonzero(inside))
    words = pa.Array.from_buffers(
        pa.string(),
        len(starts),
        [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(lower[inside])],
    )
    return Words(owners, _ordinals(owners), words)


def _ordinals(owners: Ints) -> Ints:
    """For each of some ascending numbers, how many equal ones are before it."""
    at = np.arange(len(owners))
    return at - np.maximum.accumulate(np.where(np.diff(owners, prepend=-1) != 0, at, 0))
