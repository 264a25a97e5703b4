"""`GET /api/v1/events`: who may open a stream of changes, and what for."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.errors import Code, Refused
from headrace.core.limits import EVENTS_QUERY_BYTES_MAX
from headrace.core.owners import FLAGS
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.flags.subscription import FlagSubscription, SubscriptionRefused, parse_subscription
from headrace.surfaces.flags.deliveries import Deliveries
from headrace.surfaces.flags.errors import INVALID_SUBSCRIPTION
from headrace.surfaces.flags.following import FlagStream, FlagStreamPlan, FlagStreamRules
from headrace.surfaces.flags.names import log_of
from headrace.surfaces.flags.permissions import require_manifest_read
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.web.answers import Handover, Headers
from headrace.web.calls import Call, Gate, by_key
from headrace.web.concurrency import Slots
from headrace.web.credentials import Principal
from headrace.web.event_streams import EVENT_STREAM, check_accepts, open_events
from headrace.web.request import Request

_HEADERS: Headers = [("content-type", EVENT_STREAM), ("cache-control", "no-cache")]


def by_key_and_query(gate: Gate, req: Request) -> Principal:
    """Who asks; before that, a query that is too long is refused."""
    if len(req.query) > EVENTS_QUERY_BYTES_MAX:
        raise Refused(Code.URI_TOO_LONG, f"a query has at most {EVENTS_QUERY_BYTES_MAX} bytes here")
    return by_key(gate, req)


class EventRoutes:
    """The handler of streams."""

    def __init__(
        self,
        deliveries: Callable[[], Deliveries],
        metrics: StreamMetrics,
        slots: Slots,
        rules: FlagStreamRules,
        public_url: str | None,
    ) -> None:
        self._deliveries = deliveries
        self._metrics = metrics
        self._slots = slots
        """How many a principal may have."""
        self._rules = rules
        self._public_url = public_url

    async def follow(self, call: Call) -> Handover:
        check_accepts(call)
        principal = call.principal
        wanted = _parse(call.req, principal)
        tenant = _tenant(principal, wanted)
        for slug in wanted.namespaces:
            require_manifest_read(principal, tenant, slug)
        await self._check_there(call.engine, tenant, wanted)
        plan = FlagStreamPlan(
            principal, tenant, wanted.namespaces, base_url(call.req, self._public_url), self._rules
        )
        slot = self._slots.take(principal)
        stream = FlagStream(call.hub, plan, self._deliveries(), self._metrics, slot)
        return open_events(call, stream, _HEADERS, connection="close")

    async def _check_there(self, engine: Engine, tenant: str, wanted: FlagSubscription) -> None:
        """Refuse namespaces that are not there for good; count what clients have of the others."""
        lives: list[OpenLog] = []
        for slug in wanted.namespaces:
            log = engine.state.by_name.get(log_of(tenant, slug))
            if log is None or log.owner != FLAGS:
                raise INVALID_SUBSCRIPTION.refused(
                    f"there is no namespace {slug}", reason="unknown_namespace", namespace=slug
                )
            lives.append(live := engine.open_logs[log.id])
            if (since := wanted.since.get(slug)) is not None:
                self._metrics.resumed(_compare(since, live.visible))
        await engine.settle(*lives)


def _parse(req: Request, principal: Principal) -> FlagSubscription:
    try:
        return parse_subscription(
            req.get_params("ns"),
            req.get_params("since"),
            req.get_header("last-event-id"),
            names_tenant=principal.superadmin,
        )
    except SubscriptionRefused as refused:
        if refused.code == "invalid_subscription":
            raise INVALID_SUBSCRIPTION.refused(refused.message, **refused.details) from None
        raise Refused(Code.INVALID, refused.message, **refused.details) from None


def _tenant(principal: Principal, wanted: FlagSubscription) -> str:
    """The tenant whose namespaces are meant: the one that is named, or that of who asks."""
    if wanted.tenant is not None:
        return wanted.tenant
    if len(principal.tenants) != 1 or "*" in principal.tenants:
        raise Refused(Code.FORBIDDEN, "this credential is not bound to a tenant")
    return principal.tenants[0]


def _compare(since: int, current: int) -> str:
    if since == current:
        return "current"
    return "behind" if since < current else "ahead"


def base_url(req: Request, public_url: str | None) -> str:
    """Where the caller finds us: as configured, else as it asked."""
    if public_url is not None:
        return public_url.rstrip("/")
    host = req.get_header("host")
    return f"http://{host}" if host else ""
