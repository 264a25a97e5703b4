"""Requests without connections: what a responder answers to one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from headrace.engine.engine import Engine
from headrace.surfaces.topics.errors import refuse
from headrace.web.answers import Answer, Handover
from headrace.web.calls import Call, Gate
from headrace.web.concurrency import Slots
from headrace.web.connection import Respond
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import LOCAL, Principal
from headrace.web.request import Request


class Reply(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class NoConnection:
    """The connection of a request that is all there."""

    gone = False
    on_gone = None

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop() if asyncio._get_running_loop() else None


def make_request(method: str, target: str, body: bytes = b"", **fields: str) -> Request:
    """A request that is all there."""
    headers = {name.replace("_", "-").encode(): value.encode() for name, value in fields.items()}
    headers[b"content-length"] = b"%d" % len(body)
    request = Request(NoConnection(), method, target.encode(), headers)  # type: ignore[arg-type]
    if body:
        request.add(body)
    request.end()
    return request


def make_gate(engine: Engine) -> Gate:
    """A gate without keys, open to this engine."""
    gate = Gate(CredentialStore(), Slots(), Slots(), 1 << 20)
    gate.open(engine)
    return gate


def make_call(gate: Gate, request: Request, principal: Principal = LOCAL, **params: str) -> Call:
    """A call as its handler gets it."""
    call = Call(gate, refuse, request, 0.0)
    call.names, call.values = tuple(params), tuple(params.values())
    call.name = call.values[0] if params else ""
    call.principal = principal
    return call


async def ask(
    respond: Respond, method: str, target: str, body: bytes = b"", **fields: str
) -> Reply:
    loop, request = asyncio.get_running_loop(), make_request(method, target, body, **fields)
    answered: asyncio.Future[Answer | Handover | None] = loop.create_future()
    # A connection has it answered outside of all tasks.
    loop.call_soon(respond, request, lambda _, answer: answered.set_result(answer))
    answer = await answered
    assert isinstance(answer, Answer)
    said = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    lines = dict(line.split(": ", 1) for line in answer.lines.splitlines())
    headers = {**lines, **dict(answer.headers), "x-request-id": request.id}  # as a connection adds
    return Reply(answer.status, headers, said)
