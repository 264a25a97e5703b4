"""Searching streams over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import COMMAND_BYTES_MAX
from headrace.engine.live import Live
from headrace.engine.searching.search import search
from headrace.surfaces.found import format_found, search_headers
from headrace.surfaces.streams.offsets import Offset, parse_offset
from headrace.surfaces.streams.positions import format_position, resolve
from headrace.web.answers import Answer
from headrace.web.calls import Call, decode
from headrace.web.credentials import Scope

_bodies = msgspec.json.Decoder(dict[str, Any])


async def get(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    return await _search(call, parse_parameters(call.req.query_string))


async def post(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    return await _search(call, decode(_bodies, await call.raw_body(COMMAND_BYTES_MAX)))


async def _search(call: Call, asked: dict[str, Any]) -> Answer:
    engine = call.engine
    live = engine.streams.find(call.name)
    live.last_read_at_ms = engine.clock.now_ms()
    found = await search(engine, live, asked, partial(_parse_mark, live))
    told = {"stream": call.name, **format_found(found, partial(format_position, live.log))}
    headers = [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        *search_headers(told),
    ]
    return Answer(408 if found.timed_out else 200, headers, msgspec.json.encode(told))


def parse_parameters(text: str) -> dict[str, Any]:
    """A search in the query of a URL, as the body of one would have it."""
    asked: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name == "sort":
            asked.setdefault("sort", []).extend(part for part in value.split(",") if part)
        elif name in asked:
            raise Refused(Code.INVALID, f"{name} is given twice")
        elif name in ("size", "timeout_ms") and value.isascii() and value.isdigit():
            asked[name] = int(value[:20])
        elif name == "search_after":
            asked[name] = _parse_json(value)
        else:
            asked[name] = value
    return asked


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused(Code.INVALID, "search_after must be JSON") from None


def _parse_mark(live: Live, value: Any) -> int:
    """The seq of an offset in `search_after`; refuses one that this stream does not have."""
    offset = parse_offset(value) if isinstance(value, str) else None
    if not isinstance(offset, Offset):
        raise Refused(Code.INVALID, "search_after needs an offset of 26 characters")
    return resolve(live, offset)
