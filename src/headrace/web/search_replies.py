"""Answers to searches and aggregates as JSON: the same on every surface, but for positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.engine.search.aggregating import Aggregated
from headrace.engine.search.coverage import Coverage
from headrace.engine.search.keys import KeyPage
from headrace.engine.search.searching import SearchAnswer
from headrace.search.ordering import OFFSET, SCORE
from headrace.search.values import format_date

Show = Callable[[int], Any]
"""A position, given its seq."""


def format_coverage(coverage: Coverage, show: Show) -> dict[str, Any]:
    """The members that every answer from an index has."""
    newest_ms, left_ms = coverage.newest_ms, coverage.oldest_left_ms
    return {
        "mode": "complete" if coverage.complete else "published",
        "complete": coverage.complete,
        "stream_head_offset": show(coverage.head),
        "visible_through_offset": show(coverage.visible_through),
        "visible_through_primary_timestamp_max": None
        if newest_ms is None
        else format_date(newest_ms),
        "oldest_omitted_append_at": None if left_ms is None else format_date(left_ms),
        "possible_missing_events_upper_bound": coverage.missing_events,
        "possible_missing_uploaded_segments": coverage.missing_segments,
        "possible_missing_sealed_rows": coverage.missing_sealed,
        "possible_missing_wal_rows": coverage.missing_tail,
        "indexed_segments": len(coverage.indexed),
        "scanned_segments": len(coverage.scanned),
        "scanned_tail_docs": coverage.scanned_tail_docs,
        "index_families_used": sorted(coverage.families),
    }


def format_found(found: SearchAnswer, show: Show) -> dict[str, Any]:
    """The members of an answer to a search, but for the name of what was searched."""
    coverage = found.coverage
    return {
        "snapshot_end_offset": show(found.head),
        "took_ms": found.took_ms,
        "timed_out": found.timed_out,
        "timeout_ms": found.request.timeout_ms,
        "coverage": {
            **format_coverage(coverage, show),
            "indexed_segment_time_ms": _ms(coverage.indexed_s),
            "fts_section_get_ms": _ms(coverage.text_get_s),
            "fts_decode_ms": _ms(coverage.text_decode_s),
            "fts_clause_estimate_ms": 0,
            "scanned_segment_time_ms": _ms(coverage.scanned_s),
            "scanned_tail_time_ms": _ms(coverage.scanned_tail_s),
            "exact_candidate_time_ms": _ms(coverage.exact_s),
        },
        "total": {"value": found.total, "relation": "eq" if found.exact else "gte"},
        "hits": [
            {
                "offset": show(hit.seq),
                "score": _number(hit.score),
                "sort": _sort(found, hit.sort, show),
                "fields": hit.fields,
                "source": None if hit.source is None else msgspec.Raw(hit.source),
            }
            for hit in found.hits
        ],
        "next_search_after": None if found.more is None else _sort(found, found.more, show),
    }


def format_aggregated(found: Aggregated, show: Show) -> dict[str, Any]:
    """The members of an answer to an aggregate, but for the name of what was looked at."""
    request = found.request
    return {
        "rollup": request.rollup.name,
        "from": format_date(request.start_ms),
        "to": format_date(request.stop_ms),
        "interval": request.interval,
        "coverage": {
            **format_coverage(found.coverage, show),
            "used_rollups": found.used_rollups,
        },
        "buckets": found.buckets,
    }


def format_keys(found: KeyPage) -> dict[str, Any]:
    """The members of a page of routing keys, but for the name of what has them."""
    coverage, timing = found.coverage, found.timing
    return {
        "source": {"kind": "routing_key", "name": ""},
        "took_ms": found.took_ms,
        "coverage": {
            "complete": coverage.complete,
            "indexed_segments": len(coverage.indexed),
            "scanned_uploaded_segments": len(coverage.scanned),
            "scanned_local_segments": 0,
            "scanned_wal_rows": coverage.scanned_tail_docs,
            "possible_missing_uploaded_segments": coverage.missing_segments,
            "possible_missing_local_segments": 0,
        },
        "timing": {
            "lexicon_run_get_ms": _ms(timing.read_s),
            "lexicon_decode_ms": 0,
            "lexicon_enumerate_ms": _ms(timing.enumerate_s),
            "lexicon_merge_ms": _ms(timing.merge_s),
            "fallback_scan_ms": _ms(timing.scan_segments_s + timing.scan_tail_s),
            "fallback_segment_get_ms": _ms(timing.scan_segments_s),
            "fallback_wal_scan_ms": _ms(timing.scan_tail_s),
            "lexicon_runs_loaded": timing.builds,
        },
        "keys": found.keys,
        "next_after": found.keys[-1] if found.more else None,
    }


def search_headers(told: dict[str, Any]) -> list[tuple[str, str]]:
    """What the headers of an answer repeat of its body."""
    coverage = told["coverage"]
    said: dict[str, Any] = {
        "timed-out": told["timed_out"],
        "timeout-ms": told["timeout_ms"],
        "took-ms": told["took_ms"],
        "total-relation": told["total"]["relation"],
        "coverage-complete": coverage["complete"],
        **{name.replace("_", "-"): coverage[name] for name in _MIRRORED},
        "index-families-used": ",".join(coverage["index_families_used"]),
    }
    return [(f"search-{name}", _text(value)) for name, value in said.items()]


_MIRRORED = (
    "indexed_segments",
    "indexed_segment_time_ms",
    "fts_section_get_ms",
    "fts_decode_ms",
    "fts_clause_estimate_ms",
    "scanned_segments",
    "scanned_segment_time_ms",
    "scanned_tail_docs",
    "scanned_tail_time_ms",
    "exact_candidate_time_ms",
)


def _sort(found: SearchAnswer, values: list[Any], show: Show) -> list[Any]:
    shown = []
    for sort, value in zip(found.request.sorts, values, strict=True):
        if sort.name == OFFSET:
            value = show(value)
        elif sort.name == SCORE:
            value = _number(value)
        shown.append(value)
    return shown


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _ms(seconds: float) -> int:
    return round(seconds * 1e3)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
