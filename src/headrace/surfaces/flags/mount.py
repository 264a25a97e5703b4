"""The flags surface: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.errors import Code
from headrace.core.limits import LIST_PAGE_MAX
from headrace.formats.multipart import MEDIA_TYPE as MULTIPART
from headrace.observe import Sample
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.closure_routes import TAR, ClosureRoutes, by_key_or_closure_token
from headrace.surfaces.flags.errors import (
    CLOSURE_TOKEN_INVALID,
    FLAG_NOT_FOUND,
    INVALID_SUBSCRIPTION,
    LINT_FAILED,
    MANIFEST_NOT_FOUND,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_FOUND,
    OFREP,
    REFUSALS,
    SCHEMA_VERSION_MISMATCH,
    TENANT_EXISTS,
    TENANT_NOT_FOUND,
    TOKEN_NOT_FOUND,
    VERSION_CONFLICT,
    VERSION_NOT_FOUND,
    FlagsProblem,
    OfrepFailure,
    refuse,
)
from headrace.surfaces.flags.evaluation import EvaluationRoutes
from headrace.surfaces.flags.event_routes import EventRoutes, by_key_and_query
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifest_routes import ARCHIVE, ManifestRoutes
from headrace.surfaces.flags.metrics import FlagsMetrics
from headrace.surfaces.flags.ofrep import (
    OfrepBulkSuccess,
    OfrepRequest,
    OfrepRoutes,
    OfrepSuccess,
)
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.surfaces.flags.tenants import TenantRoutes
from headrace.surfaces.flags.tokens import TokenRoutes
from headrace.web.api_envelope import ApiError
from headrace.web.calls import by_api_key
from headrace.web.credentials import Principal, Scope
from headrace.web.event_streams import EVENT_STREAM
from headrace.web.request import Request
from headrace.web.surface import Described, Handler, Parameter, Route, Surface, with_refusals

API = "/api/v1"
TENANT = f"{API}/tenants/{{tenant}}"
NAMESPACE = f"{TENANT}/namespaces/{{namespace}}"
_SECURITY: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
_BY_API_KEY = _SECURITY | {"api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
"""For OFREP, whose clients may know nothing else."""
_BY_URL = _SECURITY | {"closure_token": {"type": "apiKey", "in": "query", "name": "token"}}
_TENANT = Parameter("tenant", str, "Its slug", place="path", example="acme")
_NAMESPACE = Parameter("namespace", str, "Its slug", place="path", example="billing")
_PAGE = (
    Parameter("page_size", int, "How many at most"),
    Parameter("cursor", str, "Where the page before ended, as it told"),
)
_BY_NAME = (Parameter("prefix", str, "Only those whose names begin like this"), *_PAGE)


def surface(
    tenants: TenantRoutes,
    tokens: TokenRoutes,
    manifests: ManifestRoutes,
    evaluation: EvaluationRoutes,
    ofrep: OfrepRoutes,
    events: EventRoutes,
    closures: ClosureRoutes,
    metrics: FlagsMetrics,
    manifest_metrics: ManifestMetrics,
    stream_metrics: StreamMetrics,
) -> Surface:
    """The surface, over everything that is configured."""

    def observe(request: Request, path: str | None, status: int) -> None:
        metrics.requests.add(path, request.method, status)

    def samples(principal: Principal) -> Sequence[Sample]:
        return [*metrics.samples(), *manifest_metrics.samples(), *stream_metrics.samples()]

    return Surface(
        name="flags",
        title="Flags",
        prefixes=(
            f"{API}/tenants", f"{API}/tokens", f"{API}/events", f"{API}/signing-keys", "/ofrep/",
        ),
        routes=[
            *_tenants(tenants),
            *_tokens(tokens),
            *_manifests(manifests),
            *_evaluation(evaluation),
            *_ofrep(ofrep),
            *_events(events, closures),
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
    missing = (Code.INVALID, TENANT_NOT_FOUND, NAMESPACE_NOT_FOUND)
    return [
        Route(
            "POST", f"{API}/tenants", routes.create_tenant, "Make a tenant",
            _replies({201: Described(wire.TenantReply, "Made")}, Code.INVALID, TENANT_EXISTS),
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
                Code.INVALID, TENANT_NOT_FOUND, NAMESPACE_EXISTS,
            ),
            request=wire.NamespaceRequest, scope=Scope.ADMIN, group=group,
            parameters=(_TENANT,), example={"slug": "billing"},
        ),
        Route(
            "GET", f"{TENANT}/namespaces", routes.list_namespaces, "List namespaces",
            _replies(
                {200: Described(wire.NamespaceListReply, "A page, by name")},
                Code.INVALID, TENANT_NOT_FOUND,
            ),
            scope=Scope.READ, group=group, parameters=(_TENANT, *_BY_NAME), head=True,
        ),
        Route(
            "DELETE", NAMESPACE, routes.delete_namespace, "Delete a namespace",
            _replies({204: Described(None, "Deleted")}, *missing),
            scope=Scope.ADMIN, group=group, parameters=(_TENANT, _NAMESPACE),
            description="With all versions of its manifest.",
        ),
    ]  # fmt: skip


def _tokens(routes: TokenRoutes) -> list[Route]:
    group = "Tokens"
    missing = (Code.INVALID, TENANT_NOT_FOUND, NAMESPACE_NOT_FOUND)
    made = {201: Described(wire.TokenReply, "Made; the secret is told this once")}
    page = {200: Described(wire.TokenListReply, "A page, oldest first")}
    revoked = {204: Described(None, "Revoked, and its streams are closed")}
    id = Parameter("id", str, "Its id, as its creation told", place="path", example="tok_1a2b3c")
    superadmins = "For superadmins, who may use every surface."
    return [
        Route(
            "POST", f"{TENANT}/tokens", routes.create, "Make a token of a tenant",
            _replies(made, *missing),
            request=wire.TokenRequest, scope=Scope.ADMIN, group=group, parameters=(_TENANT,),
            example={"type": "namespace-read", "name": "checkout", "namespace": "billing"},
            description="Those of a namespace need `namespace`, that of clients `environment`, too.",
        ),
        Route(
            "GET", f"{TENANT}/tokens", routes.list, "List tokens of a tenant",
            _replies(page, Code.INVALID, TENANT_NOT_FOUND),
            scope=Scope.ADMIN, group=group, parameters=(_TENANT, *_PAGE), head=True,
        ),
        Route(
            "DELETE", f"{TENANT}/tokens/{{id}}", routes.revoke, "Revoke a token of a tenant",
            _replies(revoked, Code.INVALID, TENANT_NOT_FOUND, TOKEN_NOT_FOUND),
            scope=Scope.ADMIN, group=group, parameters=(_TENANT, id),
        ),
        Route(
            "POST", f"{API}/tokens", routes.create_superadmin, "Make a token of a superadmin",
            _replies(made, Code.INVALID),
            request=wire.TokenRequest, scope=Scope.ADMIN, group=group, description=superadmins,
            example={"type": "superadmin", "name": "on call"},
        ),
        Route(
            "GET", f"{API}/tokens", routes.list_superadmins, "List tokens of superadmins",
            _replies(page, Code.INVALID),
            scope=Scope.ADMIN, group=group, parameters=_PAGE, head=True,
        ),
        Route(
            "DELETE", f"{API}/tokens/{{id}}", routes.revoke_superadmin,
            "Revoke a token of a superadmin", _replies(revoked, TOKEN_NOT_FOUND),
            scope=Scope.ADMIN, group=group, parameters=(id,),
        ),
    ]  # fmt: skip


# --- manifests, lint, versions, evaluation, OFREP --------------------------------------------------


def _manifests(routes: ManifestRoutes) -> list[Route]:
    group, path = "Manifests", f"{NAMESPACE}/manifest"
    where = (_TENANT, _NAMESPACE)
    version = Parameter("version", int, "Its number", place="path", example=1)
    return [
        Route(
            "PUT", path, routes.put, "Upload a manifest",
            _replies(
                {200: Described(wire.UploadReply, "It is the current version")},
                Code.INVALID, NAMESPACE_NOT_FOUND, VERSION_CONFLICT, Code.BODY_TOO_LARGE,
                Code.MEDIA_TYPE, LINT_FAILED, SCHEMA_VERSION_MISMATCH,
            ),
            request=wire.ArchiveForm, media=MULTIPART, scope=Scope.WRITE, group=group,
            parameters=(
                *where,
                Parameter("If-Version", int, "The version that is current now; 0: none", place="header"),
            ),
            description="A form with one field `archive`: the directory's contents as tar.gz."
            " The same files again are a new version.",
        ),
        Route(
            "GET", path, routes.get, "Download the current manifest",
            _replies(
                {
                    200: Described(bytes, "A tar.gz; its ETag is the version", ARCHIVE),
                    304: Described(None, "If-None-Match names the current version"),
                },
                Code.INVALID, NAMESPACE_NOT_FOUND, MANIFEST_NOT_FOUND,
            ),
            scope=Scope.READ, group=group, head=True,
            parameters=(
                *where, Parameter("If-None-Match", str, "Tags that are known", place="header"),
            ),
        ),
        Route(
            "POST", f"{path}/lint", routes.lint, "Lint a manifest",
            _replies(
                {200: Described(wire.LintedReply, "What an upload would say; nothing changed")},
                Code.INVALID, NAMESPACE_NOT_FOUND, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
            ),
            request=wire.ArchiveForm, media=MULTIPART, scope=Scope.READ, group=group, parameters=where,
            description="Takes the same form as an upload.",
        ),
        Route(
            "GET", f"{path}/versions", routes.list_versions, "List versions",
            _replies(
                {200: Described(wire.VersionListReply, "The newest first")},
                Code.INVALID, NAMESPACE_NOT_FOUND,
            ),
            scope=Scope.READ, group=group, head=True,
            parameters=(
                *where,
                Parameter("limit", int, "How many at most", default=LIST_PAGE_MAX),
                Parameter("before", int, "Only versions before this one: `next_before` of a page"),
            ),
        ),
        Route(
            "GET", f"{path}/versions/{{version}}", routes.get_version, "What a version changed",
            _replies(
                {200: Described(wire.VersionReply, "The version and the files it changed")},
                Code.INVALID, NAMESPACE_NOT_FOUND, VERSION_NOT_FOUND,
            ),
            scope=Scope.READ, group=group, head=True, parameters=(*where, version),
        ),
    ]  # fmt: skip


def _evaluation(routes: EvaluationRoutes) -> list[Route]:
    group, where = "Evaluation", (_TENANT, _NAMESPACE)
    context = {"user": {"email": "ann@example.com"}}
    return [
        Route(
            "POST", f"{NAMESPACE}/evaluate", routes.evaluate, "Evaluate a flag",
            _replies(
                {200: Described(wire.EvaluateReply, "Its value, and why")},
                Code.INVALID, NAMESPACE_NOT_FOUND, FLAG_NOT_FOUND,
            ),
            request=wire.EvaluateRequest, scope=Scope.READ, group=group, parameters=where,
            example={"flag": "checkout-redesign", "context": context, "environment": "production"},
        ),
        Route(
            "POST", f"{NAMESPACE}/evaluate/all", routes.evaluate_all, "Evaluate all flags",
            _replies(
                {200: Described(wire.EvaluateAllReply, "Values by key")},
                Code.INVALID, NAMESPACE_NOT_FOUND,
            ),
            request=wire.EvaluateAllRequest, scope=Scope.READ, group=group, parameters=where,
            example={"context": context},
        ),
    ]  # fmt: skip


def _ofrep(routes: OfrepRoutes) -> list[Route]:
    key = Parameter("key", str, "Of the flag", place="path", example="checkout-redesign")
    context = {"context": {"targetingKey": "ann", "email": "ann@example.com"}}
    tag = Parameter("If-None-Match", str, "The ETag of what is known", place="header")

    def route(path: str, handler: Handler, summary: str, reply: Any, **more: Any) -> Route:
        ok = {200: Described(reply, "Evaluated")}
        if reply is OfrepBulkSuccess:
            ok[304] = Described(None, "Nothing has changed for this context")
        return Route(
            "POST",
            path,
            handler,
            summary,
            with_refusals(ok, (Code.INVALID, Code.NOT_FOUND), REFUSALS, OfrepFailure),
            request=OfrepRequest,
            scope=Scope.READ,
            group="OFREP",
            authenticate=by_api_key,
            security=_BY_API_KEY,
            example=context,
            **more,
        )

    bound, named = OFREP, NAMESPACE + OFREP
    where = (_TENANT, _NAMESPACE)
    one, every = "Evaluate a flag for OpenFeature", "Evaluate all flags for OpenFeature"
    about = "The namespace is that of the token."
    return [
        route(bound, routes.evaluate_all, every, OfrepBulkSuccess, parameters=(tag,), description=about),
        route(f"{bound}/{{key}}", routes.evaluate, one, OfrepSuccess, parameters=(key,), description=about),
        route(named, routes.evaluate_all, every, OfrepBulkSuccess, parameters=(*where, tag)),
        route(f"{named}/{{key}}", routes.evaluate, one, OfrepSuccess, parameters=(*where, key)),
    ]  # fmt: skip


# --- event streams and closures -------------------------------------------------------------------


def _events(events: EventRoutes, closures: ClosureRoutes) -> list[Route]:
    group = "Changes"
    subscription = "base64url of * or of keys with commas between them, without padding"
    return [
        Route(
            "GET", f"{API}/events", events.follow, "Follow changes",
            _replies(
                {200: Described(str, "Events: version, resync, and comments", EVENT_STREAM)},
                Code.INVALID, INVALID_SUBSCRIPTION, Code.URI_TOO_LONG,
            ),
            scope=Scope.READ, group=group, lives_long=True, cors=False,
            authenticate=by_key_and_query,
            parameters=(
                Parameter(
                    "ns", list[str], "<slug>:<flags>, of superadmins <tenant>/<slug>:<flags>;"
                    " flags are * or keys with commas between them", example=["billing:*"],
                ),
                Parameter("since", str, "<slug>:<version>,…: what the client has"),
                Parameter(
                    "Last-Event-ID", str, "<slug>:<version>; wins over since for its namespace",
                    place="header",
                ),
            ),
            description="The first event of each namespace is a snapshot to be fetched; then"
            " changes come as deltas, each verified by hashes.",
        ),
        Route(
            "GET", f"{NAMESPACE}/closure", closures.fetch, "Fetch a closure",
            _replies(
                {
                    200: Described(bytes, "A tar.gz of the files", TAR),
                    304: Described(None, "The client has it"),
                },
                Code.INVALID, CLOSURE_TOKEN_INVALID, NAMESPACE_NOT_FOUND, Code.GONE,
            ),
            scope=Scope.READ, group=group, head=True, authenticate=by_key_or_closure_token,
            security=_BY_URL,
            parameters=(
                _TENANT, _NAMESPACE,
                Parameter("version", int, "Of the manifest", example=42),
                Parameter("subscription", str, subscription, example="Kg"),
                Parameter("token", str, "As a link in an event has it; else show a credential"),
                Parameter("If-None-Match", str, "ETags of what is there", place="header"),
            ),
        ),
        Route(
            "POST", f"{API}/signing-keys/rotate", closures.rotate, "Change the signing key",
            _replies({201: Described(wire.SigningKeyReply, "Changed")}),
            scope=Scope.ADMIN, group=group,
            description="For superadmins. Links that were signed before hold for their minute.",
        ),
    ]  # fmt: skip


def _replies(ok: dict[int, Described], *refused: Code | FlagsProblem) -> dict[int, Described]:
    codes = [each if isinstance(each, Code) else each.refusal for each in refused]
    return with_refusals(ok, codes, REFUSALS, ApiError)
