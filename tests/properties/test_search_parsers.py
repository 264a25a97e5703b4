"""Whatever is posted as a configuration or asked as a query, it is understood or refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Refused
from headrace.search.config import parse_search
from headrace.search.evaluate import Matcher
from headrace.search.query import Rules, parse_query

BIND = [{"version": 1, "jsonPointer": "/a"}]
FIELDS: dict[str, Any] = {
    "at": {"kind": "date", "bindings": BIND, "column": True},
    "user": {"kind": "keyword", "bindings": BIND, "exact": True, "prefix": True},
    "msg": {"kind": "text", "bindings": BIND, "analyzer": "unicode_word_v1"},
    "n": {"kind": "float", "bindings": BIND, "exact": True, "aggregatable": True},
}
SEARCH = parse_search({"primaryTimestampField": "at", "fields": FIELDS})

scalars = st.sampled_from(
    [
        *(None, True, 0, 1, -1, 2.5, "", "at", "user", "n", "msg", "1m", "/a"),
        *("count", "summary", "date"),
    ]
)
names = st.sampled_from(
    [
        *("kind", "bindings", "version", "jsonPointer", "field", "boost", "x", "a b", "exact"),
        *("dimensions", "intervals", "measures", "histogram", "timestampField", "normalizer"),
    ]
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def configurations(draw: st.DrawFn) -> Any:
    """A good configuration with something else in one or two places."""
    rollup = {"intervals": ["1m"], "dimensions": ["user"], "measures": {"c": {"kind": "count"}}}
    config: dict[str, Any] = {
        "primaryTimestampField": "at",
        "fields": {name: dict(field) for name, field in FIELDS.items()},
        "aliases": {"u": "user"},
        "defaultFields": [{"field": "msg", "boost": 2}],
        "rollups": {"r": rollup},
    }
    for _ in range(draw(st.integers(0, 2))):
        place: Any = config
        while True:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
            inner = place[key]
            if not isinstance(inner, dict) or not inner or draw(st.integers(0, 2)) == 0:
                place[key] = draw(anything)
                break
            place = inner
    return draw(st.sampled_from([config, config, config, draw(anything)]))


@given(configurations())
def test_configurations_are_understood_or_refused(raw: Any) -> None:
    with suppress(Refused):
        search = parse_search(raw)
        assert search.primary in search.fields


pieces = st.sampled_from(
    [
        *("user", "msg", "n", "at", "nobody", "has", "contains", "foo", "Ünï", "5", "-3", "*"),
        *(":", "=", ">", "<", "(", ")", "-", '"', "\\", " ", " ", "AND", "or", "NOT"),
        *("2026-01-01", "\0", "\ud800"),
    ]
)


@given(st.lists(pieces, max_size=14).map("".join) | st.text(max_size=30))
def test_queries_are_understood_or_refused(text: str) -> None:
    for rules in Rules:
        with suppress(Refused):
            query = parse_query(text, SEARCH, rules)
            Matcher(query, SEARCH).score([b'{"a":"foo"}', b'{"a":[1,"2026-01-01"]}', None])
