"""What search, filters, aggregates and routing keys must answer: every record is looked at.

The specification said again on plain objects; nothing here is fast or clever.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.search.query import All, Query, Words
from headrace.search.query import Any as AnyOf
from support.evolving import Op, forward
from support.searching import naive_has_words, naive_matches, naive_values, naive_words

Sort = tuple[tuple[str, bool], ...]
"""Names and whether they descend."""

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass
class Model:
    """A stream: every record as it was written, and the lenses since."""

    config: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    lenses: list[list[Op]] = field(default_factory=list)
    """The first leads from version 1 to 2."""
    records: list[tuple[int, Any, str | None]] = field(default_factory=list)
    """The schema version, the document and the routing key of each."""

    def append(self, raw: bytes, key: str | None) -> None:
        self.records.append((self.version, json.loads(raw), key))

    def documents(self) -> list[Any]:
        """All of them, promoted to the current version."""
        promoted = []
        for version, document, _ in self.records:
            for ops in self.lenses[version - 1 :]:
                document = forward(document, ops)
            promoted.append(document)
        return promoted

    def fields(self) -> dict[str, Any]:
        """The fields with the one binding that counts now."""
        bound = {}
        for name, one in self.config["fields"].items():
            due = [b for b in one["bindings"] if b["version"] <= self.version]
            bound[name] = {**one, "bindings": [max(due, key=lambda b: b["version"])]}
        return bound

    def seen(self) -> dict[str, list[Any]]:
        """Every value of each field."""
        found: dict[str, list[Any]] = {}
        documents = self.documents()
        for name, one in self.fields().items():
            found[name] = [v for document in documents for v in naive_values(one, document)]
        return found

    def matching(self, query: Query | None) -> list[int]:
        """The places of the records that match, from 0."""
        bound = {"fields": self.fields()}
        return [
            at
            for at, document in enumerate(self.documents())
            if query is None or naive_matches(query, bound, document)
        ]

    def search(self, query: Query, sort: Sort) -> list[tuple[int, float]]:
        """The places and the scores of all hits, sorted."""
        documents, fields = self.documents(), self.fields()
        hits = [(at, self.score(query, documents[at])) for at in self.matching(query)]

        def value(name: str, at: int, score: float) -> Any:
            if name == "offset":
                return at
            if name == "_score":
                return score
            values = naive_values(fields[name], documents[at])
            return (not values, values[0] if values else 0)  # none is greatest

        for name, descends in reversed((*sort, ("offset", True))):
            hits.sort(key=lambda hit: value(name, *hit), reverse=descends)
        return hits

    def score(self, query: Query, document: Any) -> float:
        match query:
            case All(items=items) | AnyOf(items=items):
                return sum(self.score(item, document) for item in items)
            case Words():
                return self._score_words(query, document)
        return 0.0

    def _score_words(self, query: Words, document: Any) -> float:
        values = naive_values(self.fields()[query.field], document)
        texts = [naive_words(text) for text in values]
        if not naive_has_words(query, texts):
            return 0.0
        best = 0
        for text in texts:
            if query.phrase and not naive_has_words(query, [text]):
                continue
            found = sum(
                word in query.words or (query.open and word.startswith(query.words[-1]))
                for word in text
            )
            best = max(best, found + (2 * len(query.words) if query.phrase else 0))
        return query.boost * best

    def aggregate(
        self, rollup: str, start_ms: int, stop_ms: int, interval_ms: int,
        group_by: Sequence[str], query: Query | None,
    ) -> dict[tuple[int, str], list[dict[str, float]]]:  # fmt: skip
        """By window and group (as JSON): what each record that counts has for the measures."""
        rule, fields = self.config["rollups"][rollup], self.fields()
        documents = self.documents()
        found: dict[tuple[int, str], list[dict[str, float]]] = {}
        for at in self.matching(query):

            def values(name: str, document: Any = documents[at]) -> list[Any]:
                return naive_values(fields[name], document)

            stamps = values(rule.get("timestampField", self.config["primaryTimestampField"]))
            dimensions = {name: values(name) for name in rule["dimensions"]}
            measured = {
                name: values(measure["field"])
                for name, measure in rule["measures"].items()
                if measure["kind"] == "summary"
            }
            if len(stamps) != 1 or any(len(found) > 1 for found in dimensions.values()):
                continue
            if any(len(found) != 1 for found in measured.values()):
                continue
            if not start_ms <= stamps[0] < stop_ms:
                continue
            key = {
                name: (bool(v[0]) if fields[name]["kind"] == "bool" else v[0]) if v else None
                for name, v in dimensions.items()
                if name in group_by
            }
            window = stamps[0] // interval_ms * interval_ms
            group = json.dumps({name: key[name] for name in group_by})
            found.setdefault((window, group), []).append(
                {name: float(one[0]) for name, one in measured.items()}
            )
        return found

    def keys(self) -> list[str]:
        return sorted({key for _, _, key in self.records if key is not None})


def offset_of(at: int, epoch: int = 0) -> str:
    """The offset of the record at this place, in such a life of a stream."""
    bits, text = (epoch << 98) + ((at + 1) << 34), ""
    for _ in range(26):
        text = CROCKFORD[bits % 32] + text
        bits //= 32
    return text


def epoch_of(offset: str) -> int:
    bits = 0
    for digit in offset:
        bits = bits * 32 + CROCKFORD.index(digit)
    return bits >> 98


def iso(ms: int) -> str:
    at = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def require_summary(told: dict[str, Any], values: list[float], histogram: bool) -> None:
    """What a summary must say of these values."""
    assert told["count"] == len(values)
    assert math.isclose(told["sum"], math.fsum(values), rel_tol=1e-9, abs_tol=1e-9)
    assert (told["min"], told["max"]) == (min(values), max(values))
    assert math.isclose(told["avg"], math.fsum(values) / len(values), rel_tol=1e-9, abs_tol=1e-9)
    if not histogram:
        assert (told["p50"], told["p95"], told["p99"]) == (None, None, None)
        assert "histogram" not in told
        return
    expected: dict[str, int] = {}
    for value in values:
        bucket = str(2 ** math.floor(math.log2(max(1, abs(value)))))
        expected[bucket] = expected.get(bucket, 0) + 1
    assert told["histogram"] == expected
    for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        exact = sorted(values)[max(1, math.ceil(part * len(values))) - 1]
        assert math.isclose(told[name], exact, rel_tol=1 / 31, abs_tol=1e-9), (name, values)
