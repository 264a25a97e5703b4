"""Metrics: every record is one series over one interval of time, in one canonical form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from sys import float_info
from typing import Any, ClassVar, NoReturn

import msgspec

from headrace.core.errors import refuse_invalid
from headrace.core.limits import I64_MAX
from headrace.profiles.configs import describe, need_json, parse_config
from headrace.profiles.fields import (
    INTEGER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    WORD,
    keyword,
    typed,
)
from headrace.profiles.profile import Installed
from headrace.profiles.touchconfig import TouchConfig

API = "durable.streams/metrics/v1"
PAIRS_JOINED_BY = "\0"
_BOUND = re.compile(r"(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?", re.ASCII)
_EXACT = 2**53
_LARGEST = float_info.max

Number = int | float
Histogram = dict[str, Number]


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str


class MetricsSummary(msgspec.Struct):
    count: Number
    sum: Number
    min: Number | None
    max: Number | None
    histogram: Histogram


class MetricsInterval(msgspec.Struct, rename="camel"):
    """A record as the stream holds it."""

    api_version: str
    kind: str
    metric: str
    unit: str
    metric_kind: str
    temporality: str
    window_start: int
    window_end: int
    interval_ms: int
    instance: str | None
    stream: str | None
    tags: dict[str, str]
    attributes: dict[str, str]
    dimension_pairs: list[str]
    dimension_key: str
    series_key: str
    count: Number
    sum: Number
    min: Number | None
    max: Number | None
    avg: Number | None
    p50: Number | None
    p95: Number | None
    p99: Number | None
    buckets: Histogram
    summary: MetricsSummary


class _Series(msgspec.Struct, rename="camel"):
    series_key: str


_records = msgspec.json.Decoder(dict[str, Any])
_series = msgspec.json.Decoder(_Series)
_encode = msgspec.json.Encoder().encode


class Metrics:
    """The profile of one stream."""

    kind: ClassVar[str] = "metrics"

    def __init__(self) -> None:
        self.config = msgspec.json.encode(MetricsConfig(self.kind))
        self.touch: TouchConfig | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Metrics:
        parse_config(raw, MetricsConfig)
        return cls()

    def check(self, *, is_json: bool, empty: bool) -> None:
        need_json(self.kind, is_json)

    def installs(self) -> Installed | None:
        return Installed(SCHEMA, ROUTING_KEY, SEARCH)

    def normalise(self, raws: Sequence[bytes], now_ms: int) -> Sequence[bytes]:
        return [encode_interval(_decode(raw)) for raw in raws]

    def key_of(self, raw: bytes) -> str | None:
        return _series.decode(raw).series_key


def encode_interval(given: dict[str, Any]) -> bytes:
    """A record as the stream holds it."""
    return _encode(canonical(given))


def canonical(given: dict[str, Any]) -> MetricsInterval:
    """A record in its one form; refuses what is no interval of a metric."""
    if given.get("apiVersion", API) != API:
        _refuse(f"apiVersion must be {API}")
    if given.get("kind", "interval") != "interval":
        _refuse("kind must be interval")
    metric, unit = _name(given, "metric"), _name(given, "unit")
    start, end = _instant(given, "windowStart"), _instant(given, "windowEnd")
    if end < start:
        _refuse("windowEnd must not be before windowStart")
    kind, temporality = _word(given, "metricKind", "summary"), _word(given, "temporality", "delta")
    instance, stream = _optional(given, "instance"), _optional(given, "stream")
    attributes = _attributes(given)
    pairs = [f"{key}={value}" for key, value in attributes.items()]
    dimensions = PAIRS_JOINED_BY.join(pairs)
    series = "|".join((kind, temporality, metric, unit, stream or "", instance or "", dimensions))
    summary = _summarise(given)
    low, middle, high = (_percentile(summary.histogram, share) for share in (0.5, 0.95, 0.99))
    return MetricsInterval(
        API, "interval", metric, unit, kind, temporality, start, end, end - start, instance, stream,
        attributes, attributes, pairs, dimensions, series,
        summary.count, summary.sum, summary.min, summary.max,
        _plain(summary.sum / summary.count) if summary.count else None,
        low, middle, high, summary.histogram, summary,
    )  # fmt: skip


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        return _records.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse(describe(error))


def _summarise(given: dict[str, Any]) -> MetricsSummary:
    """Its numbers stand at the top, or in a summary."""
    inner = given.get("summary")
    inner = inner if isinstance(inner, dict) else {}

    def find(name: str) -> object:
        value = given.get(name)
        return inner.get(name) if value is None else value

    count, total = find("count"), find("sum")
    if not _is_number(count) or count < 0:  # type: ignore[operator]
        _refuse("count must be a number from 0 on")
    if not _is_number(total):
        _refuse("sum must be a number")
    low, high = find("min"), find("max")
    for name, value in (("min", low), ("max", high)):
        if value is not None and not _is_number(value):
            _refuse(f"{name} must be a number or null")
    buckets = given.get("buckets")
    histogram = _histogram(inner.get("histogram") if buckets is None else buckets)
    if not count:
        return MetricsSummary(_plain(count), _plain(total), None, None, histogram)
    return MetricsSummary(
        _plain(count), _plain(total), _plain(low or 0), _plain(high or 0), histogram
    )


def _histogram(given: object) -> Histogram:
    if given is None:
        return {}
    if not isinstance(given, dict):
        _refuse("buckets must be an object")
    for bound, count in given.items():
        if _BOUND.fullmatch(bound) is None:
            _refuse("the keys of buckets must be numbers")
        if not _is_number(count) or count < 0:
            _refuse("the values of buckets must be numbers from 0 on")
    return {bound: _plain(given[bound]) for bound in sorted(given, key=float)}


def _percentile(histogram: Histogram, share: float) -> Number | None:
    """The lower bound of the bucket that this share of all values reaches."""
    total = sum(histogram.values(), 0.0)
    if not total:
        return None
    running = 0.0
    found = 0.0
    for bound, count in histogram.items():
        found = float(bound)
        running += count
        if running >= share * total:
            break
    return int(found) if found.is_integer() else found


def _attributes(given: dict[str, Any]) -> dict[str, str]:
    """What tells series of one metric from each other: scalars as text, by name."""
    found = given.get("attributes")
    where = "attributes"
    if found is None:
        found, where = given.get("tags"), "tags"
    if found is None:
        return {}
    if not isinstance(found, dict):
        _refuse(f"{where} must be an object")
    texts: dict[str, str] = {}
    for key in sorted(found):
        value = found[key]
        if isinstance(value, dict | list):
            _refuse(f"{where}.{key[:80]} must be a scalar")
        if value is not None:
            texts[key] = value if isinstance(value, str) else _encode(_plain(value)).decode()
    return texts


def _is_number(value: object) -> bool:
    return (type(value) is int or type(value) is float) and abs(value) <= _LARGEST


def _plain(value: Any) -> Any:
    """A number without a fraction that says nothing."""
    if type(value) is float and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def _name(given: dict[str, Any], field: str) -> str:
    value = given.get(field)
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        _refuse(f"{field} must be a non-empty string")
    return text


def _word(given: dict[str, Any], field: str, default: str) -> str:
    return default if given.get(field) is None else _name(given, field)


def _optional(given: dict[str, Any], field: str) -> str | None:
    value = given.get(field)
    if value is not None and not isinstance(value, str):
        _refuse(f"{field} must be a string or null")
    return (value.strip() or None) if value is not None else None


def _instant(given: dict[str, Any], field: str) -> int:
    value = _plain(given.get(field))
    if type(value) is not int or not -I64_MAX <= value <= I64_MAX:
        _refuse(f"{field} must be an integer of milliseconds")
    return value


def _refuse(problem: str) -> NoReturn:
    refuse_invalid(f"metrics record {problem}")


# --- what comes with it ---------------------------------------------------------------------------

_NAMES = ("metric", "unit", "stream", "instance", "dimensionKey", "metricKind", "temporality")
_NUMBERS = ("count", "sum", "min", "max", "avg", "p50", "p95", "p99")
_TEXTS = {"type": "object", "additionalProperties": TEXT}
_COUNTS = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
_MEASURED = {
    "count": {"type": "number", "minimum": 0},
    "sum": {"type": "number"},
    "min": NUMBER_OR_NULL,
    "max": NUMBER_OR_NULL,
}
SCHEMA = msgspec.json.encode(
    {
        "type": "object",
        "additionalProperties": False,
        "required": [field.encode_name for field in msgspec.structs.fields(MetricsInterval)],
        "properties": {
            "apiVersion": {"const": API},
            "kind": {"const": "interval"},
            **dict.fromkeys(("metric", "unit", "metricKind"), WORD),
            "temporality": WORD,
            **dict.fromkeys(("windowStart", "windowEnd", "intervalMs"), INTEGER),
            **dict.fromkeys(("instance", "stream"), TEXT_OR_NULL),
            **dict.fromkeys(("tags", "attributes"), _TEXTS),
            "dimensionPairs": {"type": "array", "items": TEXT},
            **dict.fromkeys(("dimensionKey", "seriesKey"), TEXT),
            **_MEASURED,
            **dict.fromkeys(("avg", "p50", "p95", "p99"), NUMBER_OR_NULL),
            "buckets": _COUNTS,
            "summary": {
                "type": "object",
                "additionalProperties": False,
                "required": [*_MEASURED, "histogram"],
                "properties": {**_MEASURED, "histogram": _COUNTS},
            },
        },
    }
)
ROUTING_KEY = msgspec.json.encode({"jsonPointer": "/seriesKey", "required": True})
SEARCH = msgspec.json.encode(
    {
        "primaryTimestampField": "windowStart",
        "aliases": {
            "ts": "windowStart",
            "time": "windowStart",
            "name": "metric",
            "dims": "dimensionPairs",
            "series": "seriesKey",
        },
        "fields": {
            "windowStart": typed("/windowStart", "date"),
            "windowEnd": typed("/windowEnd", "date"),
            "intervalMs": typed("/intervalMs", "integer"),
            **{name: keyword(f"/{name}") for name in (*_NAMES, "seriesKey", "dimensionPairs")},
            **{name: typed(f"/{name}", "float", "aggregatable") for name in _NUMBERS},
        },
        "rollups": {
            "metrics": {
                "timestampField": "windowStart",
                "dimensions": list(_NAMES),
                "intervals": ["10s", "1m", "5m", "1h"],
                "measures": {
                    "value": {
                        "kind": "summary_parts",
                        "countJsonPointer": "/summary/count",
                        "sumJsonPointer": "/summary/sum",
                        "minJsonPointer": "/summary/min",
                        "maxJsonPointer": "/summary/max",
                        "histogramJsonPointer": "/summary/histogram",
                    }
                },
            }
        },
    }
)
