"""The flags surface: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.errors import Code
from headrace.observe import Sample
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import REFUSALS, refuse
from headrace.surfaces.flags.metrics import FlagsMetrics
from headrace.surfaces.flags.tenants import TenantRoutes
from headrace.web.api_envelope import ApiError
from headrace.web.credentials import Principal, Scope
from headrace.web.request import Request
from headrace.web.surface import Described, Parameter, Route, Surface, with_refusals

API = "/api/v1"
TENANT = f"{API}/tenants/{{tenant}}"
NAMESPACE = f"{TENANT}/namespaces/{{namespace}}"
_SECURITY: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
"""`X-API-Key` is taken by OFREP, whose clients may know nothing else."""
_TENANT = Parameter("tenant", str, "Its slug", place="path", example="acme")
_NAMESPACE = Parameter("namespace", str, "Its slug", place="path", example="billing")
_PAGE = (
    Parameter("page_size", int, "How many at most"),
    Parameter("cursor", str, "Where the page before ended, as it told"),
)
_BY_NAME = (Parameter("prefix", str, "Only those whose names begin like this"), *_PAGE)


def surface(tenants: TenantRoutes, metrics: FlagsMetrics) -> Surface:
    """The surface, over everything that is configured."""

    def observe(request: Request, path: str | None, status: int) -> None:
        metrics.answered(path, request.method, status)

    def samples(principal: Principal) -> Sequence[Sample]:
        return metrics.samples()

    return Surface(
        name="flags",
        title="Flags",
        prefixes=(
            f"{API}/tenants", f"{API}/tokens", f"{API}/events", f"{API}/signing-keys", "/ofrep/",
        ),
        routes=[
            *_tenants(tenants),
            *_manifests(),
            *_events(),
        ],
        refusals=REFUSALS,
        refuse=refuse,
        security=_SECURITY,
        observe=observe,
        samples=samples,
    )  # fmt: skip


# --- tenants and namespaces -----------------------------------------------------------------------


def _tenants(routes: TenantRoutes) -> list[Route]:
    group = "Tenants and namespaces"
    return [
        Route(
            "POST", f"{API}/tenants", routes.create_tenant, "Make a tenant",
            _replies({201: Described(wire.TenantReply, "Made")}, Code.INVALID, Code.CONFLICT),
            request=wire.TenantRequest, scope=Scope.ADMIN, group=group, example={"slug": "acme"},
            description="For superadmins.",
        ),
        Route(
            "GET", f"{API}/tenants", routes.list_tenants, "List tenants",
            _replies({200: Described(wire.TenantListReply, "A page, by name")}, Code.INVALID),
            scope=Scope.READ, group=group, parameters=_BY_NAME, head=True,
            description="Superadmins see all of them, tenant admins their own.",
        ),
        Route(
            "POST", f"{TENANT}/namespaces", routes.create_namespace, "Make a namespace",
            _replies(
                {201: Described(wire.NamespaceReply, "Made")},
                Code.INVALID, Code.NOT_FOUND, Code.CONFLICT,
            ),
            request=wire.NamespaceRequest, scope=Scope.ADMIN, group=group,
            parameters=(_TENANT,), example={"slug": "billing"},
        ),
        Route(
            "GET", f"{TENANT}/namespaces", routes.list_namespaces, "List namespaces",
            _replies(
                {200: Described(wire.NamespaceListReply, "A page, by name")},
                Code.INVALID, Code.NOT_FOUND,
            ),
            scope=Scope.READ, group=group, parameters=(_TENANT, *_BY_NAME), head=True,
        ),
        Route(
            "DELETE", NAMESPACE, routes.delete_namespace, "Delete a namespace",
            _replies({204: Described(None, "Deleted")}, Code.INVALID, Code.NOT_FOUND),
            scope=Scope.ADMIN, group=group, parameters=(_TENANT, _NAMESPACE),
            description="With all versions of its manifest.",
        ),
    ]  # fmt: skip


# --- manifests, lint, versions, evaluation, OFREP --------------------------------------------------


def _manifests() -> list[Route]:
    return []


# --- event streams and closures -------------------------------------------------------------------


def _events() -> list[Route]:
    return []


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    return with_refusals(ok, codes, REFUSALS, ApiError)
