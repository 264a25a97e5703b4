"""Requests without connections: what a responder answers to one."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from headrace.web.answers import Answer
from headrace.web.connection import Respond
from headrace.web.request import Request


class Reply(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def make_request(method: str, target: str, body: bytes = b"", **fields: str) -> Request:
    """A request that is all there."""
    headers = {name.replace("_", "-").encode(): value.encode() for name, value in fields.items()}
    headers[b"content-length"] = b"%d" % len(body)
    request = Request(None, method, target.encode(), headers)  # type: ignore[arg-type]
    if body:
        request.add(body)
    request.end()
    return request


async def ask(
    respond: Respond, method: str, target: str, body: bytes = b"", **fields: str
) -> Reply:
    answer = await respond(make_request(method, target, body, **fields))
    assert isinstance(answer, Answer)
    said = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    return Reply(answer.status, dict(answer.headers), said)
