"""The routes of trackers and webhooks: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from headrace.core.errors import Code
from headrace.surfaces.topics import consumer_wire as wire
from headrace.surfaces.topics import webhooks
from headrace.surfaces.topics.errors import REFUSALS
from headrace.surfaces.topics.trackers import TrackerRoutes
from headrace.web.credentials import Scope
from headrace.web.envelope import ErrorReply
from headrace.web.surface import Described, OutgoingCall, Parameter, Route, with_refusals

TRACKER = "/v0/trackers/{name}"
WEBHOOK = "/v0/webhooks/{name}"

_TRACKER = Parameter("name", str, "The tracker: 1 to 255 of A-Z a-z 0-9 . _ : -", place="path")
_WEBHOOK = Parameter("name", str, "The webhook: 1 to 255 of A-Z a-z 0-9 . _ : -", place="path")
_PAGE = (
    Parameter("prefix", str, "Only names that start with this"),
    Parameter("page_size", int, "1 to 1000", default=100),
    Parameter("cursor", str, "`next_cursor` of the page before"),
)


DELIVERY = OutgoingCall(
    summary="A delivery of a webhook",
    description="Records in order, each at least once; the next batch comes when this one was taken. "
    "Verify `webhook-signature` as Standard Webhooks says, and ignore deliveries whose `webhook-id` is known.",
    request=wire.WebhookPayload,
    parameters=(
        Parameter(
            "webhook-id", str, "Of the delivery: the same with every attempt", place="header"
        ),
        Parameter(
            "webhook-timestamp", int, "When it was sent, in seconds since 1970", place="header"
        ),
        Parameter(
            "webhook-signature",
            str,
            "`v1,` and base64, for each secret that counts",
            place="header",
        ),
    ),
    replies={
        200: "Any 2xx: it was taken",
        410: "Nothing more is wanted: the webhook is `disabled`",
        429: "Tried again later, at the earliest after `Retry-After`; so are all other answers, redirects included",
    },
)


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    return with_refusals(ok, codes, REFUSALS, ErrorReply)


def consumer_routes(trackers: TrackerRoutes) -> list[Route]:
    """The routes with these handlers."""
    return [
        Route(
            "PUT", TRACKER, trackers.put, "Create a tracker",
            _replies(
                {
                    200: Described(wire.TrackerReply, "The tracker existed and is as it was"),
                    201: Described(wire.TrackerReply, "The tracker is new"),
                },
                Code.INVALID, Code.LOG_NOT_FOUND, Code.CONFLICT, Code.LOG_INCOMPATIBLE,
                Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.TrackerRequest, parameters=(_TRACKER,), scope=Scope.READ | Scope.WRITE,
            group="Trackers",
            description="A cursor that the server keeps, over a topic or a stream of JSON. One whose "
            "source was deleted begins anew with the log that has the name now.",
            example={"source": "orders", "start_from": "earliest"},
        ),
        Route(
            "GET", TRACKER, trackers.get, "Where a tracker stands",
            _replies(
                {200: Described(wire.TrackerState, "Its cursor, and who holds it")},
                Code.INVALID, Code.TRACKER_NOT_FOUND,
            ),
            parameters=(_TRACKER,), scope=Scope.READ, group="Trackers",
        ),
        Route(
            "GET", "/v0/trackers", trackers.list_all, "List trackers by name",
            _replies({200: Described(wire.TrackerListReply, "One page")}, Code.INVALID),
            parameters=_PAGE, scope=Scope.READ, group="Trackers",
        ),
        Route(
            "DELETE", TRACKER, trackers.delete, "Delete a tracker",
            _replies({200: Described(wire.TrackerDropReply, "It is gone")}, Code.INVALID),
            parameters=(_TRACKER,), scope=Scope.DELETE, group="Trackers",
        ),
        Route(
            "POST", f"{TRACKER}/poll", trackers.poll, "Acknowledge records and get the next ones",
            _replies(
                {200: Described(wire.PollReply, "Records, perhaps none; the node holds the lease")},
                Code.INVALID, Code.TRACKER_NOT_FOUND, Code.TRACKER_LEASED, Code.FENCED,
                Code.CURSOR_EXPIRED, Code.SOURCE_DELETED, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
                Code.READ_ONLY,
            ),
            request=wire.PollRequest, parameters=(_TRACKER,), scope=Scope.READ | Scope.WRITE,
            group="Trackers",
            description="Records come again until `ack_seq` says that they are handled. A node holds "
            "the tracker for 60 s behind each poll; others get `tracker_leased` meanwhile.",
            example={"node": "worker-1", "ack_seq": 12, "limit": 100},
        ),
        Route(
            "PUT", WEBHOOK, webhooks.put, "Create or change a webhook",
            _replies(
                {
                    200: Described(wire.WebhookReply, "The webhook existed; it works like this now"),
                    201: Described(wire.WebhookReply, "The webhook is new; `secret`, if the server drew it"),
                },
                Code.INVALID, Code.URL_REJECTED, Code.LOG_NOT_FOUND, Code.CONFLICT, Code.LOG_INCOMPATIBLE,
                Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.WebhookRequest, parameters=(_WEBHOOK,), scope=Scope.READ | Scope.ADMIN,
            group="Webhooks",
            description="Records of `source` that come from now on are posted to `url`, in batches. A webhook that "
            "was `failing` or `disabled` goes on. "
            '`filter` is a tag, `["tag","Eq","X"]` or `["tag","Glob","X*"]`.',
            example={"source": "orders", "url": "https://example.com/hook", "batch": {"max_records": 50, "delay_ms": 1000}},
        ),
        Route(
            "GET", WEBHOOK, webhooks.get, "Where a webhook stands",
            _replies(
                {200: Described(wire.WebhookState, "What it is, how far it came, and how it goes")},
                Code.INVALID, Code.WEBHOOK_NOT_FOUND,
            ),
            parameters=(_WEBHOOK,), scope=Scope.READ, group="Webhooks",
        ),
        Route(
            "GET", "/v0/webhooks", webhooks.list_all, "List webhooks by name",
            _replies({200: Described(wire.WebhookListReply, "One page")}, Code.INVALID),
            parameters=_PAGE, scope=Scope.READ, group="Webhooks",
        ),
        Route(
            "DELETE", WEBHOOK, webhooks.delete, "Delete a webhook with its dead letters",
            _replies({200: Described(wire.WebhookDropReply, "It is gone")}, Code.INVALID),
            parameters=(_WEBHOOK,), scope=Scope.DELETE, group="Webhooks",
        ),
        Route(
            "POST", f"{WEBHOOK}/test", webhooks.test, "Send a delivery without records",
            _replies(
                {200: Described(wire.WebhookTestReply, "Whether the receiver took it")},
                Code.INVALID, Code.WEBHOOK_NOT_FOUND,
            ),
            parameters=(_WEBHOOK,), scope=Scope.ADMIN, group="Webhooks",
            description="Whatever the status of the webhook; it is kept nowhere and changes nothing.",
        ),
        Route(
            "GET", f"{WEBHOOK}/deliveries", webhooks.deliveries, "The last 100 attempts to deliver",
            _replies(
                {200: Described(wire.WebhookAttemptsReply, "The newest first")},
                Code.INVALID, Code.WEBHOOK_NOT_FOUND,
            ),
            parameters=(_WEBHOOK,), scope=Scope.READ, group="Webhooks",
        ),
        Route(
            "GET", f"{WEBHOOK}/dead-letters", webhooks.dead_letters, "Batches that nobody took",
            _replies(
                {200: Described(wire.DeadLettersReply, "One page, the oldest first")},
                Code.INVALID, Code.WEBHOOK_NOT_FOUND,
            ),
            parameters=(
                _WEBHOOK,
                Parameter("after", int, "Behind this `number`", default=0),
                Parameter("limit", int, "1 to 1000", default=100),
            ),
            scope=Scope.READ, group="Webhooks",
        ),
        Route(
            "POST", f"{WEBHOOK}/dead-letters/replay", webhooks.replay, "Send dead letters again",
            _replies(
                {200: Described(wire.ReplayReply, "How many were taken, and are gone")},
                Code.INVALID, Code.WEBHOOK_NOT_FOUND, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.ReplayRequest, parameters=(_WEBHOOK,), scope=Scope.ADMIN, group="Webhooks",
            description="The oldest first, under the ids they had; the first that is not taken ends it.",
            example={"limit": 100},
        ),
    ]  # fmt: skip
