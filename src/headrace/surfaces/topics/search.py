"""The endpoints of search and its configurations: parse, authorise, call the engine, encode."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import I64_MAX
from headrace.core.owners import TOPICS
from headrace.engine.search import aggregating, searching
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.routes import authorise
from headrace.web.answers import Reply
from headrace.web.calls import Call
from headrace.web.credentials import Scope
from headrace.web.search_replies import format_aggregated, format_found
from headrace.web.search_requests import decode_body, parse_aggregate_request, parse_search_request


async def put(call: Call) -> Reply:
    topic = authorise(call, Scope.ADMIN)
    log = await call.engine.search_configs.put(topic, TOPICS, await call.command())
    return _reply(topic, log.search)


async def get(call: Call) -> Reply:
    topic = authorise(call, Scope.READ)
    engine = call.engine
    reply = _reply(topic, engine.search_configs.get(topic))
    await engine.settle(engine.live(topic))
    return reply


async def delete(call: Call) -> Reply:
    topic = authorise(call, Scope.ADMIN)
    deleted = await call.engine.search_configs.clear(topic, TOPICS)
    return Reply([wire.open_object(wire.SearchDropReply(topic=topic, deleted=deleted))])


async def find(call: Call) -> Reply:
    """Search the records."""
    topic = authorise(call, Scope.READ)
    engine = call.engine
    live = engine.live(topic)
    live.last_read_at_ms = engine.clock.now_ms()
    body = decode_body(await call.command())
    found = await searching.search(engine, live, partial(parse_search_request, body, _parse_mark))
    told = {"topic": topic, **format_found(found, int)}
    return Reply([msgspec.json.encode(told)[:-1]], 408 if found.timed_out else 200)


async def aggregate(call: Call) -> Reply:
    """Count and measure the records by time."""
    topic = authorise(call, Scope.READ)
    engine = call.engine
    live = engine.live(topic)
    live.last_read_at_ms = engine.clock.now_ms()
    body = decode_body(await call.command())
    found = await aggregating.aggregate(engine, live, partial(parse_aggregate_request, body))
    told = {"topic": topic, **format_aggregated(found, int)}
    return Reply([msgspec.json.encode(told)[:-1]], 408 if found.timed_out else 200)


def _parse_mark(value: Any) -> int:
    """The seq of a record in `search_after`."""
    if type(value) is not int or not 0 <= value <= I64_MAX:
        raise Refused(Code.INVALID, "search_after needs the offset of a record, a whole number")
    return value


def _reply(topic: str, search: bytes | None) -> Reply:
    kept = None if search is None else msgspec.Raw(search)
    return Reply([wire.open_object(wire.SearchReply(topic=topic, search=kept))])
