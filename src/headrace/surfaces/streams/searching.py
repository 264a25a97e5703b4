"""Searching streams over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import COMMAND_BYTES_MAX
from headrace.engine.open_log import OpenLog
from headrace.engine.search.searching import search
from headrace.surfaces.streams.offsets import Offset, parse_offset
from headrace.surfaces.streams.positions import format_position, resolve
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call
from headrace.web.credentials import Scope
from headrace.web.search_replies import format_found, search_headers
from headrace.web.search_requests import Body, decode_body, parse_parameters, parse_search_request


async def get(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    return await _search(call, parse_parameters(call.req.query_string))


async def post(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    return await _search(call, decode_body(await call.raw_body(COMMAND_BYTES_MAX)))


async def _search(call: Call, body: Body) -> Answer:
    engine = call.engine
    live = engine.streams.find(call.name)
    live.last_read_at_ms = engine.clock.now_ms()
    read = partial(parse_search_request, body, partial(_parse_mark, live))
    found = await search(engine, live, read)
    told = {"stream": call.name, **format_found(found, partial(format_position, live.log))}
    answer = json_answer(msgspec.json.encode(told), 408 if found.timed_out else 200)
    answer.headers += search_headers(told)
    return answer


def _parse_mark(live: OpenLog, value: Any) -> int:
    """The seq of an offset in `search_after`; refuses one that this stream does not have."""
    offset = parse_offset(value) if isinstance(value, str) else None
    if not isinstance(offset, Offset):
        raise Refused(Code.INVALID, "search_after needs an offset of 26 characters")
    return resolve(live, offset)
