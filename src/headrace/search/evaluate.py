"""Whether a document matches a query, and how well: for records that no companion covers yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import eq, ge, gt, le, lt, not_
from typing import Any as Anything

from headrace.search.config import Field, FieldKind, Search
from headrace.search.query import (
    All,
    Any,
    Clause,
    Compares,
    Equals,
    Has,
    Not,
    Query,
    Starts,
    Words,
    clauses,
)
from headrace.search.values import (
    PathReader,
    Value,
    accepted,
    analyze,
    parse_date_ms,
    values_of,
)

Values = dict[str, list[Value]]
"""The canonical values of a document's fields."""

COMPARE = {">": gt, ">=": ge, "<": lt, "<=": le}


class Fields:
    """Reads some fields of documents."""

    def __init__(self, search: Search, names: Sequence[str]) -> None:
        self._fields = [search.fields[name] for name in names]
        self._reader = PathReader([field.path() for field in self._fields])

    def columns(self, raws: Sequence[bytes | None]) -> Documents:
        """The same by field."""
        found = self._reader.read(raws)
        return Documents(
            {field.name: (field, column) for field, column in zip(self._fields, found, strict=True)}
        )

    def read(self, raws: Sequence[bytes | None]) -> list[Values]:
        columns = self._reader.read(raws)
        return [
            {
                field.name: values_of(field, found) if found is not None else []
                for field, found in zip(self._fields, row, strict=True)
            }
            for row in (zip(*columns, strict=True) if columns else [()] * len(raws))
        ]


class Documents:
    """What the paths of some fields led to in documents.

    Most documents have one plain value where a field is, which is looked at as it is; anything else
    goes through `values_of`.
    """

    def __init__(self, columns: dict[str, tuple[Field, list[Anything]]]) -> None:
        self._columns = columns

    def match(self, query: Query) -> list[bool]:
        """Which documents match."""
        match query:
            case All(items=items):
                return list(map(all, zip(*map(self.match, items), strict=True)))
            case Any(items=items):
                return list(map(any, zip(*map(self.match, items), strict=True)))
            case Not(item=item):
                return list(map(not_, self.match(item)))
            case _:
                field, column = self._columns[query.field]
                return list(map(_test(query, field), column))

    def values(self, names: Iterable[str], at: int) -> Values:
        """The values of some fields in one document."""
        return {name: self._values(name, at) for name in names}

    def first(self, name: str, at: int) -> Value | None:
        """The first value of a field in one document."""
        found = self._values(name, at)
        return found[0] if found else None

    def _values(self, name: str, at: int) -> list[Value]:
        field, column = self._columns[name]
        return values_of(field, column[at]) if column[at] is not None else []

    def latest(self, name: str) -> int | None:
        """The greatest value of a date field."""
        field, column = self._columns[name]
        stamps = [found for found in column if type(found) is str and len(found) == _STAMP_LENGTH]
        last = max(stamps, default=None)
        # Written the same way, the greatest text is the latest time.
        known = None if last is None or not _STAMP.fullmatch(last) else parse_date_ms(last)
        rest: Iterable[object] = column
        if known is not None:
            rest = [f for f in column if type(f) is not str or len(f) != _STAMP_LENGTH]
        dates = [ms for found in rest if found is not None for ms in values_of(field, found)]
        return max([*dates, *([] if known is None else [known])], default=None)


_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_STAMP_LENGTH = len("2026-01-01T00:00:00.000Z")

Test = Callable[[Anything], bool]


def _test(clause: Clause, field: Field) -> Test:
    """Whether what a path led to has a value that a clause asks for."""

    def is_so(found: Anything) -> bool:
        return found is not None and matches(clause, {field.name: values_of(field, found)})

    quick = _QUICK.get(type(clause))
    return is_so if quick is None else quick(clause, field, is_so)


def _test_equals(clause: Equals, field: Field, is_so: Test) -> Test:
    value, lowercase = clause.value, field.lowercase

    def equals(found: Anything) -> bool:
        if type(found) is str:
            return (found.lower() if lowercase else found) == value
        return found is not None and is_so(found)

    return equals if field.kind is FieldKind.KEYWORD else _test_number(eq, value, field, is_so)


def _test_compares(clause: Compares, field: Field, is_so: Test) -> Test:
    return _test_number(COMPARE[clause.operator], clause.value, field, is_so)


def _test_number(
    compare: Callable[[Anything, Anything], bool], limit: Anything, field: Field, is_so: Test
) -> Test:
    plain: Anything = float if field.kind is FieldKind.FLOAT else int

    def passes(found: Anything) -> bool:
        if type(found) is plain and -_PLAIN_MAX < found < _PLAIN_MAX:
            return compare(found, limit)
        return found is not None and is_so(found)

    return is_so if field.kind is FieldKind.BOOL else passes


def _test_starts(clause: Starts, field: Field, is_so: Test) -> Test:
    text, lowercase = clause.text, field.lowercase

    def starts(found: Anything) -> bool:
        if type(found) is str:
            return (found.lower() if lowercase else found).startswith(text)
        return found is not None and is_so(found)

    return starts


def _test_words(clause: Words, field: Field, is_so: Test) -> Test:
    words = clause.words

    def has_words(found: Anything) -> bool:
        if type(found) is str:
            text = found.lower()
            for word in words:
                if word not in text:
                    return False  # before the text is taken apart
        return found is not None and is_so(found)

    return has_words


def _test_has(clause: Has, field: Field, is_so: Test) -> Test:
    plain = {FieldKind.KEYWORD: str, FieldKind.TEXT: str}.get(field.kind)

    def has(found: Anything) -> bool:
        return type(found) is plain or (found is not None and is_so(found))

    return has


_PLAIN_MAX = 2**52
"""Numbers below mean the same in every kind."""

_QUICK: dict[type, Callable[[Anything, Field, Test], Test]] = {
    Equals: _test_equals,
    Compares: _test_compares,
    Starts: _test_starts,
    Words: _test_words,
    Has: _test_has,
}


class Presenter:
    """Shows the fields of documents as the documents have them."""

    def __init__(self, search: Search) -> None:
        self._fields = list(search.fields.values())
        self._reader = PathReader([field.path() for field in self._fields])

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
        return self._fields.columns(raws).match(self._query)

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
