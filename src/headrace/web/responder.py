"""The one way from a request to its answer, on every surface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import PATH_KNOWN_BYTES_MAX, PATHS_KNOWN_MAX
from headrace.observe import log_line
from headrace.storage.disk import passes
from headrace.storage.objects import StoreError
from headrace.storage.replaced_objects import Vanished
from headrace.web.answers import JSON, Answer, Handover, Reply
from headrace.web.bodies import accepts_gzip, compress
from headrace.web.calls import Call, Gate
from headrace.web.cors import preflight, shared_headers
from headrace.web.credential_store import unknown_key
from headrace.web.credentials import NOBODY, Principal
from headrace.web.request import Request
from headrace.web.routing import Match, RouteTable
from headrace.web.surface import Route, Surface

GZIP_BYTES_MIN = 1024
GZIP_INLINE_BYTES_MAX = 64 << 10


class Resource(msgspec.Struct):
    """What is at one path: its routes by method."""

    surface: Surface
    path: str
    routes: dict[str, Route]
    allow: str


class Responder:
    """Answers requests of all surfaces. The first one speaks for paths that are nobody's."""

    def __init__(self, gate: Gate, surfaces: Sequence[Surface]) -> None:
        self._gate = gate
        self._surfaces = surfaces
        resources: dict[str, Resource] = {}
        for surface in surfaces:
            for route in surface.routes:
                resource = resources.setdefault(route.path, Resource(surface, route.path, {}, ""))
                for method in (route.method, "HEAD") if route.head else (route.method,):
                    assert method not in resource.routes, f"{method} {route.path} is there twice"
                    resource.routes[method] = route
        for resource in resources.values():
            resource.allow = ", ".join((*resource.routes, "OPTIONS"))
        self._router = RouteTable(resources.items())
        self._found: dict[bytes, Match[Resource]] = {}

    async def __call__(self, request: Request) -> Answer | Handover:
        started = perf_counter()
        found = self._found.get(request.raw_path) or self._find(request)
        surface = self._surface_of(request) if found is None else found.found.surface
        answer: Answer | Handover
        try:
            begun = self._begin(surface, found, request, started)
            if isinstance(begun, Answer):
                answer = begun
            else:
                call, route = begun
                shared_timeout = (
                    None
                    if surface.shared_timeout is None
                    else surface.shared_timeout(request, route)
                )
                if shared_timeout is None:
                    answer = await self._handle(surface, route, call)
                else:
                    with shared_timeout.limit():
                        answer = await self._handle(surface, route, call)
        except Refused as refused:
            answer = surface.refuse(refused, request, started)
            if (allow := refused.detail.get("allow")) is not None:
                answer.headers.append(("allow", allow))
        except Exception as error:  # noqa: BLE001  (a bug, or a disk: answered like a refusal)
            answer = surface.refuse(failure(error, request), request, started)
        if surface.observe is not None:
            surface.observe(request, None if found is None else found.found.path, answer.status)
        headers = answer.headers
        headers += surface.headers
        headers.append(("x-request-id", request.id))
        if self._gate.origins:
            headers += shared_headers(request.get_header("origin"), self._gate.origins)
        return answer

    def _find(self, request: Request) -> Match[Resource] | None:
        """What a path leads to; short ones that lead somewhere are remembered."""
        path = request.raw_path
        found = self._router.find(request.segments)
        if found is not None and len(path) <= PATH_KNOWN_BYTES_MAX:
            if len(self._found) >= PATHS_KNOWN_MAX:
                self._found.clear()
            self._found[path] = found
        return found

    def _surface_of(self, request: Request) -> Surface:
        path = request.path
        for surface in self._surfaces:
            if path.startswith(surface.prefixes):
                return surface
        return self._surfaces[0]

    def _begin(
        self, surface: Surface, found: Match[Resource] | None, request: Request, started: float
    ) -> tuple[Call, Route] | Answer:
        """Who is to answer; or the answer, where nobody needs to."""
        gate, method = self._gate, request.method
        if gate.origin_check is not None:
            gate.origin_check.check(method, request.headers)
        if method == "OPTIONS" and gate.origins and "access-control-request-method" in request:
            asked = request.get_header("access-control-request-headers") or "*"
            return Answer(204, preflight(asked))
        if found is None:
            raise Refused(Code.NOT_FOUND, f"there is nothing at {request.path}; see /docs")
        resource, names, values = found
        route = resource.routes.get(method)
        if route is not None:
            if b"%" in request.raw_path:
                values = tuple(map(unquote, values))
            return Call(gate, surface.refuse, request, names, values, started), route
        if method == "OPTIONS":
            return surface.options(request, resource.allow)
        message = f"{method} does not go with {request.path}"
        raise Refused(Code.METHOD_NOT_ALLOWED, message, allow=resource.allow)

    async def _handle(self, surface: Surface, route: Route, call: Call) -> Answer | Handover:
        gate = self._gate
        try:
            principal = (route.authenticate or surface.authenticate)(gate, call.req)
            if not isinstance(principal, Principal):
                principal = await principal
            call.principal = principal
            if principal is NOBODY:
                result = await route.handler(call)
            else:
                slots = gate.streams if route.lives_long else gate.slots
                slots.enter(principal)
                try:
                    result = await route.handler(call)
                finally:
                    slots.leave(principal)
        except Refused as refused:
            raise await gate.settle_refusal(refused) from None
        if isinstance(result, Reply):
            assert surface.finish is not None
            result = surface.finish(call, result)
        if isinstance(result, Handover):
            self._admit(call.principal, result)
        elif surface.compresses and b"accept-encoding" in call.req.headers:
            await _pack(result, call.req)
        return result

    def _admit(self, principal: Principal, given: Handover) -> None:
        """Count a connection that is about to be handed over, and note whose it is."""
        gate, ends_at_ms = self._gate, principal.expires_at_ms
        # It may have taken a while to come here, and nobody was told to end this one.
        if principal is not NOBODY and gate.credentials.is_gone(principal.id):
            raise unknown_key()
        slot = gate.streams.take(principal)
        given.on_end = gate.live.join(principal.id, given.sink, slot.free)
        if ends_at_ms:
            given.sink.end_within((ends_at_ms - gate.engine.clock.now_ms()) / 1000)


async def _pack(answer: Answer, request: Request) -> None:
    """Compress an answer if it is worth it and the client takes that."""
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    answer.body = body
    if len(body) < GZIP_BYTES_MIN or not accepts_gzip(request.get_header("accept-encoding")):
        return
    if ("content-type", JSON) in answer.headers:
        if len(body) <= GZIP_INLINE_BYTES_MAX:
            answer.body = compress(body)
        else:
            loop = asyncio.get_running_loop()
            answer.body = await loop.run_in_executor(None, compress, body)
        answer.headers += [("content-encoding", "gzip"), ("vary", "accept-encoding")]


def failure(error: Exception, request: Request) -> Refused:
    """What to answer when something failed that nobody refused; tells the log."""
    about: dict[str, Any] = {
        "method": request.method, "path": request.path, "request_id": request.id
    }  # fmt: skip
    if isinstance(error, Vanished):
        log_line("error", "records are lost", problem=str(error), **about)
        return Refused(Code.NOT_READY, f"some of these records cannot be read: {error}")
    if isinstance(error, StoreError):
        log_line("error", "the object store failed", problem=str(error), **about)
        return Refused(Code.NOT_READY, "the object store with these records cannot be reached")
    if isinstance(error, OSError) and passes(error):
        log_line("error", "a request found no room or no descriptor", problem=str(error), **about)
        return Refused(Code.STORAGE_UNAVAILABLE, "the server is out of room or of descriptors")
    log_line("error", "a request failed", trace=error, **about)
    return Refused(Code.INTERNAL, "internal error")
