"""Aggregates and routing keys of streams over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import COMMAND_BYTES_MAX, ROUTING_KEYS_DEFAULT, ROUTING_KEYS_MAX
from headrace.engine.searching.aggregating import aggregate
from headrace.engine.searching.keys import Listed, list_keys
from headrace.schemas.registry import decode_registry
from headrace.surfaces.found import format_aggregated
from headrace.surfaces.streams.positions import format_position
from headrace.surfaces.streams.reading import parse_query
from headrace.web.answers import Answer
from headrace.web.calls import Call, decode
from headrace.web.credentials import Scope

_bodies = msgspec.json.Decoder(dict[str, Any])


async def post_aggregate(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    asked = decode(_bodies, await call.raw_body(COMMAND_BYTES_MAX))
    engine = call.engine
    live = engine.streams.find(call.name)
    live.last_read_at_ms = engine.clock.now_ms()
    found = await aggregate(engine, live, asked)
    told = {"stream": call.name, **format_aggregated(found, partial(format_position, live.log))}
    return _json(told, 408 if found.timed_out else 200)


async def get_keys(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    query = parse_query(call.req.query_string)
    limit = _parse_limit(query.get("limit"))
    engine = call.engine
    live = engine.streams.find(call.name)
    stream = live.log.stream
    if stream is None or decode_registry(stream.registry).routing_key is None:
        raise Refused(Code.INVALID, "routing key not configured")
    live.last_read_at_ms = engine.clock.now_ms()
    found = await list_keys(engine, live, query.get("after"), limit)
    return _json({"stream": call.name, **_format_keys(found)})


def _parse_limit(text: str | None) -> int:
    if text is None:
        return ROUTING_KEYS_DEFAULT
    limit = parse_digits(text, ROUTING_KEYS_MAX)
    if not limit:
        raise Refused(Code.INVALID, "invalid limit")
    return limit


def _format_keys(found: Listed) -> dict[str, Any]:
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


def _ms(seconds: float) -> int:
    return round(seconds * 1e3)


def _json(body: dict[str, Any], status: int = 200) -> Answer:
    headers = [("content-type", "application/json"), ("cache-control", "no-store")]
    return Answer(status, headers, msgspec.json.encode(body))
