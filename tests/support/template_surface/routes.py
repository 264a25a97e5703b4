"""The surface of diaries: write a line, follow the lines."""

from __future__ import annotations

import msgspec

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.web.answers import Answer, Handover, json_answer
from headrace.web.calls import Call, decode
from headrace.web.credentials import Scope
from headrace.web.event_streams import EVENT_STREAM, check_accepts, open_events
from headrace.web.surface import Described, Route, Surface

from . import wire
from .errors import REFUSALS, refuse
from .events import DiarySink
from .names import OWNER, parse_diary

_write = msgspec.json.Decoder(wire.WriteRequest)


async def write(call: Call) -> Answer:
    state_journal = parse_diary(call.name)
    call.principal.require(Scope.WRITE, state_journal)
    request = decode(_write, await call.command())
    drafts = draft([msgspec.json.encode(request.text)])
    done = await call.engine.appender.append(state_journal, drafts, owner=OWNER, create=LogConfig())
    return json_answer(msgspec.json.encode(wire.WriteReply(done.last)), 201)


async def follow(call: Call) -> Handover:
    check_accepts(call)
    state_journal = parse_diary(call.name)
    call.principal.require(Scope.READ, state_journal)
    return open_events(call, DiarySink(call.hub, call.engine.live(state_journal)))


def surface() -> Surface:
    lines = "/diaries/{name}/lines"
    return Surface(
        name="diaries",
        title="Diaries",
        prefixes=("/diaries/",),
        routes=[
            Route(
                "POST", lines, write, "Write a line", {201: Described(wire.WriteReply, "")},
                request=wire.WriteRequest, scope=Scope.WRITE,
            ),
            Route(
                "GET", lines, follow, "Follow the lines",
                {200: Described(str, "Events", EVENT_STREAM)}, scope=Scope.READ,
            ),
        ],
        refusals=REFUSALS,
        refuse=refuse,
    )  # fmt: skip
