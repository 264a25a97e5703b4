"""The endpoints of streams: parse, authorise, call the engine, encode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import msgspec

from headrace.core.cursor import encode_cursor, parse_cursor
from headrace.core.errors import Code, Refused
from headrace.core.limits import LIST_PAGE_DEFAULT, LIST_PAGE_MAX
from headrace.core.names import METRICS_STREAM, SYSTEM, SYSTEM_PREFIX
from headrace.core.stream import Producer, Write, same_type
from headrace.engine.live import Live
from headrace.engine.patience import Patience
from headrace.engine.streams import OWNER, Written
from headrace.surfaces.streams import fields, reading, wire
from headrace.surfaces.streams.appends import parse_drafts
from headrace.surfaces.streams.control import Control
from headrace.surfaces.streams.creation import parse_spec, type_of_body
from headrace.surfaces.streams.dialect import Dialect
from headrace.surfaces.streams.errors import refuse
from headrace.surfaces.streams.following import StreamSink, StreamView
from headrace.surfaces.streams.names import CONTROL, WAIT, Target, parse_target
from headrace.surfaces.streams.positions import content_type_of, format_position
from headrace.web.answers import Answer, Headers
from headrace.web.calls import Call, Gate, parse_whole
from headrace.web.cors import METHODS, encode_headers, preflight
from headrace.web.credentials import Scope
from headrace.web.direct import DirectResponse
from headrace.web.streams import hand_over

_SECURITY: Headers = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "cross-origin"),
]
_REQUEST_HEADERS = (
    "authorization, content-type, content-encoding, if-none-match, stream-key, stream-timestamp, "
    "stream-seq, stream-ttl, stream-expires-at, stream-closed, stream-forked-from, "
    "stream-fork-offset, stream-fork-sub-offset, producer-id, producer-epoch, producer-seq"
)
_ANSWER_HEADERS = (
    "etag, location, retry-after, stream-next-offset, stream-end-offset, stream-cursor, "
    "stream-up-to-date, stream-closed, stream-ttl, stream-expires-at, stream-next-cursor, "
    "stream-sse-data-encoding, stream-filter-scan-limit-reached, stream-filter-scan-limit-bytes, "
    "stream-filter-scanned-bytes, producer-epoch, producer-seq, producer-expected-seq, "
    "producer-received-seq"
)
_FOR_ALL: Headers = [
    ("access-control-allow-origin", "*"),
    ("access-control-expose-headers", _ANSWER_HEADERS),
]
_BY_KEY: Headers = [("vary", "authorization")]
_CONTROL = f"{CONTROL}/".encode()
_WAIT = f"/{WAIT}".encode()
_OPERATIONS = {
    "GET": "read", "HEAD": "head", "POST": "append", "PUT": "create", "DELETE": "delete"
}  # fmt: skip

Handle = Callable[[Call], Awaitable[Answer]]
Handler = Callable[[Call, Target], Awaitable[Answer]]
Resources = Mapping[str, Mapping[str, Handler]]
"""What is below a stream, by the end of its path, and who answers which method."""


class StreamLimits(msgspec.Struct, frozen=True):
    """What one request may carry and how long it may take."""

    body_bytes: int
    request_ms: int
    long_poll_ms: int
    """How long a reader waits at most: a little less than a request may take."""


class StreamRoutes:
    """The handlers of one mount."""

    def __init__(
        self,
        gate: Gate,
        dialect: Dialect,
        prefix: bytes,
        limits: StreamLimits,
        control: Control | None = None,
        resources: Resources | None = None,
    ) -> None:
        self._gate = gate
        self._resources = resources or {}
        self._control = control
        self._prefix = prefix
        has_keys = bool(len(gate.keyring))
        self._dialect = dialect.private() if has_keys else dialect
        self._headers = [*_SECURITY, *(_BY_KEY if has_keys else [])]
        """Of every answer."""
        if has_keys and not gate.origins:
            # A page that has a key may use it from anywhere: no browser sends it by itself.
            self._headers += _FOR_ALL
        self._encoded = encode_headers(self._headers)
        self._limits = limits
        self._patience = Patience(limits.request_ms / 1000, timed_out)
        # Thousands who wait get their empty answers at the same time: what is late is not too late.
        self._live_patience = Patience(2 * limits.request_ms / 1000, timed_out)
        self._handlers: dict[str, Handler] = {
            "GET": self.get,
            "HEAD": self.head,
            "POST": self.post,
            "PUT": self.put,
            "DELETE": self.delete,
        }

    # --- every request ---------------------------------------------------------------------------

    async def respond(self, req: Any, resp: Any, *_: Any, **__: Any) -> None:
        """Answer whatever is asked below the mount."""
        await self._respond(req, resp, self._handle)

    async def respond_list(self, req: Any, resp: Any, **_: Any) -> None:
        """Answer a request for the streams there are."""
        await self._respond(req, resp, self._list)

    async def respond_elsewhere(self, req: Any, resp: Any, **_: Any) -> None:
        """Answer what is asked beside the paths there are."""
        await self._respond(req, resp, self._miss)

    def respond_with(self, handle: Handle) -> Callable[..., Coroutine[Any, Any, None]]:
        """Let somebody else answer, with all that every request needs."""

        async def respond(req: Any, resp: Any, **_: Any) -> None:
            await self._respond(req, resp, handle)

        return respond

    async def _respond(self, req: Any, resp: Any, handle: Handle) -> None:
        if req.method == "OPTIONS":
            asked = req.get_header("ACCESS-CONTROL-REQUEST-HEADERS")
            answer = Answer(204, preflight(", ".join(filter(None, (_REQUEST_HEADERS, asked)))))
        else:
            answer = await self._answer(req, handle)
        answer.send(resp)
        if isinstance(resp, DirectResponse):
            resp.headers += self._encoded
        else:
            resp.set_headers(self._headers)

    async def _miss(self, call: Call) -> Answer:
        raise Refused(Code.NOT_FOUND, f"there is nothing at {call.req.path}")

    async def _answer(self, req: Any, handle: Handle) -> Answer:
        try:
            with self._limit(req):
                return await self._decide(req, handle)
        except Refused as refused:
            return Answer(*refuse(refused))

    def _limit(self, req: Any) -> AbstractContextManager[None]:
        """How long the request may take."""
        if _waits_long(req):
            return nullcontext()  # as long as it says itself
        waits = b"live=" in req.scope["query_string"]
        return (self._live_patience if waits else self._patience).limit()

    async def _decide(self, req: Any, handle: Handle) -> Answer:
        """The answer; a refusal is raised only when nobody knows what the request came to."""
        call: Call | None = None
        try:
            if self._is_control(req):  # it says itself who is asking
                call = Call(self._gate, req, "", known=False)
                return await handle(call)
            call = Call(self._gate, req, "")
            slots = self._gate.streams if _waits_long(req) else self._gate.slots
            with slots.take(call.principal):
                return await handle(call)
        except Refused as refused:
            if refused.code is Code.APPEND_TIMEOUT:
                raise
            if call is not None:
                refused = await self._gate.settle_refusal(refused)
            return Answer(*refuse(refused))

    def _is_control(self, req: Any) -> bool:
        """Whether this is about subscriptions, where some come with a token instead of a key."""
        path: bytes = req.scope["raw_path"]
        return self._control is not None and path.startswith(_CONTROL, len(self._prefix))

    async def _handle(self, call: Call) -> Answer:
        path: bytes = call.req.scope["raw_path"]
        if not path.startswith(self._prefix):  # it does so only once it is decoded
            raise Refused(Code.NOT_FOUND, f"there is nothing at {path.decode('latin-1')}")
        target = parse_target(path[len(self._prefix) :])
        call.name = target.name
        if target.control is not None and self._control is not None:
            return await self._control.handle(call, target.control)
        method = call.req.method
        handlers: Mapping[str, Handler] = self._handlers
        allowed = METHODS if target.key is None else "GET, HEAD, OPTIONS"
        if target.resource is not None and target.resource in self._resources:
            handlers = self._resources[target.resource]
            allowed = ", ".join((*handlers, "OPTIONS"))
        if method not in handlers or method not in allowed:
            raise Refused(
                Code.METHOD_NOT_ALLOWED, f"{method} does not go with this path", allow=allowed
            )
        if handlers is self._handlers and (target.resource or target.control) is not None:
            raise Refused(Code.NOT_FOUND, f"there is no {target.resource or target.control} here")
        return await self._measure(call, target, handlers[method])

    async def _measure(self, call: Call, target: Target, handler: Handler) -> Answer:
        """Answer, and note how long that took; but not for what reads these notes."""
        meter = self._gate.engine.meter if self._gate.ready else None
        if meter is None or target.name == METRICS_STREAM:
            return await handler(call, target)
        operation = target.resource or _OPERATIONS[call.req.method]
        if b"live=" in call.req.scope["query_string"]:
            operation = "wait"
        began, done = perf_counter(), False
        try:
            answer = await handler(call, target)
            done = True
            return answer
        finally:
            meter.request(operation, (perf_counter() - began) * 1e3, done=done)

    # --- creating and removing -------------------------------------------------------------------

    async def put(self, call: Call, target: Target) -> Answer:
        call.principal.require(Scope.WRITE, target.name)
        spec = parse_spec(call, target.name, self._dialect)
        body = await call.raw_body(self._limits.body_bytes)
        key = fields.parse_key(call.req.get_header("STREAM-KEY"))
        drafts = None
        if body:
            drafts = await call.parse(parse_drafts, body, type_of_body(call, spec), key)
        streams = call.engine.streams
        live, created = await streams.create(target.name, spec, drafts, call.principal.id)
        headers: Headers = [
            ("content-type", content_type_of(live.log)),
            ("stream-next-offset", format_position(live.log, live.visible)),
        ]
        if created:
            headers.append(("location", _url(call.req)))
        if streams.is_closed(live):
            headers.append(("stream-closed", "true"))
        return Answer(201 if created else 200, headers)

    async def delete(self, call: Call, target: Target) -> Answer:
        call.principal.require(Scope.DELETE, target.name)
        streams = call.engine.streams
        try:
            await streams.delete(target.name)
        except Refused as refused:
            if refused.code is not Code.LOG_NOT_FOUND or not self._dialect.deletes_unknown:
                raise
            await call.engine.wait_control()
        return Answer(204, [])

    # --- writing ---------------------------------------------------------------------------------

    async def post(self, call: Call, target: Target) -> Answer:
        call.principal.require(Scope.WRITE, target.name)
        get = call.req.get_header
        producer = fields.parse_producer(
            get("PRODUCER-ID"), get("PRODUCER-EPOCH"), get("PRODUCER-SEQ")
        )
        close = fields.parse_closed(get("STREAM-CLOSED"))
        at = get("STREAM-TIMESTAMP")
        body = await call.raw_body(self._limits.body_bytes)
        streams = call.engine.streams
        live = streams.own(target.name)
        content_type = _type_of_append(call, body, close=close)
        wanted = Write(
            content_type,
            producer,
            fields.parse_seq(get("STREAM-SEQ")),
            close,
            None if at is None else fields.parse_time_ns(at, "Stream-Timestamp"),
        )
        drafts = None
        if content_type is not None and same_type(content_type, content_type_of(live.log)):
            key = fields.parse_key(get("STREAM-KEY"))
            drafts = await call.parse(parse_drafts, body, content_type_of(live.log), key)
            if drafts is None:
                raise Refused(Code.INVALID, "an append needs at least one message")
        try:
            done = await streams.write(target.name, drafts, wanted)
        except Refused as refused:
            if refused.code is Code.CLOSED:
                refused.detail["next_offset"] = format_position(live.log, live.log.head)
            raise
        if drafts is not None and not done.repeated and (meter := call.engine.meter) is not None:
            meter.appended(drafts.count, len(body))
        headers: Headers = [("stream-next-offset", format_position(live.log, done.last))]
        if producer is not None:
            headers += _producer_headers(done, producer)
        if close or streams.is_closed(done.live):
            headers.append(("stream-closed", "true"))
        return Answer(self._status(wanted, done), headers)

    def _status(self, wanted: Write, done: Written) -> int:
        if wanted.content_type is None or done.repeated:
            return 204
        return self._dialect.appended if wanted.producer is None else 200

    # --- reading ---------------------------------------------------------------------------------

    async def head(self, call: Call, target: Target) -> Answer:
        call.principal.require(Scope.READ, target.name)
        streams = call.engine.streams
        live = streams.find(target.name)
        end = format_position(live.log, live.visible)
        headers: Headers = [
            ("content-type", content_type_of(live.log)),
            ("cache-control", "no-store"),
            ("stream-next-offset", end),
            ("stream-end-offset", end),
        ]
        if live.log.stream is not None:
            ttl_ms, ends_at_ms = live.log.stream.ttl_ms, streams.ends_at_ms(live.log)
            if ttl_ms is not None:
                headers.append(("stream-ttl", str(ttl_ms // 1000)))
            if ends_at_ms is not None and (ttl_ms is None or self._dialect.shows_deadline):
                headers.append(("stream-expires-at", fields.format_time(ends_at_ms)))
        if streams.is_closed(live):
            headers.append(("stream-closed", "true"))
        await streams.settle(target.name)
        return Answer(200, headers)

    async def get(self, call: Call, target: Target) -> Answer:
        call.principal.require(Scope.READ, target.name)
        query = reading.parse_query(call.req.query_string)
        engine = call.engine
        live = engine.streams.find(target.name)
        if live.visible == live.log.inherited:
            await engine.streams.settle(target.name)  # nothing else says that it is there to stay
            live = engine.streams.find(target.name)
        asked = await reading.parse_read(
            engine, live, query, target.key, self._dialect, self._limits.long_poll_ms
        )
        live.last_read_at_ms = engine.clock.now_ms()
        if asked.mode is None:
            tags = call.req.get_header("IF-NONE-MATCH")
            return await reading.catch_up(engine, live, asked, self._dialect, tags)
        if asked.mode == "sse":
            return self._follow(call, live, asked)
        return await reading.long_poll(engine, live, asked, self._dialect)

    def _follow(self, call: Call, live: Live, asked: reading.Asked) -> Answer:
        """Hand the connection over to a sink that follows the stream."""
        cursor = reading.make_cursor(call.engine, asked.cursor)
        view = StreamView(live.log, asked.selector, cursor, call.engine.clock, call.engine.shapes)
        gate = self._gate
        sink = StreamSink(gate.hub, live, view, asked.after)
        slot = gate.streams.take(call.principal)
        hand_over(gate, call.req, sink, slot, [*view.headers, *self._headers])
        return Answer(200, [])

    async def _list(self, call: Call) -> Answer:
        call.principal.require(Scope.READ)
        req, engine = call.req, call.engine
        if req.method not in ("GET", "HEAD"):
            allowed = "GET, HEAD, OPTIONS"
            raise Refused(Code.METHOD_NOT_ALLOWED, "a listing is only read", allow=allowed)
        size = parse_whole(req, "limit", LIST_PAGE_DEFAULT, LIST_PAGE_MAX)
        cursor = req.get_param("cursor")
        after = parse_cursor(cursor) if cursor is not None else ""
        prefix = req.get_param("prefix") or ""
        owner = SYSTEM if prefix.startswith(SYSTEM_PREFIX) else OWNER
        found, more = engine.logs.page(after, prefix, size, call.principal.may_see, owner)
        streams = engine.streams
        shown = [wire.summarise(engine, each) for each in found if streams.is_there(each.log)]
        headers: Headers = [("content-type", "application/json"), ("cache-control", "no-store")]
        if more:
            headers.append(("stream-next-cursor", encode_cursor(found[-1].log.name)))
        await engine.settle_control()
        return Answer(200, headers, msgspec.json.encode(shown))


def _waits_long(req: Any) -> bool:
    """Whether this waits for touches: for minutes, so that it counts as a stream does."""
    path: bytes = req.scope["raw_path"]
    return path.endswith(_WAIT)


def timed_out() -> Refused:
    """What becomes of a request that took too long."""
    return Refused(Code.REQUEST_TIMEOUT, "request timed out")


def _type_of_append(call: Call, body: bytes, *, close: bool) -> str | None:
    """The content type of the records; None when there are none."""
    if not body:
        if not close:
            raise Refused(Code.INVALID, "an append needs a body")
        return None
    content_type = call.req.content_type
    if not content_type:
        raise Refused(Code.INVALID, "an append needs a Content-Type")
    return content_type


def _producer_headers(done: Written, producer: Producer) -> Headers:
    stream = done.live.log.stream
    assert stream is not None
    epoch, seq = (stream.producers or {})[producer.id]
    return [("producer-epoch", str(epoch)), ("producer-seq", str(seq))]


def _url(req: Any) -> str:
    """Where the stream is, as the caller sees us."""
    scope = req.scope
    path = scope["raw_path"].decode("latin-1")
    host = req.get_header("HOST")
    return f"{scope['scheme']}://{host}{path}" if host else str(path)
