"""Search configurations: which values of a log's documents are indexed, and how."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from headrace.core.errors import refuse_invalid
from headrace.core.json_values import need_list, need_object, need_text, refuse_others
from headrace.search.pointers import Path, need_pointer

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
_DURATION = re.compile(r"([1-9][0-9]{0,11})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_CONFIG_KEYS = (
    "profile",
    "primaryTimestampField",
    "defaultFields",
    "containsDefaultFields",
    "aliases",
    "fields",
    "rollups",
)
_FLAGS = (
    "exact",
    "prefix",
    "column",
    "exists",
    "sortable",
    "aggregatable",
    "contains",
    "positions",
)


class FieldKind(StrEnum):
    """What a field's values are."""

    KEYWORD = "keyword"
    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    DATE = "date"
    BOOL = "bool"


TYPED = frozenset({FieldKind.INTEGER, FieldKind.FLOAT, FieldKind.DATE, FieldKind.BOOL})

_ALLOWED = {
    FieldKind.KEYWORD: {"exact", "prefix", "exists", "sortable", "aggregatable", "contains"},
    FieldKind.TEXT: {"exists", "positions", "contains"},
    **{kind: {"exact", "column", "exists", "sortable", "aggregatable"} for kind in TYPED},
}


class Binding(msgspec.Struct, frozen=True):
    """Where the documents of a schema version, and of later ones, have a field."""

    version: int
    path: Path


class Field(msgspec.Struct, frozen=True):
    """One field of the documents."""

    name: str
    kind: FieldKind
    bindings: tuple[Binding, ...]
    """By ascending version."""
    flags: frozenset[str]
    lowercase: bool = False

    @property
    def typed(self) -> bool:
        return self.kind in TYPED

    @property
    def exact(self) -> bool:
        return "exact" in self.flags

    @property
    def prefix(self) -> bool:
        return "prefix" in self.flags

    @property
    def column(self) -> bool:
        return "column" in self.flags

    @property
    def sortable(self) -> bool:
        return "sortable" in self.flags

    @property
    def aggregatable(self) -> bool:
        return "aggregatable" in self.flags

    @property
    def known_present(self) -> bool:
        """Whether `has:` may ask for it."""
        return self.kind is FieldKind.TEXT or bool(self.flags & {"exists", "exact", "column"})

    def path(self, version: int | None = None) -> Path:
        """Where documents of this version have it; of the newest one, if none is given."""
        if version is None:
            return self.bindings[-1].path
        bound = [b for b in self.bindings if b.version <= version]
        return (bound or self.bindings)[-1].path


class Count(msgspec.Struct, frozen=True, tag="count"):
    """How many records."""

    name: str


class Summary(msgspec.Struct, frozen=True, tag="summary"):
    """Count, sum, extremes and distribution of a field's values."""

    name: str
    field: str
    histogram: bool


class Parts(msgspec.Struct, frozen=True, tag="summary_parts"):
    """Summaries that the documents bring ready made."""

    name: str
    count: Path
    sum: Path
    min: Path
    max: Path
    histogram: Path | None


Measure = Count | Summary | Parts


class Interval(msgspec.Struct, frozen=True):
    text: str
    ms: int


class Rollup(msgspec.Struct, frozen=True):
    """Measures over windows of time, for each combination of dimensions."""

    name: str
    timestamp: str
    dimensions: tuple[str, ...]
    intervals: tuple[Interval, ...]
    measures: tuple[Measure, ...]
    """Sorted by name."""

    def interval(self, text: str) -> Interval | None:
        return next((i for i in self.intervals if i.text == text), None)


class Search(msgspec.Struct, frozen=True):
    """A search configuration."""

    primary: str
    fields: dict[str, Field]
    aliases: dict[str, str]
    defaults: tuple[tuple[str, float], ...]
    """Where a bare value is looked for, with boosts."""
    rollups: dict[str, Rollup]

    def find(self, name: str) -> Field | None:
        """The field of this name or alias."""
        return self.fields.get(self.aliases.get(name, name))


def parse_search(raw: object) -> Search:
    """Check a configuration as it was posted."""
    config = need_object(raw, "search")
    refuse_others(config, _CONFIG_KEYS, "search")
    fields = _named(config.get("fields"), "search.fields", _parse_field)
    if not fields:
        refuse_invalid("search.fields must not be empty")
    primary = need_text(config.get("primaryTimestampField"), "search.primaryTimestampField")
    _need_date(fields, primary, "search.primaryTimestampField")
    need_text(config.get("profile", ""), "search.profile")
    if "containsDefaultFields" in config:
        need_list(config["containsDefaultFields"], "search.containsDefaultFields")
    aliases = _named(
        config.get("aliases", {}), "search.aliases", lambda _, raw, where: need_text(raw, where)
    )
    for alias, target in aliases.items():
        if target not in fields:
            refuse_invalid(f"search.aliases.{alias} must name a declared field")
    defaults = _parse_defaults(config.get("defaultFields", []), fields)
    rollups = _named(
        config.get("rollups", {}),
        "search.rollups",
        lambda name, value, where: _parse_rollup(name, value, where, fields, primary),
    )
    return Search(primary, fields, aliases, defaults, rollups)


def parse_duration_ms(text: str) -> int | None:
    """`250ms`, `10s`, `5m`, `1h`, `1d`; None for anything else."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNIT_MS[found[2]] if found else None


def _parse_field(name: str, raw: object, where: str) -> Field:
    field = need_object(raw, where)
    refuse_others(field, ("kind", "bindings", "normalizer", "analyzer", *_FLAGS), where)
    if field.get("kind") not in list(FieldKind):
        refuse_invalid(f"{where}.kind must be one of {', '.join(FieldKind)}")
    kind = FieldKind(field["kind"])
    for flag in _FLAGS:
        if flag in field and flag not in _ALLOWED[kind]:
            refuse_invalid(f"{where}.{flag} is not supported for kind {kind}")
    if kind is FieldKind.TEXT:
        if field.get("analyzer") != "unicode_word_v1":
            refuse_invalid(f"{where}.analyzer must be unicode_word_v1")
    elif "analyzer" in field:
        refuse_invalid(f"{where}.analyzer is not supported for kind {kind}")
    if "normalizer" in field:
        if kind is not FieldKind.KEYWORD:
            refuse_invalid(f"{where}.normalizer is not supported for kind {kind}")
        if field["normalizer"] not in ("identity_v1", "lowercase_v1"):
            refuse_invalid(f"{where}.normalizer must be identity_v1 or lowercase_v1")
    return Field(
        name,
        kind,
        _parse_bindings(field.get("bindings"), f"{where}.bindings"),
        frozenset(flag for flag in _FLAGS if field.get(flag) is True),
        field.get("normalizer") == "lowercase_v1",
    )


def _parse_bindings(raw: object, where: str) -> tuple[Binding, ...]:
    found: dict[int, Binding] = {}
    for at, item in enumerate(need_list(raw, where)):
        place = f"{where}[{at}]"
        binding = need_object(item, place)
        refuse_others(binding, ("version", "jsonPointer"), place)
        version = binding.get("version")
        if type(version) is not int or version < 1:
            refuse_invalid(f"{place}.version must be a positive integer")
        if version in found:
            refuse_invalid(f"{where} has more than one binding for version {version}")
        found[version] = Binding(
            version, need_pointer(binding.get("jsonPointer"), f"{place}.jsonPointer")
        )
    if not found:
        refuse_invalid(f"{where} must not be empty")
    return tuple(found[version] for version in sorted(found))


def _parse_defaults(raw: object, fields: dict[str, Field]) -> tuple[tuple[str, float], ...]:
    found: list[tuple[str, float]] = []
    for at, item in enumerate(need_list(raw, "search.defaultFields")):
        where = f"search.defaultFields[{at}]"
        default = need_object(item, where)
        refuse_others(default, ("field", "boost"), where)
        field = fields.get(str(default.get("field")))
        if field is None:
            refuse_invalid(f"{where}.field must name a declared field")
        if field.typed:
            refuse_invalid(f"{where}.field must be a text or keyword field")
        boost = default.get("boost", 1)
        if type(boost) not in (int, float) or not 0 < boost < 1e9:
            refuse_invalid(f"{where}.boost must be a positive number")
        found.append((field.name, float(boost)))
    if not found:
        found = [(f.name, 1.0) for f in fields.values() if f.kind is FieldKind.TEXT]
    return tuple(found)


def _parse_rollup(
    name: str, raw: object, where: str, fields: dict[str, Field], primary: str
) -> Rollup:
    rollup = need_object(raw, where)
    refuse_others(rollup, ("timestampField", "dimensions", "intervals", "measures"), where)
    timestamp = need_text(rollup.get("timestampField", primary), f"{where}.timestampField")
    _need_date(fields, timestamp, f"{where}.timestampField")
    dimensions = need_list(rollup.get("dimensions", []), f"{where}.dimensions")
    for dimension in dimensions:
        field = fields.get(dimension) if isinstance(dimension, str) else None
        if field is None or not field.exact:
            refuse_invalid(f"{where}.dimensions must name declared fields with exact=true")
    if len(set(dimensions)) < len(dimensions):
        refuse_invalid(f"{where}.dimensions must not have duplicates")
    measures = _named(
        rollup.get("measures"),
        f"{where}.measures",
        lambda n, value, place: _parse_measure(n, value, place, fields),
    )
    if not measures:
        refuse_invalid(f"{where}.measures must not be empty")
    return Rollup(
        name,
        timestamp,
        tuple(dimensions),
        _parse_intervals(rollup.get("intervals"), f"{where}.intervals"),
        tuple(measures[key] for key in sorted(measures)),
    )


def _parse_intervals(raw: object, where: str) -> tuple[Interval, ...]:
    found: list[Interval] = []
    for item in need_list(raw, where):
        ms = parse_duration_ms(item) if isinstance(item, str) else None
        if ms is None:
            refuse_invalid(f"{where} must be durations such as 10s, 1m or 1h")
        if any(interval.ms == ms for interval in found):
            refuse_invalid(f"{where} must not have duplicates")
        found.append(Interval(item, ms))
    if not found:
        refuse_invalid(f"{where} must not be empty")
    return tuple(found)


def _parse_measure(name: str, raw: object, where: str, fields: dict[str, Field]) -> Measure:
    measure = need_object(raw, where)
    if measure.get("kind") not in ("count", "summary", "summary_parts"):
        refuse_invalid(f"{where}.kind must be count, summary or summary_parts")
    match measure["kind"]:
        case "count":
            refuse_others(measure, ("kind",), where)
            return Count(name)
        case "summary":
            refuse_others(measure, ("kind", "field", "histogram"), where)
            field = fields.get(str(measure.get("field")))
            if field is None or field.kind not in (FieldKind.INTEGER, FieldKind.FLOAT):
                refuse_invalid(f"{where}.field must name an integer or float field")
            if not field.aggregatable:
                refuse_invalid(f"{where}.field must be aggregatable")
            if measure.get("histogram", "log2_v1") != "log2_v1":
                refuse_invalid(f"{where}.histogram must be log2_v1")
            return Summary(name, field.name, "histogram" in measure)
        case _:
            pointers = ("countJsonPointer", "sumJsonPointer", "minJsonPointer", "maxJsonPointer")
            optional = "histogramJsonPointer"
            refuse_others(measure, ("kind", *pointers, optional), where)
            count, total, low, high = (
                need_pointer(measure.get(key), f"{where}.{key}") for key in pointers
            )
            histogram = (
                need_pointer(measure[optional], f"{where}.{optional}")
                if optional in measure
                else None
            )
            return Parts(name, count, total, low, high, histogram)


def _need_date(fields: dict[str, Field], name: str, where: str) -> None:
    if name not in fields:
        refuse_invalid(f"{where} must name a declared field")
    if fields[name].kind is not FieldKind.DATE:
        refuse_invalid(f"{where} must be a date field")


def _named(raw: object, where: str, parse: Callable[[str, object, str], Any]) -> dict[str, Any]:
    found = {}
    for name, value in need_object(raw, where).items():
        if not _NAME.fullmatch(name):
            refuse_invalid(f"{where} has an invalid name: {name[:80]!r}")
        found[name] = parse(name, value, f"{where}.{name}")
    return found
