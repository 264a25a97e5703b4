"""Whether a document matches a query, and how well: for records that no companion covers yet."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge, gt, le, lt
from typing import Any as Anything

from headrace.search.config import Search
from headrace.search.query import (
    All,
    Any,
    Compares,
    Equals,
    Has,
    Not,
    Query,
    Starts,
    Words,
    clauses,
)
from headrace.search.values import Reader, Value, accepted, analyze, values_of

Values = dict[str, list[Value]]
"""The canonical values of a document's fields."""

COMPARE = {">": gt, ">=": ge, "<": lt, "<=": le}


class Fields:
    """Reads some fields of documents."""

    def __init__(self, search: Search, names: Sequence[str]) -> None:
        self._fields = [search.fields[name] for name in names]
        self._reader = Reader([field.path() for field in self._fields])

    def read(self, raws: Sequence[bytes | None]) -> list[Values]:
        columns = self._reader.read(raws)
        return [
            {
                field.name: values_of(field, found) if found is not None else []
                for field, found in zip(self._fields, row, strict=True)
            }
            for row in (zip(*columns, strict=True) if columns else [()] * len(raws))
        ]


class Presenter:
    """Shows the fields of documents as the documents have them."""

    def __init__(self, search: Search) -> None:
        self._fields = list(search.fields.values())
        self._reader = Reader([field.path() for field in self._fields])

    def read(self, raws: Sequence[bytes | None]) -> list[dict[str, Anything]]:
        """For each document its fields: one value as it is, several as a list."""
        return [
            {
                field.name: values[0] if len(values) == 1 else values
                for field, found in zip(self._fields, row, strict=True)
                if (values := accepted(field, found))
            }
            for row in zip(*self._reader.read(raws), strict=True)
        ]


class Matcher:
    """A query, ready to be asked of documents."""

    def __init__(self, query: Query, search: Search) -> None:
        self._query = query
        self._fields = Fields(search, sorted({clause.field for clause in clauses(query)}))

    def match(self, raws: Sequence[bytes | None]) -> list[bool]:
        return [matches(self._query, values) for values in self._fields.read(raws)]

    def score(self, raws: Sequence[bytes | None]) -> list[float | None]:
        """The score of each document that matches; None for the others."""
        return [
            score(self._query, values) if matches(self._query, values) else None
            for values in self._fields.read(raws)
        ]


def matches(query: Query, values: Values) -> bool:
    match query:
        case All(items=items):
            return all(matches(item, values) for item in items)
        case Any(items=items):
            return any(matches(item, values) for item in items)
        case Not(item=item):
            return not matches(item, values)
        case Equals(field=field, value=value):
            return value in values[field]
        case Starts(field=field, text=text):
            return any(str(value).startswith(text) for value in values[field])
        case Compares(field=field, operator=operator, value=limit):
            compare = COMPARE[operator]
            return any(compare(value, limit) for value in values[field])
        case Has(field=field):
            return bool(values[field])
        case Words():
            return _has_words(query, [analyze(str(value)) for value in values[query.field]])


def score(query: Query, values: Values) -> float:
    """How well a document matches; text clauses add up, what is negated counts nothing."""
    match query:
        case All(items=items) | Any(items=items):
            return sum(score(item, values) for item in items)
        case Words(field=field):
            texts = [analyze(str(value)) for value in values[field]]
            return _score_words(query, texts) if _has_words(query, texts) else 0.0
        case _:
            return 0.0


def _has_words(clause: Words, texts: list[list[str]]) -> bool:
    if not clause.words:
        return False
    if clause.phrase:
        return any(_has_phrase(clause, text) for text in texts)
    found = {word for text in texts for word in text}
    *whole, last = clause.words
    return found.issuperset(whole) and (
        any(word.startswith(last) for word in found) if clause.open else last in found
    )


def _has_phrase(clause: Words, text: list[str]) -> bool:
    *whole, last = clause.words
    for start in range(len(text) - len(whole)):
        word = text[start + len(whole)]
        if text[start : start + len(whole)] == whole and (
            word.startswith(last) if clause.open else word == last
        ):
            return True
    return False


def _score_words(clause: Words, texts: list[list[str]]) -> float:
    best = 0
    for text in texts:
        if not clause.phrase or _has_phrase(clause, text):
            bonus = 2 * len(clause.words) if clause.phrase else 0
            best = max(best, bonus + sum(_counts(clause, word) for word in text))
    return clause.boost * best


def _counts(clause: Words, word: str) -> bool:
    return word in clause.words or (clause.open and word.startswith(clause.words[-1]))
