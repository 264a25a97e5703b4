"""The feeds surface: which path takes which handler, and what its documentation says.

Everything is found below `/tenants`, and the same below `/api/tenants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.core.errors import Code
from headrace.core.limits import (
    EVENTS_PAGE_DEFAULT,
    EVENTS_PAGE_MAX,
    FEED_FILTER_VALUES_MAX,
    FEED_WAIT_S_MAX,
    LIST_PAGE_DEFAULT,
    LIST_PAGE_MAX,
    NODE_ID_LENGTH_MAX,
    TENANT_LENGTH_MAX,
    TENANT_LENGTH_MIN,
)
from headrace.observe import Sample
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.api_keys import ApiKeyRoutes
from headrace.surfaces.feeds.consumer_routes import ConsumerRoutes
from headrace.surfaces.feeds.errors import (
    PROBLEM,
    REFUSALS,
    VENDOR,
    FeedError,
    FeedProblem,
    refuse,
)
from headrace.surfaces.feeds.metrics import FeedMetrics
from headrace.surfaces.feeds.names import TENANT_PATTERN
from headrace.surfaces.feeds.permissions import MANAGERS, READERS, WRITERS
from headrace.surfaces.feeds.routes import FeedRoutes
from headrace.surfaces.feeds.subscriptions import FeedSubscriptionRoutes
from headrace.surfaces.feeds.trackers import FeedTrackerRoutes
from headrace.web.calls import by_api_key
from headrace.web.credentials import Principal, Scope
from headrace.web.event_streams import EVENT_STREAM
from headrace.web.request import Request
from headrace.web.surface import (
    Described,
    Handler,
    OutgoingCall,
    Parameter,
    Route,
    Surface,
    with_refusals,
)

BASES = ("", "/api")
TENANT = "/tenants/{tenantId}"
_SECURITY: dict[str, Any] = {
    "bearer": {
        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
        "description": "A JSON Web Token with the claims roles and allowed_tenants, or an API key.",
    },
    "apiKey": {
        "type": "apiKey", "in": "header", "name": "X-API-Key",
        "description": "Also as Authorization: ApiKey <key>.",
    },
}  # fmt: skip
_EVENT = {
    "id": "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
    "type": "version.published",
    "resourceRef": {
        "resourceType": "version",
        "resourceId": "3",
        "parentRefs": {"templateId": "invoice", "variantId": "english"},
    },
    "actor": {"type": "user", "identifier": "jane@acme-corp.com"},
    "data": {"versionId": 3, "status": "published"},
}
_Tenant = Annotated[
    str,
    Meta(pattern=TENANT_PATTERN, min_length=TENANT_LENGTH_MIN, max_length=TENANT_LENGTH_MAX),
]
_READ = {
    "ListEvents": {
        "operationId": "listEvents", "parameters": {"tenantId": "$request.path.tenantId"},
        "description": "The events of the tenant.",
    },
}  # fmt: skip
_REVOKE = {
    "RevokeApiKey": {
        "operationId": "revokeApiKey",
        "parameters": {"tenantId": "$request.path.tenantId", "keyId": "$response.body#/id"},
        "description": "The end of this key.",
    },
}
_SUBSCRIPTION = Parameter("subscriptionId", str, "Its id", place="path", example="sub-001")
_TRACKER = Parameter("trackerId", _Tenant, "A slug", place="path", example="shop-cache")
_Node = Annotated[str, Meta(min_length=1, max_length=NODE_ID_LENGTH_MAX)]
_LIST_LIMIT = Parameter(
    "limit", Annotated[int, Meta(ge=1, le=LIST_PAGE_MAX)], "How many at most",
    default=LIST_PAGE_DEFAULT,
)  # fmt: skip
_LISTING = (Parameter("after", _Tenant, "Only those whose id sorts behind this one"), _LIST_LIMIT)
_SUBSCRIPTION_EXAMPLE = {
    "callbackUrl": "https://my-app.example.com/epistola/events",
    "filters": {"resourceTypes": ["version", "activation"], "templateIds": ["invoice"]},
    "batchSettings": {"maxBatchSize": 50, "maxDelaySeconds": 5},
}
_SUBSCRIBED = {
    operation: {
        "operationId": operation,
        "parameters": {
            "tenantId": "$request.path.tenantId",
            "subscriptionId": "$response.body#/id",
        },
    }
    for operation in ("getSubscription", "updateSubscription", "deleteSubscription")
}
_TRACKED = {
    "pollTracker": {
        "operationId": "pollTracker",
        "parameters": {
            "tenantId": "$request.path.tenantId",
            "trackerId": "$request.path.trackerId",
        },
    }
}
DELIVERY = OutgoingCall(
    summary="Events for the callback URL of a subscription",
    description="At least once, in order; the next batch comes when this one was taken. Ignore deliveries"
    " whose id is known.",
    request=wire.EventDelivery,
    media=VENDOR,
    group="Events",
    parameters=(
        Parameter(
            "X-Epistola-Signature", str, "sha256= and the HMAC of the body in hex; the secret is the key",
            place="header", required=True,
        ),
        Parameter("X-Epistola-Delivery-Id", str, "The same with every attempt", place="header", required=True),
        Parameter("webhook-id", str, "The same id, as Standard Webhooks has it", place="header", required=True),
        Parameter("webhook-timestamp", int, "When it was sent, in seconds since 1970", place="header", required=True),
        Parameter(
            "webhook-signature", str, "`v1,` and base64, for each secret that counts", place="header", required=True
        ),
    ),
    replies={
        200: "Any 2xx: it was taken",
        410: "Nothing more is wanted: the subscription is `disabled`",
        429: "Tried again later, at the earliest after `Retry-After`; so are all other answers",
    },
)  # fmt: skip
_FilterText = Annotated[str, Meta(min_length=1)]
_TENANT = Parameter("tenantId", _Tenant, "Its slug", place="path", example="acme-corp")
_AFTER = Parameter(
    "after", wire.SequenceNumber, "Only events behind this sequence number; 0: from the beginning",
)  # fmt: skip
_FILTERS = (
    Parameter(
        "resourceType",
        Annotated[list[wire.ResourceType], Meta(max_length=FEED_FILTER_VALUES_MAX)],
        "Only events about such resources; of several, any",
    ),
    Parameter(
        "eventType",
        Annotated[list[_FilterText], Meta(max_length=FEED_FILTER_VALUES_MAX)],
        "Only events of such types; of several, any",
    ),
    Parameter("templateId", _FilterText, "Only events about this template, or something of it"),
    Parameter(
        "environmentId", _FilterText, "Only events about this environment, or something of it"
    ),
)


def surface(
    events: FeedRoutes,
    subscriptions: FeedSubscriptionRoutes,
    trackers: FeedTrackerRoutes,
    api_keys: ApiKeyRoutes,
    consumers: ConsumerRoutes,
    metrics: FeedMetrics,
) -> Surface:
    """The surface, over everything that is configured."""

    def observe(request: Request, path: str | None, status: int) -> None:
        metrics.requests.add(path, request.method, status)

    def samples(principal: Principal) -> Sequence[Sample]:
        return metrics.samples()

    routes = [
        *_events(events),
        *_subscriptions(subscriptions),
        *_trackers(trackers),
        *_api_keys(api_keys),
        *_consumers(consumers),
    ]
    return Surface(
        name="feeds",
        title="Feeds",
        prefixes=tuple(f"{base}/tenants" for base in BASES),
        routes=[_below(base, route) for base in BASES for route in routes],
        refusals=REFUSALS,
        refuse=refuse,
        authenticate=by_api_key,
        security=_SECURITY,
        observe=observe,
        samples=samples,
        webhooks={"eventDelivery": DELIVERY},
        servers=tuple(base or "/" for base in BASES),
    )


def _below(base: str, route: Route) -> Route:
    """The route below another path: told of once, in the document as one of its servers."""
    if not base:
        return route
    return msgspec.structs.replace(route, path=base + route.path, summary="")


# --- events ---------------------------------------------------------------------------------------


def _events(routes: FeedRoutes) -> list[Route]:
    group = "Events"
    page = Described(wire.EventFeedResponse, "A page", VENDOR)
    frames = Described(str, "Events as they come, and heartbeats", EVENT_STREAM)
    return [
        Route(
            "POST", f"{TENANT}/events", routes.append, "Store events",
            _replies(
                {201: Described(wire.EventReceipt, "Stored, all of them", VENDOR, links=_READ)},
                Code.INVALID, Code.NOT_ACCEPTABLE, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
            ),
            request=(wire.EventInput, wire.EventBatch), media=VENDOR, requires_body=True,
            scope=Scope.WRITE, roles=WRITERS, operation="storeEvents", group=group,
            parameters=(_TENANT,), example=_EVENT,
            description="As application/json, too. One event, or a batch of which all or none are stored. An id is stored once,"
            " whichever way it is sent again; left out, the server gives one. `tenantId` may be sent"
            " and is that of the path; `timestamp` and `sequenceNumber` are the server's to give."
            " `generator` writes generation.* only. A tenant is there from its first event on.",
        ),
        Route(
            "GET", f"{TENANT}/events", routes.poll, "Read events",
            _replies(
                {200: page}, Code.INVALID, Code.NOT_FOUND, Code.NOT_ACCEPTABLE, Code.GONE,
            ),
            scope=Scope.READ, roles=READERS, operation="listEvents", group=group, head=True,
            parameters=(
                _TENANT, _AFTER,
                Parameter(
                    "limit", Annotated[int, Meta(ge=1, le=EVENTS_PAGE_MAX)],
                    "How many at most", default=EVENTS_PAGE_DEFAULT,
                ),
                Parameter(
                    "timeout", Annotated[int, Meta(ge=1, le=FEED_WAIT_S_MAX)],
                    "How many seconds to wait for an event; left out: not at all",
                ),
                *_FILTERS,
            ),
            description="In order, without gaps. The cursor is the highest sequence number that was"
            " looked at, also where filters left out what was there: ask for what is after it.",
        ),
        Route(
            "GET", f"{TENANT}/events/stream", routes.follow, "Follow events",
            _replies(
                {200: frames}, Code.INVALID, Code.NOT_FOUND, Code.NOT_ACCEPTABLE, Code.GONE,
            ),
            scope=Scope.READ, roles=READERS, operation="streamEvents", group=group, lives_long=True,
            parameters=(
                _TENANT, _AFTER, *_FILTERS,
                Parameter(
                    "Last-Event-ID", str, "Behind this one; wins over after if it is a number",
                    place="header",
                ),
            ),
            description="Each event has its sequence number as id and its type as name. Without"
            " after and Last-Event-ID: what comes from now on.",
        ),
    ]  # fmt: skip


# --- subscriptions and trackers -------------------------------------------------------------------


def _subscriptions(routes: FeedSubscriptionRoutes) -> list[Route]:
    all_of, one = (
        f"{TENANT}/event-subscriptions",
        f"{TENANT}/event-subscriptions/{{subscriptionId}}",
    )

    def route(
        method: str,
        path: str,
        handler: Handler,
        summary: str,
        operation: str,
        status: int,
        reply: Any,
        *codes: Code,
        **more: Any,
    ) -> Route:
        reads = method == "GET"
        described = Described(reply, "Done" if reply is None else summary, VENDOR)
        if path == all_of and method == "POST":
            described = described._replace(links=_SUBSCRIBED)
        own = (_TENANT,) if path == all_of else (_TENANT, _SUBSCRIPTION)
        return Route(
            method, path, handler, summary,
            _replies({status: described}, Code.INVALID, Code.NOT_FOUND, Code.NOT_ACCEPTABLE, *codes),
            scope=Scope.READ if reads else Scope.ADMIN, roles=READERS if reads else MANAGERS,
            operation=operation, group="Events", media=VENDOR, head=reads,
            parameters=(*own, *more.pop("parameters", ())), **more,
        )  # fmt: skip

    body = (Code.BODY_TOO_LARGE, Code.MEDIA_TYPE)
    return [
        route("POST", all_of, routes.create, "Subscribe to events", "createSubscription", 201, wire.Subscription, *body,
              request=wire.SubscriptionRequest, requires_body=True, example=_SUBSCRIPTION_EXAMPLE,
              description="Begins with what comes from now on. The secret is told here, if the server drew it."),
        route("GET", all_of, routes.list, "List subscriptions", "listSubscriptions", 200, wire.SubscriptionList,
              parameters=_LISTING),
        route("GET", one, routes.get, "A subscription", "getSubscription", 200, wire.Subscription),
        route("PATCH", one, routes.change, "Change a subscription", "updateSubscription", 200, wire.Subscription, *body,
              request=wire.SubscriptionPatch, requires_body=True, example={"status": "active"}),
        route("DELETE", one, routes.delete, "End a subscription", "deleteSubscription", 204, None),
        route("POST", f"{one}/test", routes.test, "Send a test event", "testSubscription", 200, wire.TestResult),
        route("GET", f"{one}/deliveries", routes.deliveries, "The last hundred attempts", "listDeliveries", 200, wire.DeliveryList),
        route("GET", f"{one}/dead-letters", routes.dead_letters, "Batches that were given up", "listDeadLetters", 200, wire.DeadLetterList,
              parameters=(Parameter("after", wire.SequenceNumber, "Only those behind this number"), _LIST_LIMIT)),
        route("POST", f"{one}/dead-letters/replay", routes.replay, "Send dead letters again", "replayDeadLetters", 200, wire.DeadLetterReplay),
    ]  # fmt: skip


def _trackers(routes: FeedTrackerRoutes) -> list[Route]:
    one = f"{TENANT}/trackers/{{trackerId}}"

    def route(
        method: str,
        path: str,
        handler: Handler,
        summary: str,
        operation: str,
        ok: dict[int, Any],
        *codes: Code,
        **more: Any,
    ) -> Route:
        own = (_TENANT, _TRACKER) if "trackerId" in path else (_TENANT,)
        return Route(
            method, path, handler, summary,
            _replies(
                {
                    status: Described(
                        type, summary, VENDOR, links=_TRACKED if status == 201 else {}
                    )
                    for status, type in ok.items()
                },
                Code.INVALID, Code.NOT_FOUND, Code.NOT_ACCEPTABLE, *codes,
            ),
            scope=Scope.READ, roles=READERS, operation=operation, group="Events", media=VENDOR,
            head=method == "GET", parameters=(*own, *more.pop("parameters", ())), **more,
        )  # fmt: skip

    body = (Code.BODY_TOO_LARGE, Code.MEDIA_TYPE)
    return [
        route("PUT", one, routes.put, "Make a tracker, or find it", "putTracker", {201: wire.Tracker, 200: wire.Tracker}, Code.CONFLICT, *body,
              request=wire.TrackerRequest, example={"startFrom": "earliest"}),
        route("GET", f"{TENANT}/trackers", routes.list, "List trackers", "listTrackers", {200: wire.TrackerList}, parameters=_LISTING),
        route("GET", one, routes.get, "A tracker", "getTracker", {200: wire.Tracker}),
        route("DELETE", one, routes.delete, "End a tracker", "deleteTracker", {204: None}),
        route("POST", f"{one}/poll", routes.poll, "Acknowledge, and take what comes next", "pollTracker", {200: wire.EventFeedResponse},
              Code.TRACKER_LEASED, Code.CURSOR_EXPIRED, *body,
              request=wire.PollRequest, example={"acknowledgeUpTo": 508, "limit": 100},
              parameters=(Parameter("X-EP-Node-Id", _Node, "Which node polls: one is active at a time, for 60 s behind each poll", place="header", required=True),)),
    ]  # fmt: skip


# --- API keys -------------------------------------------------------------------------------------


def _api_keys(routes: ApiKeyRoutes) -> list[Route]:
    group = "API keys"
    return [
        Route(
            "POST", f"{TENANT}/api-keys", routes.create, "Make an API key",
            _replies(
                {
                    201: Described(
                        wire.NewApiKey, "Made; the key is told here and never again", VENDOR,
                        links=_REVOKE,
                    )
                },
                Code.INVALID, Code.NOT_ACCEPTABLE, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
            ),
            request=wire.ApiKeyRequest, media=VENDOR, requires_body=True, scope=Scope.ADMIN,
            roles=MANAGERS, operation="createApiKey", group=group, parameters=(_TENANT,),
            example={"name": "cache of the shop", "roles": ["reader"]},
        ),
        Route(
            "GET", f"{TENANT}/api-keys", routes.list, "List API keys",
            _replies(
                {200: Described(wire.ApiKeyList, "All of the tenant", VENDOR)},
                Code.INVALID, Code.NOT_ACCEPTABLE,
            ),
            scope=Scope.ADMIN, roles=MANAGERS, operation="listApiKeys", group=group, head=True,
            parameters=(_TENANT,),
        ),
        Route(
            "DELETE", f"{TENANT}/api-keys/{{keyId}}", routes.revoke, "Revoke an API key",
            _replies({204: Described(None, "Revoked, and what was opened with it has ended")}, Code.INVALID, Code.NOT_FOUND),
            scope=Scope.ADMIN, roles=MANAGERS, operation="revokeApiKey", group=group,
            parameters=(_TENANT, Parameter("keyId", str, "Its id", place="path")),
        ),
    ]  # fmt: skip


# --- consumers ------------------------------------------------------------------------------------


def _consumers(routes: ConsumerRoutes) -> list[Route]:
    return [
        Route(
            "GET", f"{TENANT}/consumers", routes.list, "List connected consumers",
            _replies(
                {200: Described(wire.FeedConsumerList, "Those that are connected now", VENDOR)},
                Code.INVALID, Code.NOT_FOUND, Code.NOT_ACCEPTABLE,
            ),
            scope=Scope.READ, roles=READERS, operation="listConsumers", group="Consumers",
            head=True, parameters=(_TENANT,),
            description="Consumers that have subscribed to the tenant over gRPC, and live: they"
            " said something within the last minute.",
        ),
    ]  # fmt: skip


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    """The replies of an endpoint; refusals come in both shapes."""
    replies = with_refusals(ok, codes, REFUSALS, FeedError)
    return {
        status: reply._replace(media=VENDOR, also={PROBLEM: FeedProblem})
        if reply.type is FeedError
        else reply
        for status, reply in replies.items()
    }
