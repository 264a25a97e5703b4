"""A shorter way for the few routes that carry nearly all traffic: past Falcon, same handlers.

Falcon's request, response and routing cost 8 of the 60 µs of a small append (docs/PERFORMANCE.md).
What a handler asks of a request is little, and the classes below answer just that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from time import perf_counter
from typing import Any, cast

import falcon
import falcon.asgi
import msgspec
from falcon.uri import parse_query_string

from headrace.core.errors import Refused
from headrace.web.answers import NO_BODY
from headrace.web.bodies import cut_short
from headrace.web.calls import STATUS, Refusals, failure, refuse
from headrace.web.heads import fields_of
from headrace.web.origin_check import OriginCheck

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Respond = Callable[..., Awaitable[None]]

_BODY = "http.request"
"""The event that brings a body, or a piece of it; any other one means that the client is gone."""


@cache
def _field(name: str) -> bytes:
    """The name of a header as ASGI has it; there are a few dozen."""
    return name.lower().encode()


class DirectRequest:
    """What handlers ask of Falcon's request."""

    __slots__ = ("_headers", "_params", "_receive", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, headers: dict[bytes, bytes] | None = None
    ) -> None:
        self.scope = scope
        self._receive = receive
        self._headers: dict[bytes, bytes] = fields_of(scope) if headers is None else headers
        self._params: dict[str, Any] | None = None

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    def get_header(self, name: str) -> str | None:
        value = self._headers.get(_field(name))
        return None if value is None else value.decode("latin-1")

    @property
    def content_type(self) -> str | None:
        return self.get_header("content-type")

    @property
    def content_length(self) -> int | None:
        length = self._headers.get(b"content-length")
        return None if length is None else int(length)  # the HTTP parser let only digits through

    @property
    def query_string(self) -> str:
        return str(self.scope["query_string"].decode("latin-1"))

    def get_param(self, name: str) -> str | None:
        if self._params is None:
            self._params = parse_query_string(self.query_string)
        value = self._params.get(name)
        return value[-1] if isinstance(value, list) else value

    @property
    def stream(self) -> DirectRequest:
        return self

    async def read(self, size_max: int) -> bytes:
        """The body, or as much of it as it takes to see that it is longer than `size_max`."""
        event = await self._receive()
        body: bytes = event.get("body", b"")
        more = event.get("more_body", False)
        if not more and event["type"] == _BODY:
            return body
        chunks, size = [body], len(body)
        while more and size < size_max:
            event = await self._receive()
            more = event.get("more_body", False)
            chunks.append(event.get("body", b""))
            size += len(chunks[-1])
        if event["type"] != _BODY:
            raise cut_short()  # the client hung up: half a body is none
        return b"".join(chunks)


class DirectResponse:
    """What handlers ask of Falcon's response."""

    __slots__ = ("content_type", "data", "headers", "status")

    takes_pieces = True
    """A body may come as a list of bytes."""

    def __init__(self) -> None:
        self.status = ""
        self.content_type: str | None = ""
        self.data: bytes | list[bytes] = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def set_header(self, name: str, value: str) -> None:
        self.headers.append((_field(name), value.encode("latin-1")))

    append_header = set_header


class Direct:
    """Requests below a few paths go straight to their handlers; others to the application.

    Below `prefix` these are the POST requests of `routes`, by what follows a name; below the paths
    of `mounts`, everything. Whatever way a request takes, it is checked first.
    """

    def __init__(
        self,
        app: falcon.asgi.App[Any, Any],
        prefix: str,
        routes: Mapping[str, Respond],
        refusals: Refusals,
        mounts: Mapping[str, Respond] | None = None,
        origin_check: OriginCheck | None = None,
    ) -> None:
        self._app = app
        self._prefix = prefix
        self._routes = routes
        self._refusals = refusals
        self._mounts = tuple((mounts or {}).items())
        self._origin_check = origin_check

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = fields_of(scope)
            if self._origin_check is not None:
                try:
                    self._origin_check.check(scope["method"], headers)
                except Refused as refused:
                    await self._send(self._refuse(refused), send)
                    return
            path: str = scope["path"]
            for mount, answer in self._mounts:
                if path.startswith(mount):
                    await self._answer(answer, "", DirectRequest(scope, receive, headers), send)
                    return
            if scope["method"] == "POST" and path.startswith(self._prefix):
                name, slash, action = path[len(self._prefix) :].partition("/")
                respond = self._routes.get(slash + action)
                if respond is not None:
                    await self._answer(respond, name, DirectRequest(scope, receive, headers), send)
                    return
        await self._app(scope, receive, send)

    async def _answer(self, respond: Respond, name: str, req: DirectRequest, send: Send) -> None:
        resp = DirectResponse()
        try:
            await respond(req, resp, name)
        except Exception as error:  # noqa: BLE001  (a bug: answered here as Falcon would there)
            refuse(self._refusals, failure(error, name=name), cast(Any, resp), perf_counter())
        await self._send(resp, send)

    def _refuse(self, refused: Refused) -> DirectResponse:
        """What every surface would say."""
        status, _, body = self._refusals(refused)
        resp = DirectResponse()
        resp.status, resp.content_type = STATUS[status], falcon.MEDIA_JSON
        resp.set_header("cache-control", "no-store")
        resp.data = msgspec.json.encode(body)
        return resp

    async def _send(self, resp: DirectResponse, send: Send) -> None:
        status = int(resp.status[:3])
        headers = resp.headers
        if resp.content_type is not None:
            headers.append((b"content-type", resp.content_type.encode()))
        *pieces, last = resp.data if isinstance(resp.data, list) else (resp.data,)
        if status not in NO_BODY:
            headers.append((b"content-length", b"%d" % (sum(map(len, pieces)) + len(last))))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": last})
