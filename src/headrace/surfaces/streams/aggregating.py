"""Aggregates and routing keys of streams over HTTP."""

from __future__ import annotations

from functools import partial

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import COMMAND_BYTES_MAX, ROUTING_KEYS_DEFAULT, ROUTING_KEYS_MAX
from headrace.engine.search.aggregating import aggregate
from headrace.engine.search.keys import list_keys
from headrace.schemas.registry import decode_registry
from headrace.surfaces.streams.positions import format_position
from headrace.surfaces.streams.reading import parse_query
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call
from headrace.web.credentials import Scope
from headrace.web.search_replies import format_aggregated, format_keys
from headrace.web.search_requests import decode_body, parse_aggregate_request


async def post_aggregate(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    body = decode_body(await call.raw_body(COMMAND_BYTES_MAX))
    engine = call.engine
    live = engine.streams.find(call.name)
    live.last_read_at_ms = engine.clock.now_ms()
    found = await aggregate(engine, live, partial(parse_aggregate_request, body))
    told = {"stream": call.name, **format_aggregated(found, partial(format_position, live.log))}
    return json_answer(msgspec.json.encode(told), 408 if found.timed_out else 200)


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
    return json_answer(msgspec.json.encode({"stream": call.name, **format_keys(found)}))


def _parse_limit(text: str | None) -> int:
    if text is None:
        return ROUTING_KEYS_DEFAULT
    limit = parse_digits(text, ROUTING_KEYS_MAX)
    if not limit:
        raise Refused(Code.INVALID, "invalid limit")
    return limit
