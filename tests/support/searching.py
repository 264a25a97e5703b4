"""Segments, builds and hostile documents for the tests of search."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from headrace.core.record import Block, draft
from headrace.formats.companion import Descriptor, decode_hashes
from headrace.formats.index_plans import IndexPlans, plan
from headrace.formats.segment import LogRows
from headrace.formats.segment import build as seal
from headrace.pipeline.kernels.build import build
from headrace.pipeline.kernels.builds import merge_builds
from headrace.search.companions import Companions
from headrace.search.query import (
    All,
    Compares,
    Equals,
    Has,
    Not,
    Query,
    Starts,
    Words,
)
from headrace.search.query import (
    Any as AnyOf,
)


class Store:
    """Files of builds, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, pa.Buffer] = {}

    def write(self, family: str, content: pa.Buffer) -> str:
        name = f"{len(self.files)}.{family}"
        self.files[name] = content
        return name

    def companions(self, descriptor: Descriptor) -> Companions:
        return Companions(descriptor, self.open, lambda file: decode_hashes(self.files[file.name]))

    def read(self, file: Any) -> pa.Buffer:
        return self.files[file.name]

    def open(self, file: Any) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(self.read(file)))


Rows = dict[int, list[tuple[int, bytes | None, str | None]]]
"""By log: seq, document (None: not JSON) and key of each record."""


def block(rows: Sequence[tuple[int, bytes | None, str | None]]) -> list[Block]:
    """Blocks of one record each, so that seqs may have holes and media may differ."""
    blocks = []
    for seq, raw, key in rows:
        drafts = draft([raw if raw is not None else b'{"a":"not json"}'], keys=[key])
        media = None if raw is not None else "text/plain"
        blocks.append(Block(seq, seq, 1, drafts.data, drafts.ends, keys=drafts.keys, media=media))
    return blocks


def index(
    rows: Rows,
    config: dict[str, Any],
    store: Store,
    segment: int = 1,
    versions: bytes | None = None,
    *,
    newer: Mapping[int, dict[str, Any]] | None = None,
    only: Set[int] | None = None,
) -> Descriptor:
    """The build of a segment with these rows; every log has the same plan but for newer ones."""
    built = seal(
        LogRows(log, f"log{9 - log}", block(rows[log])) for log in sorted(rows, reverse=True)
    )
    searches = {log: msgspec.json.encode((newer or {}).get(log, config)) for log in sorted(rows)}
    plans = IndexPlans(
        plans=tuple(plan(log, "x", search, versions) for log, search in searches.items())
    )
    return build(
        pq.ParquetFile(pa.BufferReader(built.segment)),
        pq.read_table(pa.BufferReader(built.index)),
        plans,
        store.write,
        segment=segment,
        generation=1 if newer is None else 2,
        only=only,
    )


def merged(builds: Sequence[Descriptor], store: Store) -> Descriptor:
    return merge_builds(builds, store.read, store.write)


# Documents: JSON text with everything that parsers disagree on.

KEYS = ["a", "b", "n", "x/y", "d.e", "\\u0061", '\\"q', "é", "\\n"]
SCALARS = [
    "null", "true", "false", "0", "-0", "-0.0", "1", "7", "1e3", "1.0", "2.5", "-3", "1e400",
    "123456789012345678901234567890", "9223372036854775807", "9223372036854775808", "NaN",
    "1767225600000", "1e-7", "0.1", "12345678.9",
    '"a"',
    '"A"', '"ab"', '"abc"', '"Straße İ"', '"STRASSE"', '""', '"\\ud800"', '"\\ud83d\\ude00 x"',
    '"foo bar foo"', '"bar foo"', '"Foo_bar-baz 12"', '"7"', '"-3"', '"007"', '"2.5"', '"1e3"',
    '"true"', '"FALSE"', '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.5+02:00"', '"2026-01-01"',
    '"2026-02-30T00:00:00Z"', '"1767225600000"', '"x\\u0000y"', '"\\n\\t\\"q\\""',
]  # fmt: skip


def _array(items: list[str]) -> str:
    return "[" + ",".join(items) + "]"


def _object(items: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{key}":{value}' for key, value in items) + "}"


json_texts = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.lists(inner, max_size=3).map(_array)
        | st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=3).map(_object)
    ),
    max_leaves=6,
)
documents = st.one_of(
    st.lists(st.tuples(st.sampled_from(KEYS), json_texts), max_size=6).map(_object),
    json_texts,
    st.sampled_from(["", "{", '{"a":', "nope", '{"a":"x"} ']),
).map(str.encode) | st.sampled_from([b'{"a":"\xff"}', b"\xff\xfe", b'{"b":"\xff","a":"a"}'])

POINTERS = ["/a", "/b", "/n", "/a/b", "/x~1y", "/d.e", "/a/0", "/b/n/a", "", '/"q', "/é/a", "/\n"]


# Queries: as trees, and as text.

FLAGS: dict[str, dict[str, Any]] = {
    "keyword": {"exact": True, "prefix": True},
    "text": {"analyzer": "unicode_word_v1", "positions": True},
    **{k: {"exact": True, "column": True} for k in ("integer", "float", "date", "bool")},
}

WORDS = ["foo", "bar", "baz", "fo", "x", "straße", "12", "a", "true"]


@st.composite
def clauses(draw: st.DrawFn, config: dict[str, Any], seen: dict[str, list[Any]]) -> Query:
    name = draw(st.sampled_from(sorted(config["fields"])))
    kind = config["fields"][name]["kind"]
    if draw(st.integers(0, 5)) == 0:
        return Has(name)
    if kind == "text":
        words = tuple(draw(st.lists(st.sampled_from(WORDS), max_size=3)))
        return Words(name, words, draw(st.booleans()), draw(st.booleans()), 2.0)
    if kind == "keyword":
        value = draw(st.sampled_from([*seen[name], "a", "nothing"]))
        if draw(st.booleans()):
            return Starts(name, value[: draw(st.integers(0, 3))])
        return Equals(name, value)
    others = [0.5, 7.0] if kind == "float" else [0, 7]
    value = draw(st.sampled_from([*seen[name], *others]))
    if draw(st.booleans()):
        return Equals(name, value)
    return Compares(name, draw(st.sampled_from(["<", "<=", ">", ">="])), value)


def queries(config: dict[str, Any], seen: dict[str, list[Any]]) -> st.SearchStrategy[Query]:
    return st.recursive(
        clauses(config, seen),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda items: All(tuple(items))),
            st.lists(inner, min_size=1, max_size=3).map(lambda items: AnyOf(tuple(items))),
            inner.map(Not),
        ),
        max_leaves=5,
    )


def render(query: Query, fields: dict[str, Any]) -> str:
    """A tree as it is written."""

    def value_of(clause: Equals | Compares) -> str:
        if fields[clause.field]["kind"] == "bool":
            return "true" if clause.value else "false"
        return str(clause.value)

    match query:
        case All(items=items):
            return "(" + " AND ".join(render(item, fields) for item in items) + ")"
        case AnyOf(items=items):
            return "(" + " OR ".join(render(item, fields) for item in items) + ")"
        case Not(item=item):
            return f"NOT ({render(item, fields)})"  # twice without them is not at all
        case Has(field=field):
            return f"has:{field}"
        case Equals(field=field):
            return f"{field}:={_quoted(value_of(query))}"
        case Starts(field=field, text=text):
            return f"{field}:{_quoted(text + '*')}"
        case Compares(field=field, operator=operator):
            return f"{field}:{operator}{value_of(query)}"
        case Words(field=field, words=words, open=is_open, phrase=phrase):
            star = "*" if is_open and words else ""
            if phrase or not words:
                return f"{field}:{_quoted(' '.join(words) + star)}"
            return f"{field}:{'-'.join(words)}{star}"
    raise AssertionError(query)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# What search means, said again from the specification.


def naive_document(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except ValueError:
        return None


def naive_found(document: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and re.fullmatch("0|[1-9][0-9]*", step):
            document = document[int(step)] if int(step) < len(document) else None
        else:
            return None
    return document


def naive_values(field: dict[str, Any], document: Any) -> list[Any]:
    found = naive_found(document, field["bindings"][-1]["jsonPointer"])
    items, scalars = [found], []
    while items:
        item = items.pop(0)
        if isinstance(item, list):
            items = item + items
        else:
            scalars.append(item)
    convert = {
        "keyword": naive_keyword, "text": naive_keyword, "integer": naive_integer,
        "float": naive_float, "date": naive_date, "bool": naive_bool,
    }[field["kind"]]  # fmt: skip
    values = [value for scalar in scalars if (value := convert(scalar)) is not None]
    if field.get("normalizer") == "lowercase_v1":
        values = [value.lower() for value in values]
    return values


def naive_keyword(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return "".join("\ufffd" if unicodedata.category(c) == "Cs" else c for c in value)


def naive_number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(value) if isinstance(value, int) or math.isfinite(value) else None


def naive_integer(value: Any) -> int | None:
    number = naive_number(value)
    if isinstance(value, str) and re.fullmatch("-?(0|[1-9][0-9]*)", value):
        number = Decimal(value)
    if number is None or number != int(number) or not -(2**63) <= number < 2**63:
        return None
    return int(number)


def naive_float(value: Any) -> float | None:
    number = naive_number(value)
    if isinstance(value, str) and value[-1:].isdigit():
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None
    return None if number is None or math.isinf(float(number)) else float(number) + 0.0


def naive_date(value: Any) -> int | None:
    number = naive_number(value)
    if number is not None:
        return int(number) if abs(int(number)) <= 8_640_000_000_000_000 else None
    if not isinstance(value, str):
        return None
    if re.fullmatch("-?(0|[1-9][0-9]*)", value):
        return naive_date(int(value))
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return None
    return math.floor(parsed.timestamp() * 1000)


def naive_bool(value: Any) -> int | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return int(value.lower() == "true")
    return None


def naive_words(text: str) -> list[str]:
    words, word = [], ""
    for char in text.lower() + " ":
        if unicodedata.category(char)[0] in "LN":
            word += char
        elif word:
            words.append(word)
            word = ""
    return words


def naive_matches(query: Query, config: dict[str, Any], document: Any) -> bool:
    def values(field: str) -> list[Any]:
        return naive_values(config["fields"][field], document)

    match query:
        case All(items=items):
            return all(naive_matches(item, config, document) for item in items)
        case AnyOf(items=items):
            return any(naive_matches(item, config, document) for item in items)
        case Not(item=item):
            return not naive_matches(item, config, document)
        case Equals(field=field, value=value):
            return value in values(field)
        case Starts(field=field, text=text):
            return any(value[: len(text)] == text for value in values(field))
        case Compares(field=field, operator=operator, value=limit):
            return any(
                {"<": v < limit, "<=": v <= limit, ">": v > limit, ">=": v >= limit}[operator]
                for v in values(field)
            )
        case Has(field=field):
            return values(field) != []
        case Words(field=field):
            texts = [naive_words(text) for text in values(field)]
            return naive_has_words(query, texts)
    raise AssertionError(query)


def naive_has_words(query: Words, texts: list[list[str]]) -> bool:
    def fits(at: int, word: str) -> bool:
        if query.open and at == len(query.words) - 1:
            return word[: len(query.words[at])] == query.words[at]
        return word == query.words[at]

    count = len(query.words)
    if not count:
        return False
    if query.phrase:
        return any(
            all(fits(at, text[start + at]) for at in range(count))
            for text in texts
            for start in range(len(text) - count + 1)
        )
    return all(any(fits(at, w) for text in texts for w in text) for at in range(count))
