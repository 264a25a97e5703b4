"""Metrics: the canonical interval."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.profiles.metrics import SEARCH, Metrics
from headrace.search.config import Parts, parse_search

LEAN = {"metric": "m", "unit": "ms", "windowStart": 10, "windowEnd": 20, "count": 1, "sum": 5}


def interval(**record: Any) -> dict[str, Any]:
    (raw,) = Metrics().normalise([msgspec.json.encode(LEAN | record)], 0)
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found


def test_the_sample() -> None:
    record = (
        b'{"metric":"http.lat","unit":"ms","windowStart":1767225600000,"windowEnd":1767225610000,'
        b'"tags":{"env":"prod","az":1},"count":4,"sum":20,"min":1,"max":9,'
        b'"buckets":{"1":1,"4":2,"8":1}}'
    )
    profile = Metrics()
    (raw,) = profile.normalise([record], 0)
    assert raw == (
        b'{"apiVersion":"durable.streams/metrics/v1","kind":"interval","metric":"http.lat",'
        b'"unit":"ms","metricKind":"summary","temporality":"delta","windowStart":1767225600000,'
        b'"windowEnd":1767225610000,"intervalMs":10000,"instance":null,"stream":null,'
        b'"tags":{"az":"1","env":"prod"},"attributes":{"az":"1","env":"prod"},'
        b'"dimensionPairs":["az=1","env=prod"],"dimensionKey":"az=1\\u0000env=prod",'
        b'"seriesKey":"summary|delta|http.lat|ms|||az=1\\u0000env=prod",'
        b'"count":4,"sum":20,"min":1,"max":9,"avg":5,"p50":4,"p95":8,"p99":8,'
        b'"buckets":{"1":1,"4":2,"8":1},'
        b'"summary":{"count":4,"sum":20,"min":1,"max":9,"histogram":{"1":1,"4":2,"8":1}}}'
    )
    assert profile.key_of(raw) == "summary|delta|http.lat|ms|||az=1\0env=prod"
    assert profile.normalise([raw], 0) == [raw]


def test_numbers_may_stand_in_a_summary() -> None:
    record = {"metric": "m", "unit": "u", "windowStart": 0, "windowEnd": 0}
    summary = {"count": 2, "sum": 3, "min": 1, "max": 2, "histogram": {"2": 1, "1": 1}}
    (raw,) = Metrics().normalise([msgspec.json.encode(record | {"summary": summary})], 0)
    found = msgspec.json.decode(raw)
    assert found["summary"] == summary
    assert list(found["buckets"]) == ["1", "2"]
    assert (found["avg"], found["p50"], found["intervalMs"]) == (1.5, 1, 0)


def test_nothing_was_measured() -> None:
    found = interval(count=0, sum=0, min=3, max=4)
    assert [found[key] for key in ("count", "min", "max", "avg", "p50")] == [0] + [None] * 4
    assert found["summary"] == {"count": 0, "sum": 0, "min": None, "max": None, "histogram": {}}


def test_extremes_default_to_nought() -> None:
    found = interval()
    assert (found["min"], found["max"], found["p99"], found["buckets"]) == (0, 0, None, {})


def test_attributes_come_first_and_are_text() -> None:
    found = interval(attributes={"b": True, "a": 1.5, "n": None}, tags={"z": 1})
    assert found["attributes"] == found["tags"] == {"a": "1.5", "b": "true"}
    assert interval()["dimensionKey"] == ""


def test_the_series() -> None:
    found = interval(
        metricKind="gauge", temporality="cumulative", stream=" s ", instance="i", tags={"a": 1}
    )
    assert found["seriesKey"] == "gauge|cumulative|m|ms|s|i|a=1"
    assert interval(stream="  ")["stream"] is None


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"kind": "point"}, "kind must be interval"),
        ({"apiVersion": "x"}, "apiVersion"),
        ({"metric": " "}, "metric must be"),
        ({"metric": 5}, "metric must be"),
        ({"unit": None}, "unit must be"),
        ({"windowStart": "1"}, "windowStart"),
        ({"windowStart": 1.5}, "windowStart"),
        ({"windowEnd": True}, "windowEnd"),
        ({"windowEnd": 9}, "before"),
        ({"count": -1}, "count"),
        ({"count": None}, "count"),
        ({"count": "1"}, "count"),
        ({"sum": None}, "sum"),
        ({"sum": True}, "sum"),
        ({"min": "1"}, "min"),
        ({"max": []}, "max"),
        ({"buckets": []}, "buckets"),
        ({"buckets": {"x": 1}}, "keys of buckets"),
        ({"buckets": {"1": -1}}, "values of buckets"),
        ({"attributes": []}, "attributes must be an object"),
        ({"tags": {"a": {}}}, r"tags\.a"),
        ({"metricKind": ""}, "metricKind"),
        ({"stream": 5}, "stream"),
    ],
)
def test_what_is_no_interval(record: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        interval(**record)


def test_only_objects_are_records() -> None:
    with pytest.raises(Refused, match="JSON object"):
        Metrics().normalise([b"[]"], 0)
    with pytest.raises(Refused, match="cannot be read"):
        Metrics().normalise([b'{"a":1e400}'], 0)


def test_the_configuration() -> None:
    assert Metrics.parse({"kind": "metrics"}).config == b'{"kind":"metrics"}'
    with pytest.raises(Refused, match=r"profile\.x is not supported"):
        Metrics.parse({"kind": "metrics", "x": 1})
    Metrics().check(is_json=True, empty=False)
    with pytest.raises(Refused, match="application/json"):
        Metrics().check(is_json=False, empty=True)


def test_what_comes_with_it() -> None:
    installed = Metrics().installs()
    assert installed is not None
    assert installed.routing_key == b'{"jsonPointer":"/seriesKey","required":true}'
    search = parse_search(msgspec.json.decode(SEARCH))
    assert search.primary == "windowStart"
    assert sorted(search.aliases) == ["dims", "name", "series", "time", "ts"]
    rollup = search.rollups["metrics"]
    assert rollup.dimensions == (
        "metric", "unit", "stream", "instance", "dimensionKey", "metricKind", "temporality"
    )  # fmt: skip
    assert [each.text for each in rollup.intervals] == ["10s", "1m", "5m", "1h"]
    (value,) = rollup.measures
    assert isinstance(value, Parts)
    assert value.name == "value"
