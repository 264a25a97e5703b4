"""One request, whatever the surface: who calls, what for, and what it brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from headrace.core.cursor import parse_cursor
from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    COMMAND_BYTES_MAX,
    INLINE_BYTES_MAX,
    LIST_PAGE_DEFAULT,
    LIST_PAGE_MAX,
    U64_MAX,
)
from headrace.delivery.endings import Ending
from headrace.delivery.hub import Hub
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.engine import Engine
from headrace.engine.timings import Timings
from headrace.web.answers import Answer
from headrace.web.bodies import plain_body, read_body, read_bytes
from headrace.web.concurrency import Slots
from headrace.web.credential_store import CredentialStore, unknown_key
from headrace.web.credentials import LOCAL, NOBODY, Principal
from headrace.web.live_connections import LiveConnections
from headrace.web.origin_check import OriginCheck
from headrace.web.request import Request

P = ParamSpec("P")
T = TypeVar("T")

_API_KEY = "apikey "


class Gate:
    """Lets requests in: knows the credentials, the caps, and whether the engine is there yet."""

    def __init__(
        self,
        credentials: CredentialStore,
        slots: Slots,
        streams: Slots,
        max_body_bytes: int,
        origins: tuple[str, ...] = (),
        origin_check: OriginCheck | None = None,
    ) -> None:
        self.credentials = credentials
        self.slots = slots
        self.streams = streams
        """Connections that are pushed to: streams of events and WebSockets."""
        self.live = LiveConnections()
        self.wheel = TimerWheel()
        self.origins = origins
        """Where pages that call us from a browser may come from."""
        self.origin_check = origin_check
        """There in development mode: pages need no key then, so they must be ours."""
        self.max_body_bytes = max_body_bytes
        self.progress = 0.0
        self.stopping = False
        self._engine: Engine | None = None
        self._hub: Hub | None = None

    def open(self, engine: Engine) -> None:
        self.progress = 1.0
        self._engine = engine
        self._hub = Hub(engine, self.wheel)
        self.credentials.open(engine.tokens)
        engine.tokens.observe_revoked(self.live.end)

    def check_page(self, req: Request) -> None:
        """Refuse a GET that does more than read, if a foreign page asks for it."""
        if self.origin_check is not None:
            self.origin_check.check_page(req.headers)

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


Refuse = Callable[[Refused, Request, float], Answer]
"""The answer to what is refused of a request; with the time at which that came."""


class Call:
    """One request under way. Whoever is to be known is so before a handler is called."""

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The segments of the path that its template names."""
    name = ""
    """The first of them."""
    principal: Principal = NOBODY
    _revoked = False
    _note_end: Callable[[], None]

    def __init__(
        self,
        gate: Gate,
        refuse: Refuse,
        req: Request,
        started: float,
    ) -> None:
        self.gate = gate
        self._refuse = refuse
        self.req = req
        self.started = started
        self.timings = Timings()

    def param(self, name: str) -> str:
        """A segment of the path, by its place."""
        return self.values[self.names.index(name)]

    def refuse(self, refused: Refused) -> Answer:
        """How the surface says no to this."""
        return self._refuse(refused, self.req, self.started)

    @property
    def hub(self) -> Hub:
        return self.gate.hub

    @property
    def engine(self) -> Engine:
        return self.gate.engine

    @property
    def gone(self) -> bool:
        """Whether the caller has hung up, or may be told nothing more: nobody is to wait for it."""
        return self._revoked or self.req.connection.gone

    @contextmanager
    def unless_gone(self, note: Callable[[], None]) -> Iterator[None]:
        """Meanwhile, call `note` when the caller hangs up, or its credential is revoked: then this
        refuses.
        """
        gate, principal, connection = self.gate, self.principal, self.req.connection
        # It may have taken a while to come here.
        if principal is not NOBODY and gate.credentials.is_gone(principal.id):
            raise unknown_key()
        self._note_end = connection.on_gone = note
        leave = gate.live.join(principal.id, self, _nothing)
        try:
            yield
        finally:
            connection.on_gone = None
            leave()
        if self._revoked:
            raise unknown_key()

    def end(self, ending: Ending) -> None:
        """The credential is revoked while the caller waits."""
        self._revoked = True
        self._note_end()

    def body(self, *also: str) -> Coroutine[Any, Any, bytes]:
        """The body of a request that brings records; `also` of other media types that are JSON."""
        return read_body(self.req, self.gate.max_body_bytes, *also)

    def small_body(self) -> bytes:
        """The same, if there is one, it is all there, plain and small; nothing else to wait for."""
        return plain_body(self.req, min(INLINE_BYTES_MAX, self.gate.max_body_bytes))

    def command(self, bytes_max: int = COMMAND_BYTES_MAX, *also: str) -> Coroutine[Any, Any, bytes]:
        """The body of a request that brings no records; `also` of other types that are JSON."""
        return read_body(self.req, min(bytes_max, self.gate.max_body_bytes), *also)

    def raw_body(self, bytes_max: int) -> Coroutine[Any, Any, bytes]:
        """The body, whatever it is."""
        return read_bytes(self.req, bytes_max)

    async def parse(
        self, parse: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **kw: P.kwargs
    ) -> T:
        """What a body says: found on the loop if it is small, else in the pool."""
        if len(body) <= INLINE_BYTES_MAX:
            return parse(body, *args, **kw)
        return await self.engine.pool.run(parse, body, *args, **kw)

    def performance(self, scanned: int | None) -> bytes:
        """Where the time went, as the last member of the reply."""
        times = format_times(self.started, self.timings)
        if scanned is None:
            return b',"performance":{%b}}' % times
        return b',"performance":{%b,"records_scanned":%d}}' % (times, scanned)


def _nothing() -> None:
    pass


Authenticate = Callable[[Gate, Request], Principal | Awaitable[Principal]]
"""Says who asks, or refuses; waits where another server must be asked."""


def by_key(gate: Gate, req: Request) -> Principal:
    """Who asks, by the `Authorization` header."""
    store = gate.credentials
    return LOCAL if store.development else store.authenticate(req.get_header("authorization"))


def by_key_or_password(gate: Gate, req: Request) -> Principal:
    """Who asks: by the same header, which may hold the name and the password of a user."""
    return gate.credentials.authenticate_user(req.get_header("authorization"))


def by_api_key(gate: Gate, req: Request) -> Principal:
    """Who asks: by `X-API-Key`, by `Authorization: ApiKey`, or by the same header as elsewhere."""
    return identify_key(gate, req.get_header("authorization"), req.get_header("x-api-key"))


def identify_key(gate: Gate, header: str | None, key: str | None) -> Principal:
    """The same, by what these two say, wherever they came from."""
    if key is None and header is not None and header[: len(_API_KEY)].lower() == _API_KEY:
        key = header[len(_API_KEY) :]
    store = gate.credentials
    return store.authenticate(header) if key is None else store.identify(key.strip())


def by_key_or_token(gate: Gate, req: Request) -> Principal:
    """Who asks: by header, or by `?token=` since a browser's EventSource sends no headers."""
    header = req.get_header("authorization")
    if header is None and (tokens := req.get_params("token")):
        return gate.credentials.identify(tokens[0])
    return gate.credentials.authenticate(header)


def by_nothing(gate: Gate, req: Request) -> Principal:
    """Anybody may ask."""
    return NOBODY


def format_times(started: float, timings: Timings) -> bytes:
    """Where the time went, as members of a JSON object."""
    return (
        b'"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f,"throttle_wait_ms":%.3f'
        % (
            (perf_counter() - started) * 1e3,
            timings.append_ms,
            timings.sync_ms,
            timings.throttle_ms,
        )
    )


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
        problem = str(error) if body else "it is empty"
        raise Refused(Code.INVALID, f"the body is not JSON: {problem}") from None


def parse_bool(req: Request, name: str, default: bool) -> bool:
    text = req.get_param(name)
    if text is None:
        return default
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise Refused(Code.INVALID, f"{name} is true or false", field=name)


def parse_listing(req: Request, size_name: str = "page_size") -> tuple[str, str, int]:
    """Which page of a list by name: behind which name, with which prefix, how many at most."""
    size = parse_whole(req, size_name, LIST_PAGE_DEFAULT, LIST_PAGE_MAX)
    cursor = req.get_param("cursor")
    after = "" if cursor is None else parse_cursor(cursor)
    return after, req.get_param("prefix") or "", size


def parse_whole(req: Request, name: str, default: int, most: int) -> int:
    """A query parameter from 1 up; more than `most` counts as `most`."""
    text = req.get_param(name)
    if text is None:
        return default
    number = parse_digits(text, U64_MAX)
    if not number:
        raise Refused(Code.INVALID, f"{name} is a whole number from 1 on", field=name)
    return min(number, most)
