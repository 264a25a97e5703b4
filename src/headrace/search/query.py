"""The query language: text to a tree of clauses that name fields of a configuration.

    or     := and ( "OR" and )*
    and    := unary ( ["AND"] unary )*
    unary  := ( "NOT" | "-" ) unary | primary
    primary := "(" or ")" | clause
    clause := word ":" [ "=" | ">" | ">=" | "<" | "<=" ] value | "has:" word | value
    value  := word | string in double quotes

A word ends at a space or one of `( ) : > < =`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from headrace.core.errors import refuse_invalid
from headrace.core.limits import QUERY_CHARS_MAX, QUERY_CLAUSES_MAX, QUERY_DEPTH_MAX
from headrace.search.config import Field, FieldKind, Search
from headrace.search.values import CANONICAL, Value, analyze, clean


class All(msgspec.Struct, frozen=True):
    """Every item matches."""

    items: tuple[Query, ...]


class Any(msgspec.Struct, frozen=True):
    """Some item matches."""

    items: tuple[Query, ...]


class Not(msgspec.Struct, frozen=True):
    item: Query


class Equals(msgspec.Struct, frozen=True):
    """The field has this value."""

    field: str
    value: Value


class Starts(msgspec.Struct, frozen=True):
    """The field has a value that starts with this."""

    field: str
    text: str


class Compares(msgspec.Struct, frozen=True):
    """The field has a value on this side of another: `>`, `>=`, `<` or `<=`."""

    field: str
    operator: str
    value: int | float


class Words(msgspec.Struct, frozen=True):
    """The field has all of these words; as a phrase, in this order in one value."""

    field: str
    words: tuple[str, ...]
    open: bool
    """Whether the last word stands for all that start with it."""
    phrase: bool
    boost: float


class Has(msgspec.Struct, frozen=True):
    """The field has a value."""

    field: str


Clause = Equals | Starts | Compares | Words | Has
Query = All | Any | Not | Clause


class Rules(Enum):
    """Where a query is asked."""

    SEARCH = "search"
    FILTER = "filter"


def parse_query(text: str, search: Search, rules: Rules = Rules.SEARCH) -> Query:
    """The tree of a query; refuses what cannot be asked of these fields."""
    if len(text) > QUERY_CHARS_MAX:
        refuse_invalid(f"a query has at most {QUERY_CHARS_MAX} characters")
    return _Parser(list(_tokens(str(clean(text)))), _Clauses(search, rules)).parse()


def clauses(query: Query) -> Iterator[Clause]:
    """All clauses, in order."""
    match query:
        case All(items=items) | Any(items=items):
            for item in items:
                yield from clauses(item)
        case Not(item=item):
            yield from clauses(item)
        case _:
            yield query


def text_fields(query: Query) -> set[str]:
    """The fields whose words are asked for."""
    return {clause.field for clause in clauses(query) if isinstance(clause, Words)}


def has_text(query: Query) -> bool:
    """Whether hits have scores."""
    return bool(text_fields(query))


class _Token(NamedTuple):
    kind: str
    """`word`, `string`, `-`, or the sign it is."""
    text: str


_END = _Token("end", "")
_SIGNS = frozenset("():><=")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    valued = False  # a value comes next: a minus is part of it
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
            continue
        if char in _SIGNS:
            yield _Token(char, char)
            valued = char not in "()"
            at += 1
        elif char == '"':
            value, at = _string(text, at + 1)
            yield _Token("string", value)
            valued = False
        elif char == "-" and not valued:
            yield _Token("-", char)
            at += 1
        else:
            stop = at
            while stop < len(text) and text[stop] not in _SIGNS and not text[stop].isspace():
                stop += 1
            yield _Token("word", text[at:stop])
            valued = False
            at = stop


def _string(text: str, at: int) -> tuple[str, int]:
    out: list[str] = []
    while at < len(text) and text[at] != '"':
        at += text[at] == "\\"
        out.append(text[at : at + 1])
        at += 1
    if at >= len(text):
        refuse_invalid("a string in the query does not end")
    return "".join(out), at + 1


class _Parser:
    def __init__(self, tokens: list[_Token], make: _Clauses) -> None:
        self._tokens = tokens
        self._at = 0
        self._make = make
        self._clauses = 0

    def parse(self) -> Query:
        if not self._tokens:
            refuse_invalid("the query is empty")
        query = self._any(0)
        if self._peek() is not _END:
            refuse_invalid(f"unexpected {self._peek().text!r} in the query")
        return query

    def _peek(self, ahead: int = 0) -> _Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _word(self, word: str) -> bool:
        """Whether an operator of this name comes next."""
        token = self._peek()
        return token.kind == "word" and token.text.upper() == word and self._peek(1).kind != ":"

    def _any(self, depth: int) -> Query:
        if depth > QUERY_DEPTH_MAX:
            refuse_invalid(f"a query is at most {QUERY_DEPTH_MAX} levels deep")
        items = [self._all(depth)]
        while self._word("OR"):
            self._next()
            items.append(self._all(depth))
        return items[0] if len(items) == 1 else Any(tuple(items))

    def _all(self, depth: int) -> Query:
        items = [self._unary(depth)]
        while self._peek().kind not in ("end", ")") and not self._word("OR"):
            if self._word("AND"):
                self._next()
            items.append(self._unary(depth))
        return items[0] if len(items) == 1 else All(tuple(items))

    def _unary(self, depth: int) -> Query:
        negated = False
        while self._peek().kind == "-" or self._word("NOT"):
            self._next()
            negated = not negated
        query = self._primary(depth)
        return Not(query) if negated else query

    def _primary(self, depth: int) -> Query:
        token = self._next()
        if token.kind == "(":
            query = self._any(depth + 1)
            if self._next().kind != ")":
                refuse_invalid("a parenthesis in the query does not end")
            return query
        if token.kind not in ("word", "string"):
            refuse_invalid(
                f"unexpected {token.text!r} in the query" if token.text else "the query ends early"
            )
        operator = token.kind == "word" and token.text.upper() in ("AND", "OR")
        if operator and self._peek().kind != ":":
            refuse_invalid(f"unexpected {token.text!r} in the query")
        self._clauses += 1
        if self._clauses > QUERY_CLAUSES_MAX:
            refuse_invalid(f"a query has at most {QUERY_CLAUSES_MAX} clauses")
        if token.kind == "word" and self._peek().kind == ":":
            self._next()
            return self._clause(token.text)
        return self._make.bare(token.text, token.kind == "string")

    def _clause(self, name: str) -> Query:
        operator = ""
        if self._peek().kind in ("=", ">", "<"):
            operator = self._next().text
            if operator != "=" and self._peek().kind == "=":
                operator += self._next().text
        value = self._next()
        if value.kind not in ("word", "string"):
            refuse_invalid(f"{name}: needs a value")
        if name == "has" and not operator and value.kind == "word":
            return self._make.has(value.text)
        return self._make.clause(name, operator, value.text, value.kind == "string")


class _Clauses:
    """Makes clauses, and knows which ones are allowed where."""

    def __init__(self, search: Search, rules: Rules) -> None:
        self._search = search
        self._rules = rules

    def bare(self, text: str, quoted: bool) -> Query:
        if self._rules is Rules.FILTER:
            refuse_invalid("a filter needs a field for every value")
        found = [
            self._words(self._search.fields[name], text, quoted, boost)
            if self._search.fields[name].kind is FieldKind.TEXT
            else self._keyword(self._search.fields[name], text, literal=False)
            for name, boost in self._search.defaults
        ]
        if not found:
            refuse_invalid("a bare value needs defaultFields or text fields")
        return found[0] if len(found) == 1 else Any(tuple(found))

    def has(self, name: str) -> Query:
        field = self._field(name)
        if not field.known_present:
            refuse_invalid(f"field {name} does not support has:")
        return Has(field.name)

    def clause(self, name: str, operator: str, text: str, quoted: bool) -> Query:
        if name == "contains":
            refuse_invalid("contains: is not supported")
        field = self._field(name)
        if field.typed:
            return self._typed(field, name, operator, text)
        if operator not in ("", "="):
            refuse_invalid(f"field {name} does not support comparisons")
        if field.kind is FieldKind.TEXT:
            if self._rules is Rules.FILTER:
                refuse_invalid(f"filter field {name} is not indexed")
            return self._words(field, text, quoted, 1.0)
        prefix = len(text) > 1 and text.endswith("*") and operator != "="
        if self._rules is Rules.FILTER:
            prefix = False
        if not (field.prefix if prefix else field.exact):
            refuse_invalid(
                f"field {name} does not support {'prefix' if prefix else 'exact'} queries"
            )
        return self._keyword(field, text, literal=not prefix)

    def _field(self, name: str) -> Field:
        field = self._search.find(name)
        if field is None:
            refuse_invalid(
                f"unknown search field {name}"
                if self._rules is Rules.SEARCH
                else f"filter field {name} is not indexed"
            )
        return field

    def _typed(self, field: Field, name: str, operator: str, text: str) -> Query:
        value = CANONICAL[field.kind](text)
        if operator in ("", "="):
            if not field.column and not field.exact:
                refuse_invalid(f"field {name} does not support equality")
        elif not field.column:
            refuse_invalid(f"field {name} does not support ranges")
        if value is None:
            refuse_invalid(f"{text!r} is no {field.kind} for field {name}")
        if operator in ("", "="):
            return Equals(field.name, value)
        return Compares(field.name, operator, value)

    @staticmethod
    def _keyword(field: Field, text: str, *, literal: bool) -> Query:
        text = text.lower() if field.lowercase else text
        if not literal and len(text) > 1 and text.endswith("*"):
            return Starts(field.name, text[:-1])
        return Equals(field.name, text)

    @staticmethod
    def _words(field: Field, text: str, quoted: bool, boost: float) -> Query:
        ending = text.endswith("*") and bool(analyze(text[-2:-1]))
        return Words(field.name, tuple(analyze(text)), ending, quoted, boost)
