"""Who may do what: every type of token for every route, and at every other surface's door."""

from __future__ import annotations

import re

import jwt
import pytest

from headrace.core.errors import Code, Refused
from headrace.surfaces.flags import permissions
from headrace.surfaces.flags.permissions import Permission, TokenType
from headrace.web.credentials import ADMIN, ALL_SCOPES, LOCAL, Principal
from support.flags_server import KEY, FlagsServer, run

READ, WRITE, CLIENT, TENANT, SUPER = TokenType
ADMINS = {TENANT, SUPER}
WRITERS = {WRITE, *ADMINS}
READERS = {READ, *WRITERS}
SPACE = "/api/v1/tenants/{tenant}/namespaces/{namespace}"

MAY: dict[tuple[str, str], set[TokenType]] = {
    ("POST", "/api/v1/tenants"): {SUPER},
    ("GET", "/api/v1/tenants"): ADMINS,
    ("POST", "/api/v1/tenants/{tenant}/namespaces"): ADMINS,
    ("GET", "/api/v1/tenants/{tenant}/namespaces"): ADMINS,
    ("DELETE", "/api/v1/tenants/{tenant}/namespaces/{namespace}"): ADMINS,
    ("POST", "/api/v1/tenants/{tenant}/tokens"): ADMINS,
    ("GET", "/api/v1/tenants/{tenant}/tokens"): ADMINS,
    ("DELETE", "/api/v1/tenants/{tenant}/tokens/{id}"): ADMINS,
    ("POST", "/api/v1/tokens"): {SUPER},
    ("GET", "/api/v1/tokens"): {SUPER},
    ("DELETE", "/api/v1/tokens/{id}"): {SUPER},
    ("PUT", f"{SPACE}/manifest"): WRITERS,
    ("GET", f"{SPACE}/manifest"): READERS,
    ("POST", f"{SPACE}/manifest/lint"): READERS,
    ("GET", f"{SPACE}/manifest/versions"): READERS,
    ("GET", f"{SPACE}/manifest/versions/{{version}}"): READERS,
    ("GET", f"{SPACE}/closure"): READERS,
    ("POST", "/api/v1/signing-keys/rotate"): {SUPER},
    ("POST", f"{SPACE}/evaluate"): set(TokenType),
    ("POST", f"{SPACE}/evaluate/all"): set(TokenType),
    ("POST", f"{SPACE}/ofrep/v1/evaluate/flags"): set(TokenType),
    ("POST", f"{SPACE}/ofrep/v1/evaluate/flags/{{key}}"): set(TokenType),
    ("POST", "/ofrep/v1/evaluate/flags"): set(TokenType),
    ("POST", "/ofrep/v1/evaluate/flags/{key}"): set(TokenType),
}
"""Who is let in at a route, where their own tenant and namespace are asked for."""
PARAMETERS = {
    "tenant": "acme",
    "namespace": "billing",
    "id": "tok_none",
    "version": "1",
    "key": "k",
}


ASKED = {f"{SPACE}/closure": "?version=1&subscription=Kg"}
"""What must be asked for before anybody is told whether they may have it."""
ELSEWHERE = {("GET", "/api/v1/events")}
"""Whose credential says of which tenant: `test_event_routes`."""


def target(path: str, **other: str) -> str:
    filled = re.sub(r"\{(\w+)\}", lambda found: (PARAMETERS | other)[found[1]], path)
    return filled + ASKED.get(path, "")


def test_every_route_is_in_the_table() -> None:
    async def story(server: FlagsServer) -> None:
        routes = server.app._flags.surface.routes
        assert {(route.method, route.path) for route in routes} == MAY.keys() | ELSEWHERE

    run(story, filled=False)


@pytest.mark.parametrize("type", TokenType, ids=lambda type: type.value)
def test_who_is_let_in(type: TokenType) -> None:
    async def story(server: FlagsServer) -> None:
        for (method, path), may in MAY.items():
            reply = await server.send(method, target(path), {}, token=server.secrets[type])
            let_in = reply.status not in (401, 403)
            assert let_in == (type in may), (method, path, reply)
            if not let_in and "ofrep" not in path:
                assert reply.json["error"]["code"] == "forbidden"

    run(story)


@pytest.mark.parametrize(
    "type", [each for each in TokenType if each is not SUPER], ids=lambda type: type.value
)
@pytest.mark.parametrize("tenant", ["other", "nowhere"])
def test_another_tenant_is_closed_whether_it_is_there_or_not(type: TokenType, tenant: str) -> None:
    async def story(server: FlagsServer) -> None:
        said = set()
        for method, path in MAY:
            if "{tenant}" in path:
                asked = target(path, tenant=tenant)
                reply = await server.send(method, asked, {}, token=server.secrets[type])
                assert reply.status == 403, (method, path, reply)
                said.add(reply.body.replace(tenant.encode(), b"T"))
        assert not any(b"there is" in message for message in said)

    run(story)


@pytest.mark.parametrize("token", [KEY, ""], ids=["a key of topics", "nobody"])
def test_who_is_of_another_surface_is_not_let_in(token: str) -> None:
    async def story(server: FlagsServer) -> None:
        for method, path in MAY:
            reply = await server.send(method, target(path), {}, token=token)
            # (Where the token is to tell the namespace, one that is bound to none asks too little.)
            known = 403 if "{tenant}" in path or "ofrep" not in path else 400
            assert reply.status == (known if token else 401), (method, path)

    run(story)


NAMES = {"batch": "1", "chunk": "0-0-0", "event_type": "storm"}
QUERIES = {
    "/api/v1/watch": "?event_type=storm&identifier={}",
    "/v0/transactions/{transaction}/{batch}/{chunk}": "?log=acme",
}
NEED_MORE = {"GET /v0/watch/{wid}": 404, "GET /v0/ws": 426}
"""A session that nobody of these could have made, and a connection on which each request is asked
for its scope.
"""


@pytest.mark.parametrize(
    "type", [each for each in TokenType if each is not SUPER], ids=lambda type: type.value
)
def test_a_token_opens_nothing_elsewhere(type: TokenType) -> None:
    async def story(server: FlagsServer) -> None:
        let_in = {}
        for surface in server.respond._surfaces:
            for route in surface.routes:
                if surface.name == "flags" or route.scope is None:
                    continue
                path = re.sub(
                    r"\{(\w+)[^}]*\}", lambda name: NAMES.get(name[1], "acme"), route.path
                )
                path += QUERIES.get(route.path, "")
                body = {} if route.example is None else route.example
                reply = await server.send(route.method, path, body, token=server.secrets[type])
                if reply.status not in (401, 403):
                    let_in[f"{route.method} {route.path}"] = reply.status
        assert let_in == NEED_MORE

    run(story)


# --- the functions that handlers ask --------------------------------------------------------------

CHECKS = {
    Permission.MANIFEST_READ: permissions.require_manifest_read,
    Permission.MANIFEST_WRITE: permissions.require_manifest_write,
    Permission.EVALUATE: permissions.require_evaluate,
}
PERMITTED = {
    READ: {Permission.MANIFEST_READ, Permission.EVALUATE},
    WRITE: {Permission.MANIFEST_READ, Permission.MANIFEST_WRITE, Permission.EVALUATE},
    CLIENT: {Permission.EVALUATE},
    TENANT: {*CHECKS, Permission.TENANT_ADMIN},
    SUPER: set(Permission),
}


def principal_of(type: TokenType) -> Principal:
    if type is SUPER:
        return Principal("tok", ALL_SCOPES, roles=(type.role,), superadmin=True)
    return Principal(
        "tok",
        ALL_SCOPES & ~ALL_SCOPES,
        tenants=("acme",),
        namespaces=() if type is TENANT else ("acme/billing",),
        roles=(type.role,),
        environment="production" if type is CLIENT else "",
    )


def is_refused(check: object, *arguments: object) -> bool:
    try:
        check(*arguments)  # type: ignore[operator]
    except Refused as refused:
        return refused.code is Code.FORBIDDEN
    return False


@pytest.mark.parametrize("type", TokenType, ids=lambda type: type.value)
def test_what_each_type_permits(type: TokenType) -> None:
    principal, permitted = principal_of(type), PERMITTED[type]
    for permission, check in CHECKS.items():
        assert is_refused(check, principal, "acme", "billing") == (permission not in permitted)
        elsewhere = permission not in permitted or type not in ADMINS
        assert is_refused(check, principal, "acme", "growth") == elsewhere
        assert is_refused(check, principal, "other", "billing") == (type is not SUPER)
    admin = permissions.require_tenant_admin
    assert is_refused(admin, principal, "acme") == (type not in ADMINS)
    assert is_refused(admin, principal, "other") == (type is not SUPER)
    assert is_refused(permissions.require_superadmin, principal) == (type is not SUPER)


def test_a_client_evaluates_in_its_environment_alone() -> None:
    require = permissions.require_evaluate
    assert require(principal_of(CLIENT), "acme", "billing") == "production"
    for type in (READ, WRITE, TENANT, SUPER):
        assert require(principal_of(type), "acme", "billing") is None
    for superadmin in (LOCAL, ADMIN):
        assert require(superadmin, "acme", "billing") is None


def test_a_client_of_no_environment_evaluates_nothing() -> None:
    client = Principal("user:/a", ALL_SCOPES, tenants=("*",), roles=(CLIENT.role,))
    assert is_refused(permissions.require_evaluate, client, "acme", "billing")


def test_nobody_becomes_a_superadmin_by_a_role() -> None:
    claimed = Principal("user:/a", ALL_SCOPES, tenants=("*",), roles=(SUPER.role,))
    assert is_refused(permissions.require_superadmin, claimed)
    assert is_refused(permissions.require_tenant_admin, claimed, "acme")
    assert is_refused(permissions.require_manifest_read, claimed, "acme", "billing")


# --- JSON Web Tokens ------------------------------------------------------------------------------

SECRET = "a secret of thirty-two bytes or more"
CLAIMS = {
    "a reader": ({"roles": [READ.role], "allowed_namespaces": ["acme/billing"]}, 200),
    "a reader of the tenant": ({"roles": [READ.role]}, 200),
    "a reader elsewhere": ({"roles": [READ.role], "allowed_namespaces": ["acme/growth"]}, 403),
    "of another tenant": ({"roles": [READ.role], "allowed_tenants": ["other"]}, 403),
    "of all tenants": ({"roles": [TENANT.role], "allowed_tenants": ["*"]}, 200),
    "of no tenant": ({"roles": [TENANT.role], "allowed_tenants": []}, 403),
    "of no type": ({"roles": ["admin", "superadmin", "flags:"]}, 403),
    "who claims to be a superadmin": ({"roles": [SUPER.role], "allowed_tenants": ["*"]}, 403),
    "a client": ({"roles": [CLIENT.role]}, 403),
}


@pytest.mark.parametrize("who", CLAIMS)
def test_what_a_user_may_who_is_known_by_a_json_web_token(who: str) -> None:
    claims, status = CLAIMS[who]

    async def story(server: FlagsServer) -> None:
        given = {"sub": "ann", "exp": 1 << 40, "allowed_tenants": ["acme"]} | claims
        token = jwt.encode(given, SECRET, "HS256")
        versions = f"{target(SPACE)}/manifest/versions"
        assert (await server.send("GET", versions, token=token)).status == status
        body = {"type": "superadmin", "name": "a"}
        assert (await server.send("POST", "/api/v1/tokens", body, token=token)).status == 403
        asked = {"context": {}}
        reply = await server.send("POST", f"{target(SPACE)}/evaluate/all", asked, token=token)
        assert reply.status == status, "and no client without an environment"

    run(story, HEADRACE_JWT_SECRET=SECRET)
