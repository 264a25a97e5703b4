"""Words of text fields, with their positions: which records have them, where, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.companion import (
    KEY_PREFIX_BYTES_MAX,
    NUL,
    SCHEMAS,
    Family,
    short,
    shorts,
    upper,
    value_key,
)
from headrace.formats.leb128 import Ints
from headrace.formats.postings import (
    VALUE_STRIDE,
    decode_positions,
    encode_positions,
    encode_postings,
)
from headrace.search.companions import Companions, NotIndexed
from headrace.search.config import Field
from headrace.search.docsets import EMPTY, contained, counted, distinct, intersect, unite
from headrace.search.extraction import Column
from headrace.search.families.groups import FamilyRows, PlanRecords, group, joined
from headrace.search.families.postings import POSTINGS, decode_rows
from headrace.search.query import Words
from headrace.search.values import analyze

_LETTERS = np.zeros(256, np.uint8)
"""ASCII letters and digits in lower case; 0 for what lies between words."""
for _octet in b"0123456789abcdefghijklmnopqrstuvwxyz":
    _LETTERS[_octet] = _octet
    _LETTERS[ord(chr(_octet).upper())] = _octet


class SplitTexts(NamedTuple):
    """The words of some texts, in order."""

    owners: Ints
    """The text of each."""
    places: Ints
    """Its place there."""
    words: pa.Array


def text_piece(records: PlanRecords, field: Field, column: Column) -> FamilyRows:
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
    return FamilyRows(records.ids[groups.logs], table)


def split(texts: pa.Array) -> SplitTexts:
    """What `analyze` makes of each text."""
    plain = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    if plain.all():
        return _split_plain(texts)
    easy, hard = np.flatnonzero(plain), np.flatnonzero(~plain)
    first = _split_plain(texts.take(pa.array(easy)))
    second = _split_any(texts.take(pa.array(hard)).to_pylist())
    owners = np.concatenate([easy[first.owners], hard[second.owners]])
    order = np.argsort(owners, kind="stable")
    return SplitTexts(
        owners[order],
        np.concatenate([first.places, second.places])[order],
        pa.concat_arrays([first.words, second.words]).take(pa.array(order)),
    )


def _split_any(texts: list[str]) -> SplitTexts:
    words = [analyze(text) for text in texts]
    counts = np.array([len(found) for found in words], np.int64)
    owners = np.repeat(np.arange(len(texts)), counts)
    flat = pa.array([word for found in words for word in found], pa.string())
    return SplitTexts(owners, _ordinals(owners), flat)


def _split_plain(texts: pa.Array) -> SplitTexts:
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
    return SplitTexts(owners, _ordinals(owners), words)


def _ordinals(owners: Ints) -> Ints:
    """For each of some ascending numbers, how many equal ones are before it."""
    at = np.arange(len(owners))
    return at - np.maximum.accumulate(np.where(np.diff(owners, prepend=-1) != 0, at, 0))


class Term(NamedTuple):
    """A word: the records that have it, and where."""

    key: bytes
    seqs: Ints
    pos: bytes


class TextReader:
    """Reads the words of one log from one build."""

    def __init__(self, companions: Companions, log: int) -> None:
        self._companions = companions
        self._log = log

    def find(self, query: Words) -> Ints:
        """The records with these words, or with this phrase."""
        if not query.words:
            return EMPTY
        terms = self._each(query)
        found = unite([term.seqs for term in terms[0]])
        for own in terms[1:]:
            found = intersect(found, unite([term.seqs for term in own]))
        if query.phrase and len(terms) > 1 and len(found):
            docs, _ = self._phrases(terms, found)
            return found[distinct(docs)]
        return found

    def score(self, query: Words, seqs: Ints, matching: Ints) -> NDArray[np.float64]:
        """What `evaluate.score` says of these records, for this clause, given those it finds."""
        scores = np.zeros(len(seqs))
        chosen = np.flatnonzero(contained(seqs, matching))
        if not len(chosen):
            return scores
        terms = self._each(query)
        different = {term.key: term for own in terms for term in own}
        docs, places = self._spots(list(different.values()), seqs[chosen])
        texts, counts = counted(_text_codes(docs, places))
        if query.phrase:
            if len(terms) > 1:
                with_phrase = distinct(_text_codes(*self._phrases(terms, seqs[chosen])))
                counts = counts[contained(texts, with_phrase)]
                texts = with_phrase
            counts = counts + 2 * len(query.words)
        best = np.zeros(len(chosen))
        np.maximum.at(best, texts >> _TEXT_BITS, counts)
        scores[chosen] = best * query.boost
        return scores

    def _each(self, query: Words) -> list[list[Term]]:
        """For each word of the query the terms it stands for."""
        found = []
        for at, word in enumerate(query.words):
            raw = word.encode()
            key = value_key(self._log, query.field, short(raw))
            if query.open and at == len(query.words) - 1:
                if len(raw) > KEY_PREFIX_BYTES_MAX:
                    raise NotIndexed(query.field)
                found.append(list(self._range(key, upper(key))))
            else:
                term = self._term(key)
                found.append([term] if term is not None else [])
            if not found[-1]:
                return [[]]
        return found

    def _phrases(self, terms: list[list[Term]], seqs: Ints) -> tuple[Ints, Ints]:
        """Where phrases start: the index of the record among `seqs`, and the place in it."""
        spots = [self._spots(own, seqs) for own in terms]
        width = 1 + max(int(places.max()) if len(places) else 0 for _, places in spots)
        codes: Ints | None = None
        for at, (docs, places) in enumerate(spots):
            here = distinct((docs * width + places - at)[places >= at])
            codes = here if codes is None else intersect(codes, here)
        assert codes is not None
        return codes // width, codes % width

    def _spots(self, terms: list[Term], seqs: Ints) -> tuple[Ints, Ints]:
        """Where in these records the terms stand: the index of the record, and the place."""
        docs: list[Ints] = []
        places: list[Ints] = []
        for term in terms:
            records, here = self._places(term)
            indices = np.searchsorted(seqs, term.seqs)
            indices[indices == len(seqs)] = 0
            indices[seqs[indices] != term.seqs] = -1
            owners = indices[records]
            kept = owners >= 0
            docs.append(owners[kept])
            places.append(here[kept])
        if not docs:
            return EMPTY, EMPTY
        return np.concatenate(docs), np.concatenate(places)

    def _range(self, low: bytes, high: bytes | None) -> Iterator[Term]:
        """The words in [low, high)."""
        file = self._companions.file(Family.TEXT)
        if file is not None:
            for table in file.rows(low, high, (*POSTINGS, "pos")):
                yield from self._decoded(table)

    def _term(self, key: bytes) -> Term | None:
        held: Term | None = self._companions.cache.get((Family.TEXT, key))
        if held is not None:
            self._companions.used(Family.TEXT)
            return held
        row = self._companions.row(Family.TEXT, key, (*POSTINGS, "pos"))
        return next(self._decoded(row)) if row is not None else None

    def _decoded(self, table: pa.Table) -> Iterator[Term]:
        with self._companions.decoding(Family.TEXT):
            keys, positions = table.column("k").to_pylist(), table.column("pos").to_pylist()
            found = list(map(Term, keys, decode_rows(table), positions))
        for term in found:
            self._companions.cache.put(
                (Family.TEXT, term.key), term, term.seqs.nbytes + len(term.pos)
            )
            yield term

    def _places(self, term: Term) -> tuple[Ints, Ints]:
        """For each occurrence of a word the index of its record, and its place there."""
        held: tuple[Ints, Ints] | None = self._companions.cache.get(("places", term.key))
        if held is None:
            with self._companions.decoding(Family.TEXT):
                held = decode_positions(term.pos)
            self._companions.cache.put(("places", term.key), held, held[0].nbytes + held[1].nbytes)
        return held


_TEXT_BITS = 24
"""A document has fewer values than this many bits can count."""


def _text_codes(docs: Ints, places: Ints) -> Ints:
    """Numbers for values of documents."""
    return (docs << _TEXT_BITS) + places // VALUE_STRIDE
