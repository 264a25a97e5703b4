"""The topics surface: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.errors import Code
from headrace.observe import Sample
from headrace.surfaces.topics import routers, search, wire
from headrace.surfaces.topics.consumer_mount import DELIVERY, consumer_routes
from headrace.surfaces.topics.errors import REFUSALS, refuse
from headrace.surfaces.topics.queues import QueueRoutes
from headrace.surfaces.topics.routes import Topics
from headrace.surfaces.topics.trackers import TrackerRoutes
from headrace.surfaces.topics.watch import WatchRoutes
from headrace.surfaces.topics.websocket import SocketLimits, TopicSocket
from headrace.surfaces.topics.work import WorkRoutes
from headrace.web.answers import Answer, Handover
from headrace.web.calls import Call, by_key_or_token, by_nothing
from headrace.web.credentials import NO_SCOPE, Principal, Scope
from headrace.web.envelope import ErrorReply, close
from headrace.web.event_streams import EVENT_STREAM
from headrace.web.sockets import by_key_or_subprotocol, open_socket
from headrace.web.surface import Described, Handler, Parameter, Route, Surface, with_refusals

TOPIC = "/v0/topics/{name}"
ROUTER = "/v0/routers/{name:path}"  # a slash is no name, and told so

_NAME = Parameter("name", str, "The topic: 1 to 255 of A-Z a-z 0-9 . _ : -", place="path")
_ROUTER = Parameter("name", str, "The router: 1 to 255 of A-Z a-z 0-9 . _ : - >", place="path")


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    """The good replies, and the refusals an endpoint can give."""
    return with_refusals(ok, codes, REFUSALS, ErrorReply)


_QUEUE = (
    Code.INVALID, Code.LOG_NOT_FOUND, Code.NOT_A_QUEUE, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
    Code.READ_ONLY,
)  # fmt: skip
_JOBS = (*_QUEUE, Code.BATCH_TOO_LARGE)


def surface(
    topics: Topics,
    queues: QueueRoutes,
    work: WorkRoutes,
    watch: WatchRoutes,
    trackers: TrackerRoutes,
    sockets: SocketLimits,
    samples: Callable[[Principal], Sequence[Sample]],
) -> Surface:
    """The surface with these handlers."""

    async def socket(call: Call) -> Answer | Handover:
        return open_socket(call, lambda: TopicSocket(call.hub, call.principal, sockets))

    return Surface(
        name="topics",
        title="Topics",
        prefixes=("/v0/",),
        routes=[*_routes(topics, queues, work, watch, socket), *consumer_routes(trackers)],
        refusals=REFUSALS,
        refuse=refuse,
        finish=close,
        webhooks={"topics_delivery": DELIVERY},
        compresses=True,
        samples=samples,
    )


def _routes(
    topics: Topics,
    queues: QueueRoutes,
    work: WorkRoutes,
    watch: WatchRoutes,
    socket: Handler,
) -> list[Route]:
    return [
        Route(
            "PUT", TOPIC, topics.put, "Create or configure a topic",
            _replies(
                {
                    200: Described(wire.TopicReply, "The topic existed; it has this config now"),
                    201: Described(wire.TopicReply, "The topic is new"),
                },
                Code.INVALID, Code.LOG_INCOMPATIBLE, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
            ),
            request=wire.ConfigRequest, parameters=(_NAME,), scope=Scope.ADMIN, group="Topics",
            description="Fields left out take their defaults; the type of an existing topic stays.",
            example={"ttl_ms": 60000, "cap_records": 1000000, "durability": "fsync"},
        ),
        Route(
            "GET", TOPIC, topics.get, "Where a topic stands",
            _replies({200: Described(wire.StateReply, "Its state")}, Code.INVALID, Code.LOG_NOT_FOUND),
            parameters=(_NAME, Parameter("touch", bool, "Counts as a read", default=True)),
            scope=Scope.READ, group="Topics",
        ),
        Route(
            "GET", "/v0/topics", topics.list, "List topics by name",
            _replies({200: Described(wire.ListReply, "One page")}, Code.INVALID),
            parameters=(
                Parameter("prefix", str, "Only names that start with this"),
                Parameter("page_size", int, "1 to 1000", default=100),
                Parameter("cursor", str, "`next_cursor` of the page before"),
                Parameter("touch", bool, "Counts as a read for auto-priority", default=False),
            ),
            scope=Scope.READ, group="Topics",
        ),
        Route(
            "DELETE", TOPIC, topics.drop, "Delete a topic with all its records",
            _replies({200: Described(wire.DropReply, "It is gone")}, Code.INVALID, Code.LOG_NOT_EMPTY),
            parameters=(_NAME, Parameter("if_empty", bool, "Only if it has no records", default=False)),
            scope=Scope.DELETE, group="Topics",
        ),
        Route(
            "POST", TOPIC, topics.append, "Append records",
            _replies(
                {
                    200: Described(wire.AppendReply, "Appended, or deduplicated by its idempotency key"),
                    201: Described(wire.AppendReply, "Appended; the topic is new"),
                },
                Code.INVALID, Code.BATCH_TOO_LARGE, Code.RECORD_TOO_LARGE, Code.LOG_NOT_FOUND,
                Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.LOG_FULL, Code.READ_ONLY,
            ),
            request=wire.AppendRequest,
            parameters=(
                _NAME,
                Parameter("return_seqs", bool, "List every seq in the reply", default=True),
                Parameter("Idempotency-Key", str, "`idempotency_key`; the body wins", place="header"),
            ),
            scope=Scope.WRITE, group="Records",
            description="All records get consecutive seqs, or none is stored.",
            example={"records": [{"data": {"hello": "world"}, "tag": "greeting"}]},
        ),
        Route(
            "POST", f"{TOPIC}/diff", topics.diff, "Read records after a seq",
            _replies(
                {200: Described(wire.DiffReply, "One page, and what was lost before it")},
                Code.INVALID, Code.LOG_NOT_FOUND, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
            ),
            request=wire.DiffRequest, parameters=(_NAME,), scope=Scope.READ, group="Records",
            description="Pass `next_from_seq` back as `from_seq`; `caught_up`: no more for now.",
            example={"from_seq": 0, "limit": 100, "wait_ms": 0},
        ),
        Route(
            "POST", f"{TOPIC}/delete", topics.delete, "Delete records by seq or by tag",
            _replies(
                {200: Described(wire.DeleteReply, "They are gone")},
                Code.INVALID, Code.LOG_NOT_FOUND, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.DeleteRequest, parameters=(_NAME,), scope=Scope.DELETE, group="Records",
            description='`match` is a tag or `X*`, `["tag","Eq","X"]` or `["tag","Glob","X*"]`.',
            example={"match": ["tag", "Glob", "chat-42:*"]},
        ),
        Route(
            "POST", f"{TOPIC}/claim", queues.claim, "Lease jobs to a worker",
            _replies({200: Described(wire.ClaimReply, "The jobs, perhaps none")}, *_QUEUE),
            request=wire.ClaimRequest, parameters=(_NAME,), scope=Scope.READ | Scope.WRITE,
            group="Queues",
            description="Returned jobs come first, then fresh ones; ack them before `deadline`.",
            example={"node": "worker-1", "max": 8, "lease_ms": 30000},
        ),
        Route(
            "POST", f"{TOPIC}/ack", queues.ack, "Complete jobs",
            _replies({200: Described(wire.AckReply, "Those the worker held are gone")}, *_JOBS),
            request=wire.AckRequest, parameters=(_NAME,), scope=Scope.WRITE, group="Queues",
            description="Jobs the worker does not hold are `skipped`: an ack can be sent again.",
            example={"node": "worker-1", "seqs": [1, 2]},
        ),
        Route(
            "POST", f"{TOPIC}/nack", queues.nack, "Give jobs back",
            _replies({200: Described(wire.NackReply, "They can be claimed again")}, *_JOBS),
            request=wire.NackRequest, parameters=(_NAME,), scope=Scope.WRITE, group="Queues",
            example={"node": "worker-1", "seqs": [3], "delay_ms": 5000},
        ),
        Route(
            "POST", f"{TOPIC}/extend", queues.extend, "Keep jobs for longer",
            _replies({200: Described(wire.ExtendReply, "Their new deadlines")}, *_JOBS),
            request=wire.ExtendRequest, parameters=(_NAME,), scope=Scope.WRITE, group="Queues",
            description="The new deadline is `lease_ms` from now.",
            example={"node": "worker-1", "seqs": [4], "lease_ms": 30000},
        ),
        Route(
            "GET", f"{TOPIC}/work", work.open, "Have jobs pushed",
            _replies(
                {200: Described(str, "Events `job` and `error`, and heartbeats", media=EVENT_STREAM)},
                Code.INVALID, Code.LOG_NOT_FOUND, Code.NOT_ACCEPTABLE, Code.NOT_A_QUEUE,
            ),
            parameters=(
                _NAME,
                Parameter("node", str, "The worker; it must be named"),
                Parameter("max", int, "Jobs under way at a time, 1 to 1000", default=1),
                Parameter("lease_ms", int, "Of each job; the topic's if left out"),
                Parameter("token", str, "The key, where no header can be sent: development only"),
            ),
            scope=Scope.READ | Scope.WRITE, group="Queues", authenticate=by_key_or_token,
            description="An ack makes room for the next job. When the connection ends, jobs that were "
            "pushed on it and not acked can be claimed again at once. Without keys, "
            "`Accept: text/event-stream` must be said.",
        ),
        Route(
            "POST", f"{TOPIC}/redrive", queues.redrive, "Send dead letters back to work",
            _replies(
                {200: Described(wire.RedriveReply, "What went, and what is left")},
                *_QUEUE, Code.LOG_FULL,
            ),
            request=wire.RedriveRequest, parameters=(_NAME,), scope=Scope.READ | Scope.WRITE,
            group="Queues",
            description="The topic is the one with the dead letters. Each goes to the queue in its "
            "stamp, or all to `to`; stamps are removed and deliveries counted anew.",
            example={"limit": 100, "to": None},
        ),
        Route(
            "PUT", f"{TOPIC}/search", search.put, "Say how records can be searched",
            _replies(
                {200: Described(wire.SearchReply, "They can be searched like this from now on")},
                Code.INVALID, Code.LOG_NOT_FOUND, Code.LOG_INCOMPATIBLE, Code.BODY_TOO_LARGE,
                Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=dict[str, Any], parameters=(_NAME,), scope=Scope.ADMIN, group="Search",
            description="The body is the whole configuration, which is kept as it was sent. The "
            "pipeline makes the index companions that it asks for, also of records there are already.",
            example={
                "primaryTimestampField": "at",
                "fields": {
                    "at": {
                        "kind": "date", "column": True,
                        "bindings": [{"version": 1, "jsonPointer": "/at"}],
                    },
                },
            },
        ),
        Route(
            "GET", f"{TOPIC}/search", search.get, "How records can be searched",
            _replies(
                {200: Described(wire.SearchReply, "The configuration; null when there is none")},
                Code.INVALID, Code.LOG_NOT_FOUND,
            ),
            parameters=(_NAME,), scope=Scope.READ, group="Search",
        ),
        Route(
            "POST", f"{TOPIC}/search", search.find, "Search the records",
            _replies(
                {
                    200: Described(wire.FoundReply, "What was found, to the head of the topic"),
                    408: Described(wire.FoundReply, "What was found before the time was up"),
                },
                Code.INVALID, Code.LOG_NOT_FOUND, Code.LOG_INCOMPATIBLE, Code.BODY_TOO_LARGE,
                Code.MEDIA_TYPE,
            ),
            request=wire.FindRequest, parameters=(_NAME,), scope=Scope.READ, group="Search",
            description="Offsets are seqs. Hits come by score if the query asks for words, else the "
            "latest first; `next_search_after` of a full page is `search_after` of the next one.",
            example={"q": "service:billing status:>=500", "size": 20, "sort": ["at:desc"]},
        ),
        Route(
            "POST", f"{TOPIC}/aggregate", search.aggregate, "Count and measure the records by time",
            _replies(
                {
                    200: Described(wire.AggregateReply, "Windows of the rollup, to the head of the topic"),
                    408: Described(wire.AggregateReply, "What was counted before the time was up"),
                },
                Code.INVALID, Code.LOG_NOT_FOUND, Code.LOG_INCOMPATIBLE, Code.BODY_TOO_LARGE,
                Code.MEDIA_TYPE,
            ),
            request=wire.AggregateRequest, parameters=(_NAME,), scope=Scope.READ, group="Search",
            description="By a rollup of the search configuration. `from` is inclusive, `to` is not; "
            "both are RFC 3339, milliseconds since 1970 as a number, or nanoseconds as text.",
            example={
                "rollup": "latency", "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z",
                "interval": "1m", "q": "status:>=500", "group_by": ["service"],
            },
        ),
        Route(
            "DELETE", f"{TOPIC}/search", search.delete, "Let records not be searched any more",
            _replies(
                {200: Described(wire.SearchDropReply, "There is no configuration any more")},
                Code.INVALID, Code.LOG_NOT_FOUND, Code.LOG_INCOMPATIBLE, Code.READ_ONLY,
            ),
            parameters=(_NAME,), scope=Scope.ADMIN, group="Search",
        ),
        Route(
            "PUT", ROUTER, routers.put, "Create or change a router",
            _replies(
                {
                    200: Described(wire.RouterReply, "The router existed; it works like this now"),
                    201: Described(wire.RouterReply, "The router is new"),
                },
                Code.INVALID, Code.LOG_NOT_FOUND, Code.ROUTER_CYCLE, Code.LOG_INCOMPATIBLE,
                Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.RouterRequest, parameters=(_ROUTER,), scope=Scope.ADMIN, group="Routers",
            description="Every record appended to `source` from now on is copied to `dest`, beside the "
            "writes. Topics that are not there are created. A new source or dest begins anew. "
            "`from_seq` of a new router copies what lies behind that seq first. "
            '`filter` is a tag, `["tag","Eq","X"]` or `["tag","Glob","X*"]`.',
            example={"source": "orders", "dest": "audit"},
        ),
        Route(
            "GET", ROUTER, routers.get, "Where a router stands",
            _replies(
                {200: Described(wire.RouterStateReply, "Its rule, and how much it has copied")},
                Code.INVALID, Code.ROUTER_NOT_FOUND,
            ),
            parameters=(_ROUTER,), scope=Scope.READ, group="Routers",
        ),
        Route(
            "GET", "/v0/routers", routers.list_all, "List routers by name",
            _replies({200: Described(wire.RouterListReply, "One page")}, Code.INVALID),
            parameters=(
                Parameter("prefix", str, "Only names that start with this"),
                Parameter("source", str, "Only those from this topic"),
                Parameter("dest", str, "Only those to this topic"),
                Parameter("page_size", int, "1 to 1000", default=100),
                Parameter("cursor", str, "`next_cursor` of the page before"),
            ),
            scope=Scope.READ, group="Routers",
        ),
        Route(
            "DELETE", ROUTER, routers.delete, "Delete a router",
            _replies({200: Described(wire.RouterDropReply, "It forwards no more")}, Code.INVALID),
            parameters=(_ROUTER,), scope=Scope.DELETE, group="Routers",
            description="What it copied stays.",
        ),
        Route(
            "POST", "/v0/watch", watch.post, "Begin to watch topics",
            _replies(
                {200: Described(wire.WatchReply, "A session; open its stream with GET `stream_url`")},
                Code.INVALID, Code.LOG_NOT_FOUND, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
            ),
            request=wire.WatchRequest,
            parameters=(Parameter("lenient", bool, "Leave unknown topics out", default=False),),
            scope=Scope.READ, group="Watch",
            description="A name that ends in `*` stands for all topics that begin like it, also for "
            "those to come. `cursor` is the id of an event: it wins over `from_seq`.",
            example={"topics": {"jobs": {"from_seq": 0}, "tenant42:*": {"tail": True}}},
        ),
        Route(
            "GET", "/v0/watch/{wid}", watch.get, "Open the stream of a session",
            _replies(
                {200: Described(str, "Server-sent events, until one side hangs up", media=EVENT_STREAM)},
                Code.INVALID, Code.NOT_FOUND, Code.NOT_ACCEPTABLE,
            ),
            parameters=(
                Parameter("wid", str, "The session", place="path"),
                Parameter("Last-Event-ID", str, "Go back to behind this event", place="header"),
                Parameter("cursor", str, "The same, for clients that cannot send headers"),
                Parameter("token", str, "The key, for a browser's EventSource; prefer the header"),
            ),
            scope=Scope.READ, group="Watch", authenticate=by_nothing,
            description="Events: `record`, `tombstone`, `caught-up`, `topic-deleted`, `error`. Needs "
            "the key that made the session. A second stream of a session ends the first.",
        ),
        Route(
            "GET", "/v0/ws", socket, "Open a WebSocket",
            _replies(
                {
                    101: Described(str, "JSON messages both ways: commands and answers"),
                    426: Described(ErrorReply, "`invalid_request`: no upgrade was asked for"),
                },
                Code.INVALID,
            ),
            scope=NO_SCOPE, group="Watch", authenticate=by_key_or_subprotocol,
            description="Commands: `subscribe` (scope read), `unsubscribe`, `publish` (write; with "
            "`config` also admin), `ping`. A browser offers the sub-protocols `bearer` and its key.",
        ),
    ]  # fmt: skip
