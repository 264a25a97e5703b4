from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from headrace.core.errors import Code, Refused
from headrace.search.config import Count, FieldKind, Parts, Summary, parse_duration_ms, parse_search

BIND = [{"version": 1, "jsonPointer": "/x"}]
CONFIG: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service"},
    "defaultFields": [{"field": "msg", "boost": 2}],
    "fields": {
        "at": {"kind": "date", "bindings": BIND, "exact": True, "column": True},
        "service": {
            "kind": "keyword",
            "bindings": BIND,
            "normalizer": "lowercase_v1",
            "exact": True,
            "prefix": True,
        },
        "ms": {"kind": "float", "bindings": BIND, "column": True, "aggregatable": True},
        "msg": {
            "kind": "text",
            "bindings": [
                {"version": 3, "jsonPointer": "/new"},
                {"version": 1, "jsonPointer": "/a~1b/c~0d"},
            ],
            "analyzer": "unicode_word_v1",
        },
    },
    "rollups": {
        "latency": {
            "dimensions": ["service"],
            "intervals": ["1m", "5m"],
            "measures": {
                "n": {"kind": "count"},
                "ms": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
                "parts": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/count",
                    "sumJsonPointer": "/sum",
                    "minJsonPointer": "/min",
                    "maxJsonPointer": "/max",
                },
            },
        }
    },
}


def test_a_configuration_is_understood() -> None:
    search = parse_search(CONFIG)
    assert search.primary == "at"
    assert search.find("svc") is search.fields["service"]
    assert search.find("nobody") is None
    assert search.defaults == (("msg", 2.0),)
    assert search.fields["service"].lowercase
    assert search.fields["msg"].kind is FieldKind.TEXT
    assert search.fields["msg"].path() == ("new",)
    assert search.fields["msg"].path(2) == ("a/b", "c~d")
    rollup = search.rollups["latency"]
    assert rollup.timestamp == "at"
    assert [interval.ms for interval in rollup.intervals] == [60_000, 300_000]
    assert [type(measure) for measure in rollup.measures] == [Summary, Count, Parts]


def test_capabilities_count_only_when_literally_true() -> None:
    config = deepcopy(CONFIG)
    config["fields"]["at"]["exact"] = 1
    assert not parse_search(config).fields["at"].exact


def test_without_default_fields_all_text_fields_are() -> None:
    config = {**CONFIG, "defaultFields": []}
    assert parse_search(config).defaults == (("msg", 1.0),)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("fields",), {}, "search.fields must not be empty"),
        (("other",), 1, "search.other is not supported"),
        (("primaryTimestampField",), "ms", "search.primaryTimestampField must be a date field"),
        (("primaryTimestampField",), "no", "must name a declared field"),
        (("aliases", "x"), "nobody", "search.aliases.x must name a declared field"),
        (("fields", "a b"), {}, "invalid name"),
        (("fields", "x" * 65), {}, "invalid name"),
        (("fields", "at", "kind"), "blob", "kind must be one of keyword, text"),
        (("fields", "at", "prefix"), False, "at.prefix is not supported for kind date"),
        (("fields", "service", "positions"), True, "positions is not supported for kind keyword"),
        (("fields", "service", "analyzer"), "unicode_word_v1", "analyzer is not supported"),
        (("fields", "service", "normalizer"), "upper", "normalizer must be identity_v1 or"),
        (("fields", "msg", "analyzer"), "porter", "analyzer must be unicode_word_v1"),
        (("fields", "msg", "column"), True, "column is not supported for kind text"),
        (("fields", "msg", "bindings"), [], "bindings must not be empty"),
        (("fields", "msg", "bindings"), [{"version": 0, "jsonPointer": ""}], "positive integer"),
        (("fields", "msg", "bindings"), [{"version": 1, "jsonPointer": "x"}], "a JSON pointer"),
        (("fields", "msg", "bindings"), BIND * 2, "more than one binding for version 1"),
        (("defaultFields",), [{"field": "ms"}], "must be a text or keyword field"),
        (("defaultFields",), [{"field": "msg", "boost": 0}], "boost must be a positive number"),
        (("rollups", "latency", "intervals"), [], "intervals must not be empty"),
        (("rollups", "latency", "intervals"), ["1m", "60s"], "must not have duplicates"),
        (("rollups", "latency", "intervals"), ["1w"], "must be durations"),
        (("rollups", "latency", "dimensions"), ["ms"], "declared fields with exact=true"),
        (("rollups", "latency", "timestampField"), "ms", "must be a date field"),
        (("rollups", "latency", "measures"), {}, "measures must not be empty"),
        (("rollups", "latency", "measures", "n"), {"kind": "max"}, "must be count, summary or"),
        (("rollups", "latency", "measures", "ms", "field"), "at", "integer or float field"),
        (("rollups", "latency", "measures", "ms", "histogram"), "hdr", "must be log2_v1"),
        (("rollups", "latency", "measures", "parts", "sumJsonPointer"), "x", "a JSON pointer"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[str, ...], value: Any, message: str) -> None:
    config = deepcopy(CONFIG)
    place = config
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(Refused, match=message.replace(".", r"\.")) as refused:
        parse_search(config)
    assert refused.value.code is Code.INVALID


@pytest.mark.parametrize("raw", [None, [], "x", 1])
def test_a_configuration_is_an_object(raw: object) -> None:
    with pytest.raises(Refused, match="search must be an object"):
        parse_search(raw)


def test_durations() -> None:
    assert [parse_duration_ms(t) for t in ("250ms", "10s", "5m", "1h", "1d")] == [
        250,
        10_000,
        300_000,
        3_600_000,
        86_400_000,
    ]
    assert [parse_duration_ms(t) for t in ("", "0s", "1", "1w", "-1s", "1.5s")] == [None] * 6
