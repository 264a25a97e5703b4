"""The one way from a request to its answer, on every surface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec

from headrace.core.bounded_cache import BoundedCache
from headrace.core.errors import TELLING, Code, Refused
from headrace.core.limits import PATH_KNOWN_BYTES_MAX, PATHS_KNOWN_MAX
from headrace.engine.flow.shared_timeout import SharedTimeout
from headrace.observe import log_line
from headrace.storage.disk import passes
from headrace.storage.objects import StoreError
from headrace.storage.replaced_objects import Vanished
from headrace.web.answers import JSON, JSON_LINE, Answer, Handover, Reply
from headrace.web.bodies import accepts_gzip, compress
from headrace.web.calls import Call, Gate, by_nothing
from headrace.web.concurrency import Slots
from headrace.web.cors import preflight, shared_headers
from headrace.web.credential_store import unknown_key
from headrace.web.credentials import NOBODY, Principal
from headrace.web.request import Request
from headrace.web.request_task import RequestTask
from headrace.web.routing import Match, RouteTable
from headrace.web.surface import Route, Surface

GZIP_BYTES_MIN = 1024
GZIP_INLINE_BYTES_MAX = 64 << 10


Send = Callable[[Request, Answer | Handover | None], None]
"""Takes the answer to a request; nothing when nobody is to answer any more."""


class Resource(msgspec.Struct):
    """What is at one path: its routes by method."""

    surface: Surface
    path: str
    routes: dict[str, Route]
    allow: str
    cors: bool = True
    """Whether pages of other origins may be allowed to call it."""


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
            resource.cors = all(route.cors for route in resource.routes.values())
        self._router = RouteTable(resources.items())
        self._found: BoundedCache[bytes, Match[Resource]] = BoundedCache(PATHS_KNOWN_MAX)

    def __call__(self, request: Request, send: Send) -> RequestTask | None:
        """Have a request answered; returns who is at it, if that takes longer than this call."""
        gate, method = self._gate, request.method
        found = self._found.get(request.raw_path) or self._find(request)
        resource = None if found is None else found.found
        surface = self._surface_of(request) if resource is None else resource.surface
        call = Call(gate, surface.refuse, request, perf_counter())
        task = _Responding(request.connection.loop, gate, surface, resource, call, send)
        try:
            if gate.origin_check is not None:
                gate.origin_check.check(method, request.headers)
            route = None if resource is None else resource.routes.get(method)
            if route is None:
                task.reply(self._answer_unrouted(resource, request))
                return None
            assert found is not None
            _, call.names, values = found
            if values:
                if b"%" in request.raw_path:
                    values = tuple(map(unquote, values))
                call.values, call.name = values, values[0]
            principal = (route.authenticate or surface.authenticate)(gate, request)
            limit = None
            if surface.shared_timeout is not None:
                limit = surface.shared_timeout(request, route)
            if isinstance(principal, Principal):
                task.admit(principal, route)
                handling = route.handler(call)
            else:
                handling = task.identify(principal, route)
            if limit is not None:
                handling = _limited(limit, gate, handling)
        except Exception as error:  # noqa: BLE001  (a bug, or a disk: answered like a refusal)
            task.refuse_at_once(error)
            return None
        task.run(handling)
        return None if task.done() else task

    def _find(self, request: Request) -> Match[Resource] | None:
        """What a path leads to; short ones that lead somewhere are remembered."""
        path = request.raw_path
        found = self._router.find(request.segments)
        if found is not None and len(path) <= PATH_KNOWN_BYTES_MAX:
            self._found.keep(path, found)
        return found

    def _surface_of(self, request: Request) -> Surface:
        path = request.path
        for surface in self._surfaces:
            if path.startswith(surface.prefixes):
                return surface
        return self._surfaces[0]

    def _answer_unrouted(self, resource: Resource | None, request: Request) -> Answer:
        """The answer to a method that no route takes, or to a path that leads nowhere."""
        method = request.method
        if method == "OPTIONS":
            is_shared = bool(self._gate.origins) and (resource is None or resource.cors)
            if is_shared and "access-control-request-method" in request:
                asked = request.get_header("access-control-request-headers") or "*"
                return Answer(204, preflight(asked))
            if resource is not None:
                return resource.surface.options(request, resource.allow)
        if resource is None:
            raise Refused(Code.NOT_FOUND, f"there is nothing at {request.path}; see /docs")
        message = f"{method} does not go with {request.path}"
        raise Refused(Code.METHOD_NOT_ALLOWED, message, allow=resource.allow)


class _Responding(RequestTask):
    """Answers one request: runs its handler, and makes an answer of what that ends with."""

    _slots: Slots | None = None
    _is_final = False
    """Whether the handler has ended, and what comes now is the answer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gate: Gate,
        surface: Surface,
        resource: Resource | None,
        call: Call,
        send: Send,
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._surface = surface
        self._resource = resource
        self._call = call
        self._send = send

    def admit(self, principal: Principal, route: Route) -> None:
        """It is known who asks: take a slot for as long as the handler runs, or refuse."""
        self._call.principal = principal
        if route.authenticate is not by_nothing:
            slots = self._gate.streams if route.lives_long else self._gate.slots
            slots.enter(principal)
            self._slots = slots

    async def identify(
        self, asking: Awaitable[Principal], route: Route
    ) -> Answer | Reply | Handover:
        """What the handler answers, once another server has said who asks."""
        self.admit(await asking, route)
        return await route.handler(self._call)

    def ended(self, result: Answer | Reply | Handover, error: BaseException | None) -> None:
        self._leave()
        try:
            if error is not None:
                self._fail(error)
                return
            if type(result) is Reply:
                finish = self._surface.finish
                assert finish is not None
                result = finish(self._call, result)
            if type(result) is Answer and b"accept-encoding" not in self._call.req.headers:
                self.reply(result)
            else:
                self._deliver(result)  # type: ignore[arg-type]
        except Exception as problem:  # noqa: BLE001
            self.refuse_at_once(problem)

    def _leave(self) -> None:
        if self._slots is not None:
            self._slots.leave(self._call.principal)
            self._slots = None

    def refuse_at_once(self, error: Exception) -> None:
        """Say that this went wrong; where that goes wrong, too, the connection ends."""
        self._leave()
        try:
            self.reply(self.refuse(error))
        except Exception as problem:  # noqa: BLE001  (a bug; without a word the peer would wait)
            failure(problem, self._call.req)
            self._send(self._call.req, None)

    def _deliver(self, answer: Answer | Handover) -> None:
        request = self._call.req
        if isinstance(answer, Handover):
            self._count_in(answer)
        elif self._surface.compresses and not self._is_final and _wants_gzip(request, answer):
            if len(answer.body) > GZIP_INLINE_BYTES_MAX:
                self._is_final = True
                self.run(_pack_beside(answer))
                return
            _pack(answer, compress(answer.body))  # type: ignore[arg-type]
        self.reply(answer)

    def _fail(self, error: BaseException) -> None:
        """The handler raised this: say so, once what a refusal tells of is there to stay."""
        if isinstance(error, asyncio.CancelledError):
            self._send(self._call.req, None)
        elif isinstance(error, Refused) and error.code in TELLING and not self._is_final:
            self._is_final = True
            self.run(_settled(self._gate, error))
        else:
            self.reply(self.refuse(error))

    def refuse(self, error: BaseException) -> Answer:
        """How the surface says no, or that something failed."""
        if not isinstance(error, Refused):
            error = failure(error, self._call.req)
        answer = self._call.refuse(error)
        if (allow := error.detail.get("allow")) is not None:
            answer.headers.append(("allow", allow))
        return answer

    def reply(self, answer: Answer | Handover) -> None:
        """Send an answer, with the headers that all have."""
        request, surface, origins = self._call.req, self._surface, self._gate.origins
        resource = self._resource
        if surface.observe is not None:
            path = None if resource is None else resource.path
            surface.observe(request, path, answer.status)
        if surface.headers:
            answer.headers += surface.headers
        if origins and (resource is None or resource.cors):
            answer.headers += shared_headers(request.get_header("origin"), origins)
        self._send(request, answer)

    def _count_in(self, given: Handover) -> None:
        """Count a connection that is about to be handed over, and note whose it is."""
        gate, principal = self._gate, self._call.principal
        ends_at_ms = principal.expires_at_ms
        # It may have taken a while to come here, and nobody was told to end this one.
        if principal is not NOBODY and gate.credentials.is_gone(principal.id):
            raise unknown_key()
        slot = gate.streams.take(principal)
        given.on_end = gate.live.join(principal.id, given.sink, slot.free)
        if ends_at_ms:
            given.sink.end_within((ends_at_ms - gate.engine.clock.now_ms()) / 1000)


async def _limited(limit: SharedTimeout, gate: Gate, handling: Coroutine[Any, Any, Any]) -> Any:
    """What a handler answers, or a refusal that is there to stay, unless that takes too long."""
    with limit.limit():
        try:
            return await handling
        except Refused as refused:
            await _settled(gate, refused)


async def _settled(gate: Gate, refused: Refused) -> NoReturn:
    raise await gate.settle_refusal(refused) from None


def _wants_gzip(request: Request, answer: Answer) -> bool:
    """Whether the client takes packed answers and this one is worth it; it is in one piece then."""
    is_json = answer.lines.startswith(JSON_LINE) or ("content-type", JSON) in answer.headers
    if not is_json:
        return False
    body = answer.body
    if not isinstance(body, bytes):
        body = answer.body = b"".join(body)
    return len(body) >= GZIP_BYTES_MIN and accepts_gzip(request.get_header("accept-encoding"))


async def _pack_beside(answer: Answer) -> Answer:
    loop = asyncio.get_running_loop()
    _pack(answer, await loop.run_in_executor(None, compress, answer.body))  # type: ignore[arg-type]
    return answer


def _pack(answer: Answer, packed: bytes) -> None:
    answer.body = packed
    answer.headers += [("content-encoding", "gzip"), ("vary", "accept-encoding")]


def failure(error: BaseException, request: Request) -> Refused:
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
