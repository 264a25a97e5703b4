"""The notifications surface: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.errors import Code
from headrace.observe import Sample
from headrace.surfaces.notifications import wire
from headrace.surfaces.notifications.admin import AdminRoutes
from headrace.surfaces.notifications.authentication import Authentication
from headrace.surfaces.notifications.errors import (
    API,
    REFUSALS,
    AdminReply,
    NotificationError,
    refuser,
)
from headrace.surfaces.notifications.metrics import NotificationMetrics
from headrace.surfaces.notifications.routes import NotificationRoutes, health
from headrace.web.calls import by_nothing
from headrace.web.credentials import Principal, Scope
from headrace.web.event_streams import EVENT_STREAM
from headrace.web.request import Request
from headrace.web.surface import Described, Handler, Parameter, Route, Surface, with_refusals

_SECURITY: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
_NOTIFICATION = {
    "event_type": "storm",
    "identifier": {
        "region": "north",
        "severity": "4",
        "polygon": "52.5,13.4,52.6,13.5,52.5,13.6,52.5,13.4",
    },
    "payload": {"file": "a.grib"},
}
_WATCH = {"event_type": "storm", "identifier": {"region": "north", "severity": {"gte": 5}}}
_REPLAY = {"event_type": "storm", "identifier": {"region": "north"}, "from_id": "1"}


def surface(
    routes: NotificationRoutes,
    admin: AdminRoutes,
    authentication: Authentication,
    metrics: NotificationMetrics,
    *,
    takes_passwords: bool,
) -> Surface:
    """The surface, over everything that is configured."""

    def observe(request: Request, path: str | None, status: int) -> None:
        metrics.requests.add(path, request.method, status)

    def samples(principal: Principal) -> Sequence[Sample]:
        return metrics.samples()

    return Surface(
        name="notifications",
        title="Notifications",
        prefixes=(f"{API}/",),
        routes=[
            *_notifications(routes, authentication),
            *_schemas(routes),
            *_admin(admin, authentication),
            Route(
                "GET", "/health", health, "Is the process alive",
                {200: Described(wire.HealthReply, "Yes")}, group="Probes", head=True,
                authenticate=by_nothing,
            ),
        ],
        refusals=REFUSALS,
        refuse=refuser(takes_passwords=takes_passwords),
        authenticate=authentication.by_header,
        security=_SECURITY,
        observe=observe,
        samples=samples,
        openapi_path="/api-docs/openapi.json",
    )  # fmt: skip


def _notifications(routes: NotificationRoutes, authentication: Authentication) -> list[Route]:
    group = "Notifications"
    events = Described(str, "Frames: control frames, CloudEvents, heartbeats", EVENT_STREAM)
    said = {200: Described(wire.NotifyReply, "Stored")}

    def stream(path: str, handler: Handler, summary: str, example: Any, description: str) -> Route:
        return Route(
            "POST", f"{API}/{path}", handler, summary, _replies({200: events}, Code.INVALID),
            request=wire.NotificationRequest, scope=Scope.READ, group=group, lives_long=True,
            example=example, description=description,
        )  # fmt: skip

    return [
        Route(
            "POST", f"{API}/notification", routes.notify, "Notify",
            _replies(said, Code.INVALID, Code.BODY_TOO_LARGE),
            request=wire.NotificationRequest, scope=Scope.WRITE, group=group,
            example=_NOTIFICATION,
            description="Names every field of the schema with one value.",
        ),
        Route(
            "POST", f"{API}/wis2/{{event_type}}", routes.notify_wis2, "Notify with a WIS2 message",
            _replies(said, Code.INVALID, Code.BODY_TOO_LARGE),
            request=dict[str, Any], scope=Scope.WRITE, group=group,
            parameters=(Parameter("event_type", str, "Its name", place="path", example="storm"),),
            description="The map wis2 of the event type says where its identifier is.",
        ),
        stream(
            "watch", routes.watch, "Watch", _WATCH,
            "Delivers notifications as they come; with from_id or from_date those of the past first.",
        ),
        stream(
            "replay", routes.replay, "Replay", _REPLAY,
            "Delivers notifications of the past, from from_id or from_date on, and ends.",
        ),
        Route(
            "GET", f"{API}/watch", routes.watch_events, "Watch with an EventSource",
            _replies({200: events}, Code.INVALID), scope=Scope.READ, group=group, lives_long=True,
            authenticate=authentication.by_header_or_token,
            parameters=(
                Parameter("event_type", str, "What to watch", example="storm"),
                Parameter("identifier", str, "Which, as JSON", example='{"region":"north"}'),
                Parameter("from_id", str, "Begin with this notification of the past"),
                Parameter("from_date", str, "Begin at this time"),
                Parameter("format", str, "cloudevents, or wis2 for messages of WIS2"),
                Parameter("token", str, "The token, where no header can be sent"),
                Parameter(
                    "Last-Event-ID", str, "Go on behind this one; wins over the others",
                    place="header",
                ),
            ),
        ),
    ]  # fmt: skip


def _schemas(routes: NotificationRoutes) -> list[Route]:
    unknown = Described(wire.UnknownSchemaReply, "There is no such event type")
    return [
        Route(
            "GET", f"{API}/schema", routes.list_schemas, "All event types",
            {200: Described(wire.SchemaListReply, "What each takes")}, group="Schemas", head=True,
            authenticate=by_nothing,
        ),
        Route(
            "GET", f"{API}/schema/{{event_type}}", routes.get_schema, "One event type",
            {200: Described(wire.SchemaReply, "What it takes"), 404: unknown}, group="Schemas",
            head=True,
            parameters=(Parameter("event_type", str, "Its name", place="path", example="storm"),),
            authenticate=by_nothing,
        ),
    ]  # fmt: skip


def _admin(admin: AdminRoutes, authentication: Authentication) -> list[Route]:
    done = Described(AdminReply, "Done")
    missing = Described(AdminReply, "There is no such thing")

    def route(path: str, handler: Handler, summary: str, **more: Any) -> Route:
        return Route(
            "DELETE", f"{API}/admin/{path}", handler, summary,
            _replies({200: done, 404: missing}), scope=Scope.ADMIN, group="Admin",
            authenticate=authentication.by_admin_header, **more,
        )  # fmt: skip

    id = Parameter("id", str, "<event type>@<number>", place="path", example="storm@17")
    return [
        route("notification/{id}", admin.delete, "Delete a notification", parameters=(id,)),
        route(
            "wipe/stream", admin.wipe_one, "Delete all notifications of a type",
            request=wire.WipeRequest, example={"stream_name": "STORM"},
        ),
        route("wipe/all", admin.wipe_all, "Delete all notifications"),
    ]  # fmt: skip


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    return with_refusals(ok, codes, REFUSALS, NotificationError)
