"""Words and phrases, from the files of a build: which records have them, and how often."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.formats.companion import short, upper, value_key
from headrace.formats.leb128 import Ints
from headrace.formats.postings import VALUE_STRIDE
from headrace.search.companions import Companions, NotIndexed, Term
from headrace.search.docsets import EMPTY, contained, counted, distinct, intersect, unite
from headrace.search.query import Words

PREFIX_BYTES_MAX = 900
"""Longer prefixes may reach into what keys of long values leave out."""


class Texts:
    """Answers for the text fields of one log from one build."""

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
                if len(raw) > PREFIX_BYTES_MAX:
                    raise NotIndexed(query.field)
                found.append(list(self._companions.terms(key, upper(key))))
            else:
                term = self._companions.term(key)
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
            records, here = self._companions.places(term)
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


_TEXT_BITS = 24
"""A document has fewer values than this many bits can count."""


def _text_codes(docs: Ints, places: Ints) -> Ints:
    """Numbers for values of documents."""
    return (docs << _TEXT_BITS) + places // VALUE_STRIDE
