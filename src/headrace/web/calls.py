"""One request, whatever the surface: who calls, what for, and the one place where refusals become
replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import falcon
import falcon.asgi
import msgspec

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import ACCEPT_LENGTH_MAX, COMMAND_BYTES_MAX, INLINE_BYTES_MAX, U64_MAX
from headrace.delivery.hub import Hub
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.cost import Cost
from headrace.engine.engine import Engine
from headrace.observe import say
from headrace.storage.disk import passes
from headrace.storage.objects import StoreError
from headrace.storage.vanished import Vanished
from headrace.web.bodies import accepts_gzip, compress, read_body, read_bytes
from headrace.web.credentials import NOBODY, Keyring, Principal
from headrace.web.heads import fields_of
from headrace.web.origin_check import OriginCheck
from headrace.web.protocol import CONNECTION
from headrace.web.protocol import Protocol as Connection
from headrace.web.slots import Slot, Slots

P = ParamSpec("P")
T = TypeVar("T")

GZIP_BYTES_MIN = 1024
GZIP_INLINE_BYTES_MAX = 64 << 10

STATUS = {code: falcon.code_to_http_status(code) for code in range(100, 600)}


class Gate:
    """Lets requests in: knows the keys, the caps, and whether the engine is there yet."""

    def __init__(
        self,
        keyring: Keyring,
        slots: Slots,
        streams: Slots,
        max_body_bytes: int,
        origins: tuple[str, ...] = (),
        origin_check: OriginCheck | None = None,
    ) -> None:
        self.keyring = keyring
        self.slots = slots
        self.streams = streams
        """Connections that are pushed to: streams of events and WebSockets."""
        self.wheel = TimerWheel()
        self.origins = origins
        """Where pages that call us from a browser may come from."""
        self.origin_check = origin_check
        """There while no key is configured: pages need no key then, so they must be ours."""
        self.max_body_bytes = max_body_bytes
        self.progress = 0.0
        self.stopping = False
        self._engine: Engine | None = None
        self._hub: Hub | None = None

    def open(self, engine: Engine) -> None:
        self.progress = 1.0
        self._engine = engine
        self._hub = Hub(engine, self.wheel)

    def check_page(self, req: falcon.asgi.Request) -> None:
        """Refuse a GET that does more than read, if a foreign page asks for it."""
        if self.origin_check is not None:
            self.origin_check.check_page(fields_of(req.scope))

    @property
    def ready(self) -> bool:
        return self._engine is not None and not self.stopping

    @property
    def engine(self) -> Engine:
        """The engine; refuses while it recovers and once it stops."""
        if self.stopping:
            raise Refused(Code.SHUTTING_DOWN, "the server is shutting down")
        if self._engine is None:
            raise Refused(
                Code.NOT_READY,
                "the server is still reading its journal",
                replay_progress=round(self.progress, 4),
            )
        return self._engine

    async def settle_refusal(self, refused: Refused) -> Refused:
        """Wait until what a refusal tells is still true after a crash; returns what to say."""
        return await self.engine.settle_refusal(refused) if self.ready else refused

    @property
    def hub(self) -> Hub:
        """Where logs are followed; there when the engine is."""
        _ = self.engine
        assert self._hub is not None
        return self._hub


class Reply(msgspec.Struct):
    """A JSON object without its closing brace: the performance block is added behind it."""

    parts: list[bytes]
    status: int = 200
    scanned: int | None = None


class RawReply(msgspec.Struct):
    """A reply that is no JSON."""

    body: bytes
    media: str
    headers: dict[str, str]


class Call:
    """One request under way. Whoever is to be known is so before a handler is called."""

    __slots__ = ("_gate", "cost", "name", "principal", "req", "started")

    def __init__(
        self, gate: Gate, req: falcon.asgi.Request, name: str, *, known: bool = True
    ) -> None:
        self._gate = gate
        self.req = req
        self.name = name
        self.started = perf_counter()
        self.cost = Cost()
        self.principal: Principal = NOBODY
        if known:
            self.authenticate()

    def authenticate(self) -> None:
        """Say who calls, or refuse."""
        self.principal = self._gate.keyring.authenticate(self.req.get_header("AUTHORIZATION"))

    def take_slot(self) -> Slot:
        """Count this request for whoever calls; refuses when they have too many."""
        return self._gate.slots.take(self.principal)

    @property
    def engine(self) -> Engine:
        return self._gate.engine

    @property
    def gone(self) -> bool:
        """Whether the caller has hung up: nobody will hear the answer."""
        connection: Connection = self.req.scope[CONNECTION]
        return connection.gone

    @contextmanager
    def unless_gone(self, note: Callable[[], None]) -> Iterator[None]:
        """Meanwhile, call `note` when the caller hangs up."""
        connection: Connection = self.req.scope[CONNECTION]
        connection.on_gone = note
        try:
            yield
        finally:
            connection.on_gone = None

    async def body(self) -> bytes:
        return await read_body(self.req, self._gate.max_body_bytes)

    async def command(self, bytes_max: int = COMMAND_BYTES_MAX) -> bytes:
        """The body of a request that brings no records."""
        return await read_body(self.req, min(bytes_max, self._gate.max_body_bytes))

    async def raw_body(self, bytes_max: int) -> bytes:
        """The body, whatever it is."""
        return await read_bytes(self.req, bytes_max)

    async def parse(
        self, parse: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **kw: P.kwargs
    ) -> T:
        """What a body says: found on the loop if it is small, else in the pool."""
        if len(body) <= INLINE_BYTES_MAX:
            return parse(body, *args, **kw)
        return await self.engine.pool.run(parse, body, *args, **kw)

    def performance(self, scanned: int | None) -> bytes:
        """Where the time went, as the last member of the reply."""
        rest = "" if scanned is None else f',"records_scanned":{scanned}'
        return b',"performance":{%b%b}}' % (format_times(self.started, self.cost), rest.encode())


def format_times(started: float, cost: Cost) -> bytes:
    """Where the time went, as members of a JSON object."""
    total_ms = (perf_counter() - started) * 1e3
    return (
        f'"server_total_ms":{total_ms:.3f},"wal_append_ms":{cost.append_ms:.3f},'
        f'"fsync_ms":{cost.sync_ms:.3f},"throttle_wait_ms":{cost.throttle_ms:.3f}'
    ).encode()


class Refusals(Protocol):
    """How a surface says no."""

    def __call__(self, refused: Refused) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body of a refusal."""


Handler = Callable[[Call], Awaitable[Reply | RawReply]]


class Endpoint:
    """A Falcon resource made of handlers, one for each method."""

    def __init__(self, gate: Gate, refusals: Refusals, **handlers: Handler) -> None:
        self.responders = {
            method: _responder(gate, refusals, handler) for method, handler in handlers.items()
        }
        for method, responder in self.responders.items():
            setattr(self, f"on_{method}", responder)


def _responder(gate: Gate, refusals: Refusals, handler: Handler) -> Callable[..., Awaitable[None]]:
    async def respond(req: falcon.asgi.Request, resp: falcon.asgi.Response, name: str = "") -> None:
        started = perf_counter()
        try:
            call = Call(gate, req, name)
            with gate.slots.take(call.principal):
                reply = await handler(call)
        except Refused as refused:
            refuse(refusals, await gate.settle_refusal(refused), resp, started)
            return
        if isinstance(reply, RawReply):
            resp.status, resp.content_type, resp.data = STATUS[200], reply.media, reply.body
            for header, value in reply.headers.items():
                resp.set_header(header, value)
            return
        reply.parts.append(call.performance(reply.scanned))
        body = b"".join(reply.parts)
        resp.status = STATUS[reply.status]
        resp.content_type = falcon.MEDIA_JSON
        if len(body) >= GZIP_BYTES_MIN and accepts_gzip(req.get_header("ACCEPT-ENCODING")):
            body = await _pack(body)
            resp.set_header("content-encoding", "gzip")
            resp.append_header("vary", "accept-encoding")
        resp.data = body

    return respond


async def _pack(body: bytes) -> bytes:
    if len(body) <= GZIP_INLINE_BYTES_MAX:
        return compress(body)
    return await asyncio.get_running_loop().run_in_executor(None, compress, body)


def refuse(
    refusals: Refusals, refused: Refused, resp: falcon.asgi.Response, started: float
) -> None:
    """Turn a refusal into the surface's reply."""
    status, headers, body = refusals(refused)
    body["performance"] = {"server_total_ms": round((perf_counter() - started) * 1e3, 3)}
    resp.status = STATUS[status]
    resp.content_type = falcon.MEDIA_JSON
    for name, value in headers.items():
        resp.set_header(name, value)
    resp.data = msgspec.json.encode(body)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The body as a wire type; says what is wrong and where."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        field = where.rstrip("`").lstrip(".")
        detail = {"field": field} if field else {}
        raise Refused(
            Code.INVALID, f"{problem}{f' at {field}' if field else ''}", **detail
        ) from None
    except RecursionError:
        raise Refused(Code.INVALID, "the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(Code.INVALID, f"the body is not JSON: {error}") from None


def prefers(req: falcon.asgi.Request, *media: str) -> str | None:
    """Which of these the client likes best. Falcon keeps what it parsed, so what is long is not."""
    return req.client_prefers(media) if len(req.accept) <= ACCEPT_LENGTH_MAX else None


def parse_bool(req: falcon.asgi.Request, name: str, default: bool) -> bool:
    text = req.get_param(name)
    if text is None:
        return default
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise Refused(Code.INVALID, f"{name} is true or false", field=name)


def parse_whole(req: falcon.asgi.Request, name: str, default: int, most: int) -> int:
    """A query parameter from 1 up; more than `most` counts as `most`."""
    text = req.get_param(name)
    if text is None:
        return default
    number = parse_digits(text, U64_MAX)
    if not number:
        raise Refused(Code.INVALID, f"{name} is a whole number from 1 on", field=name)
    return min(number, most)


def failure(error: Exception, **about: Any) -> Refused:
    """What to answer when something failed that nobody refused; tells the log."""
    if isinstance(error, Vanished):
        say("error", "records are lost", problem=str(error), **about)
        return Refused(Code.NOT_READY, f"some of these records cannot be read: {error}")
    if isinstance(error, StoreError):
        say("error", "the object store failed", problem=str(error), **about)
        return Refused(Code.NOT_READY, "the object store with these records cannot be reached")
    if isinstance(error, OSError) and passes(error):
        say("error", "a request found no room or no descriptor", problem=str(error), **about)
        return Refused(Code.STORAGE_UNAVAILABLE, "the server is out of room or of descriptors")
    say("error", "a request failed", trace=error, **about)
    return Refused(Code.INTERNAL, "internal error")


def install_errors(app: falcon.asgi.App[Any, Any], refusals: Refusals) -> None:
    """What Falcon itself refuses, and bugs, get the same envelope."""

    async def on_http_error(
        req: falcon.asgi.Request, resp: falcon.asgi.Response, error: Exception, params: object
    ) -> None:
        assert isinstance(error, falcon.HTTPError)
        started = perf_counter()
        if isinstance(error, falcon.HTTPNotFound):
            refused = Refused(Code.NOT_FOUND, f"there is nothing at {req.path}; see /docs")
        elif isinstance(error, falcon.HTTPMethodNotAllowed):
            refused = Refused(Code.METHOD_NOT_ALLOWED, f"{req.method} does not go with {req.path}")
            resp.set_header("allow", dict(error.headers or ()).get("Allow", ""))
        else:
            refused = Refused(Code.INVALID, error.description or error.title or "bad request")
        refuse(refusals, refused, resp, started)

    async def on_bug(
        req: falcon.asgi.Request, resp: falcon.asgi.Response, error: Exception, params: object
    ) -> None:
        refuse(refusals, failure(error, method=req.method, path=req.path), resp, perf_counter())

    app.add_error_handler(Exception, on_bug)
    app.add_error_handler(falcon.HTTPError, on_http_error)
