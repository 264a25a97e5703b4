"""The streams surface: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from headrace.core.errors import Code
from headrace.core.names import METRICS_STREAM
from headrace.engine.flow.shared_timeout import SharedTimeout
from headrace.surfaces.streams import aggregating, profiles, schemas, searching, wire
from headrace.surfaces.streams.control import Control, by_key_with
from headrace.surfaces.streams.dialect import BASE, DIALECTS, Dialect
from headrace.surfaces.streams.errors import REFUSALS, StreamError, refuse
from headrace.surfaces.streams.inspection import Inspector
from headrace.surfaces.streams.names import CONTROL, parse_path
from headrace.surfaces.streams.routes import StreamLimits, StreamRoutes, timed_out
from headrace.surfaces.streams.server import ServerRoutes
from headrace.surfaces.streams.touch import (
    ActivateReply,
    ActivateRequest,
    TouchRoutes,
    WaitReply,
    WaitRequest,
    wrong_method,
)
from headrace.web.answers import Answer, Handover, Headers
from headrace.web.calls import Call, Gate, by_nothing
from headrace.web.cors import preflight
from headrace.web.credentials import Scope
from headrace.web.event_streams import EVENT_STREAM
from headrace.web.request import Request
from headrace.web.surface import (
    Described,
    Handler,
    Parameter,
    Route,
    Surface,
    with_refusals,
)

NATIVE, DURABLE_STREAMS = "/v1", "/ds/v1"
"""Where streams are: in our own dialect, and in that of the base protocol."""
ANY = "*/*"

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


def surface(
    gate: Gate, dialect: str, limits: StreamLimits, control: Control, server: ServerRoutes
) -> Surface:
    """The surface with both mounts."""
    has_keys = not gate.credentials.development
    headers = [*_SECURITY, *(_BY_KEY if has_keys else [])]
    if has_keys and not gate.origins:
        # A page that has a key may use it from anywhere: no browser sends it by itself.
        headers += _FOR_ALL
    shared_timeout = SharedTimeout(limits.request_ms / 1000, timed_out)
    # Thousands who wait get their empty answers at the same time: what is late is not too late.
    live_timeout = SharedTimeout(2 * limits.request_ms / 1000, timed_out)

    def choose_timeout(request: Request, route: Route) -> SharedTimeout | None:
        if route.lives_long:
            return None  # as long as it says itself
        return live_timeout if b"live=" in request.query else shared_timeout

    routes: list[Route] = []
    for prefix, spoken in ((NATIVE, DIALECTS[dialect]), (DURABLE_STREAMS, BASE)):
        spoken = spoken.private() if has_keys else spoken
        routes += _routes(prefix, spoken, limits, server)
        if spoken.subscriptions:
            routes += _subscriptions(f"{prefix}/stream/{CONTROL}", control)
    return Surface(
        name="streams",
        title="Streams",
        prefixes=(f"{NATIVE}/", f"{DURABLE_STREAMS}/"),
        routes=routes,
        refusals=REFUSALS,
        refuse=refuse,
        headers=headers,
        options=_options,
        shared_timeout=choose_timeout,
    )


def _options(request: Request, allow: str) -> Answer:
    asked = request.get_header("access-control-request-headers")
    return Answer(204, preflight(", ".join(filter(None, (_REQUEST_HEADERS, asked)))))


def _measured(operation: str, handler: Handler) -> Handler:
    """A handler of a stream, which notes how long it takes; but not for what reads these notes."""

    async def handle(call: Call) -> Any:
        call.name = name = parse_path(call.name, call.req.raw_path)
        meter = call.gate.engine.meter if call.gate.ready else None
        if meter is None or name == METRICS_STREAM:
            return await handler(call)
        what = "wait" if b"live=" in call.req.query else operation
        began, done = perf_counter(), False
        try:
            answer: Answer | Handover = await handler(call)  # type: ignore[assignment]
            done = True
            return answer
        finally:
            meter.request(what, (perf_counter() - began) * 1e3, done=done)

    return handle


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    """The good replies, and the refusals an endpoint can give."""
    return with_refusals(ok, (Code.INVALID, *codes), REFUSALS, StreamError)


_NAME = Parameter("name", str, "The stream; slashes are part of its name", place="path")
_KEY = Parameter("key", str, "The routing key", place="path")


def _header(name: str, description: str) -> Parameter:
    return Parameter(name, str, description, place="header")


_PLACE = (
    Parameter("offset", str, "Where to start: an offset that this stream gave, `-1` or `now`"),
    Parameter("since", str, "Where to start: the first record of this time, RFC 3339"),
)
_READ = (
    *_PLACE,
    Parameter("format", str, "`json` or `raw`"),
    Parameter("live", str, "`true`, `long-poll` or `sse`: wait for what comes"),
    Parameter("timeout", str, "How long a long-poll waits"),
    Parameter("cursor", str, "`Stream-Cursor` of the answer before"),
    Parameter("filter", str, "Only records that this query fits"),
    _header("If-None-Match", "The `ETag` of a page that is known"),
)
_PRODUCER = (
    _header("Producer-Id", "Who writes, for appends that count once"),
    _header("Producer-Epoch", "In which life of the producer"),
    _header("Producer-Seq", "Which of its appends this is"),
)


def _routes(
    prefix: str, dialect: Dialect, limits: StreamLimits, server: ServerRoutes
) -> list[Route]:
    """Streams, and what belongs to each."""
    streams, touch = StreamRoutes(dialect, limits), TouchRoutes(limits)
    inspector = Inspector(limits.long_poll_ms)
    stream = f"{prefix}/stream/{{name:path}}"

    def below(
        method: str, path: str, handler: Handler, summary: str, reply: Any,
        request: Any = None, scope: Scope = Scope.READ,
    ) -> Route:  # fmt: skip
        return Route(
            method, f"{stream}/{path}", _measured(path, handler), summary,
            _replies({200: Described(reply, "")}, Code.LOG_NOT_FOUND, Code.REQUEST_TIMEOUT),
            request=request, parameters=(_NAME,), scope=scope, group="Of a stream",
        )  # fmt: skip

    def read(path: str, *parameters: Parameter) -> Route:
        return Route(
            "GET", path, _measured("read", streams.get), "Read a stream",
            _replies(
                {
                    200: Described(str, "A page, or events with `live=sse`", ANY),
                    204: Described(None, "Nothing came in time"),
                    304: Described(None, "The page is as it was"),
                },
                Code.LOG_NOT_FOUND, Code.GONE, Code.REQUEST_TIMEOUT,
            ),
            parameters=(*parameters, *_READ), scope=Scope.READ, group="Streams",
            description=f"`Stream-Next-Offset` is the next `offset`. Events are {EVENT_STREAM}: "
            "`data` and `control`.",
        )  # fmt: skip

    def head(path: str, *parameters: Parameter) -> Route:
        return Route(
            "HEAD", path, _measured("head", streams.head), "Where a stream stands",
            _replies({200: Described(None, "Headers only")}, Code.LOG_NOT_FOUND, Code.GONE),
            parameters=parameters, scope=Scope.READ, group="Streams",
        )  # fmt: skip

    keyed = f"{stream}/pk/{{key}}"
    wrong = [
        Route(method, f"{stream}/touch/{path}", _measured(f"touch/{path}", wrong_method), "", {})
        for path, right in (("meta", "GET"), ("wait", "POST"), ("templates/activate", "POST"))
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE")
        if method != right
    ]
    return [
        read(stream, _NAME),
        head(stream, _NAME),
        Route(
            "POST", stream, _measured("append", streams.post), "Append to a stream",
            _replies(
                {dialect.appended: Described(None, "Appended"),
                 204: Described(None, "Closed, or known already")},
                Code.LOG_NOT_FOUND, Code.CONFLICT, Code.CLOSED, Code.PRODUCER_FENCED,
                Code.PRODUCER_GAP, Code.GONE, Code.BODY_TOO_LARGE, Code.APPEND_TIMEOUT,
                Code.READ_ONLY,
            ),
            request=str, media=ANY,
            parameters=(
                _NAME,
                _header("Content-Type", "That of the stream"),
                _header("Stream-Key", "The routing key of the records"),
                _header("Stream-Seq", "Refused unless it is greater than the last"),
                _header("Stream-Timestamp", "When it happened, RFC 3339"),
                _header("Stream-Closed", "`true`: nothing follows"),
                *_PRODUCER,
            ),
            scope=Scope.WRITE, group="Streams",
            description="A JSON array is appended item by item to a JSON stream.",
        ),
        Route(
            "PUT", stream, _measured("create", streams.put), "Create a stream",
            _replies(
                {200: Described(None, "It was there, just like this"),
                 201: Described(None, "It is new; `Location` says where")},
                Code.CONFLICT, Code.LOG_NOT_FOUND, Code.GONE, Code.BODY_TOO_LARGE, Code.READ_ONLY,
            ),
            request=str, media=ANY,
            parameters=(
                _NAME,
                _header("Content-Type", "What it holds; bytes if left out"),
                _header("Stream-TTL", "Seconds that it lives after its last use"),
                _header("Stream-Expires-At", "When it ends, RFC 3339"),
                _header("Stream-Closed", "`true`: it takes no more than this body"),
                _header("Stream-Forked-From", "The stream that it goes on from"),
                _header("Stream-Fork-Offset", "And from where"),
                _header("Stream-Fork-Sub-Offset", "And behind which message there"),
            ),
            scope=Scope.WRITE, group="Streams",
        ),
        Route(
            "DELETE", stream, _measured("delete", streams.delete), "Delete a stream",
            _replies({204: Described(None, "It is gone")}, Code.LOG_NOT_FOUND, Code.GONE),
            parameters=(_NAME,), scope=Scope.DELETE, group="Streams",
        ),
        read(keyed, _NAME, _KEY),
        head(keyed, _NAME, _KEY),
        Route(
            "GET", f"{prefix}/streams", streams.list, "List streams by name",
            _replies({200: Described(list[wire.StreamSummary], "One page")}),
            parameters=(
                Parameter("prefix", str, "Only names that start with this"),
                Parameter("limit", int, "1 to 1000", default=100),
                Parameter("cursor", str, "`Stream-Next-Cursor` of the page before"),
            ),
            scope=Scope.READ, group="Streams", head=True,
        ),
        below("GET", "_schema", schemas.get, "The schema of the records", dict[str, Any]),
        below("POST", "_schema", schemas.post, "Change the schema", dict[str, Any],
              dict[str, Any], Scope.ADMIN),
        below("GET", "_profile", profiles.get, "What a stream is for", dict[str, Any]),
        below("POST", "_profile", profiles.post, "Say what a stream is for", dict[str, Any],
              dict[str, Any], Scope.ADMIN),
        below("GET", "_search", searching.get, "Search a stream", dict[str, Any]),
        below("POST", "_search", searching.post, "Search a stream", dict[str, Any],
              dict[str, Any]),
        below("POST", "_aggregate", aggregating.post_aggregate, "Count and measure by time",
              dict[str, Any], dict[str, Any]),
        below("GET", "_routing_keys", aggregating.get_keys, "The routing keys there are",
              dict[str, Any]),
        below("GET", "_index_status", inspector.index_status, "How far indexes reach",
              dict[str, Any]),
        below("GET", "_details", inspector.details, "All that is known of a stream",
              dict[str, Any]),
        below("GET", "touch/meta", touch.meta, "How touches stand", dict[str, Any]),
        below("POST", "touch/templates/activate", touch.activate, "Say what is looked at",
              ActivateReply, ActivateRequest),
        Route(
            "POST", f"{stream}/touch/wait", _measured("touch/wait", touch.wait),
            "Wait for a touch",
            _replies({200: Described(WaitReply, "Touched, or the time is up")}, Code.LOG_NOT_FOUND),
            request=WaitRequest, parameters=(_NAME,), scope=Scope.READ, group="Of a stream",
            lives_long=True,
        ),
        *wrong,
        *(
            Route(
                "GET", f"{prefix}/server/{path}", handler, summary,
                _replies({200: Described(dict[str, Any], "")}), scope=Scope.READ, group="Server",
            )
            for path, handler, summary in (
                ("_details", server.details, "Limits and live state of the server"),
                ("_mem", server.memory, "The memory of the server"),
            )
        ),
    ]  # fmt: skip


def _subscriptions(prefix: str, control: Control) -> list[Route]:
    """Who is woken for which streams."""
    one = f"{prefix}/subscriptions/{{id}}"
    id = Parameter("id", str, "The subscription: 1 to 255 characters", place="path")
    codes = (Code.LOG_NOT_FOUND, Code.FENCED)

    def keyed(
        method: str, path: str, handler: Handler, summary: str, scope: Scope,
        replies: dict[int, Described], request: Any = None,
    ) -> Route:  # fmt: skip
        return Route(
            method, one + path, handler, summary, _replies(replies, *codes), request=request,
            parameters=(id,), scope=scope, group="Subscriptions",
            authenticate=by_key_with(scope),
        )  # fmt: skip

    def woken(path: str, handler: Handler, summary: str, reply: Any) -> Route:
        return Route(
            "POST", one + path, handler, summary,
            _replies({200 if reply else 204: Described(reply, "")}, *codes),
            request=wire.AckRequest, parameters=(id,), group="Subscriptions",
            description="Needs the token of the wake as its bearer token.",
            authenticate=control.by_wake,
        )  # fmt: skip

    shown, done = Described(wire.SubscriptionReply, ""), Described(None, "")
    both = Scope.READ | Scope.WRITE
    return [
        Route(
            "GET", f"{prefix}/jwks.json", control.keys, "The keys that wakes are signed with",
            {200: Described(dict[str, Any], "", "application/jwk-set+json")},
            group="Subscriptions", authenticate=by_nothing,
        ),
        keyed("PUT", "", control.put, "Subscribe", Scope.ADMIN,
              {200: shown, 201: shown}, wire.SubscribeRequest),
        keyed("GET", "", control.get, "A subscription as it stands", Scope.READ, {200: shown}),
        keyed("DELETE", "", control.delete, "Unsubscribe", Scope.ADMIN, {204: done}),
        keyed("POST", "/streams", control.link, "Follow more streams", Scope.ADMIN, {204: done},
              wire.StreamsRequest),
        keyed("DELETE", "/streams/{stream:path}", control.unlink, "Follow a stream no more",
              Scope.ADMIN, {204: done}),
        keyed("POST", "/claim", control.claim, "Take the lease of a wake", both,
              {200: Described(wire.ClaimReply, "")}, wire.ClaimRequest),
        woken("/callback", control.ack, "Say what is done, from a webhook", wire.AckReply),
        woken("/ack", control.ack, "Say what is done", wire.AckReply),
        woken("/release", control.release, "Give the lease back", None),
    ]  # fmt: skip
