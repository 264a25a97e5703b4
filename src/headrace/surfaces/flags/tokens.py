"""Tokens of the surface: made, listed, revoked. They are tokens of the one catalog.

The tokens of a tenant are its admins' business, those of superadmins are for superadmins. Whoever
administers one tenant can neither see nor end what belongs to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from headrace.core.cap import Cap
from headrace.core.cursor import encode_cursor
from headrace.core.errors import Code, Refused
from headrace.core.limits import FLAGS_COMMAND_BYTES_MAX, TOKEN_NAME_MAX
from headrace.core.names import check_printable
from headrace.core.token import Grants, Token
from headrace.engine.engine import Engine
from headrace.search.values import format_date, parse_date_ms
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import TOKEN_NOT_FOUND
from headrace.surfaces.flags.names import parse_environment, parse_slug
from headrace.surfaces.flags.permissions import (
    TokenType,
    is_of_namespace,
    require_superadmin,
    require_tenant_admin,
    type_of,
)
from headrace.surfaces.flags.tenants import find_namespace, parse_tenant, require_tenant
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode, parse_listing
from headrace.web.credential_store import new_secret
from headrace.web.credentials import ALL_SCOPES

_request = msgspec.json.Decoder(wire.TokenRequest)
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_TYPES = ", ".join(kind.value for kind in TokenType)
_SUPERADMIN = Grants(scopes=ALL_SCOPES.value, roles=(TokenType.SUPERADMIN.role,), superadmin=True)


class TokenRoutes:
    """The handlers of tokens, those of tenants and those of superadmins."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        """Of one tenant; the catalog has a limit of its own."""

    # --- tokens of a tenant -----------------------------------------------------------------------

    async def create(self, call: Call) -> Answer:
        tenant = parse_tenant(call)
        require_tenant_admin(call.principal, tenant)
        request = await _read(call)
        require_tenant(call.engine.state, tenant)
        grants = await _parse_grants(call, tenant, request)
        self._check_room(call.engine, tenant)
        return await _issue(call, request, grants)

    async def list(self, call: Call) -> Answer:
        tenant = parse_tenant(call)
        require_tenant_admin(call.principal, tenant)
        require_tenant(call.engine.state, tenant)
        known = await call.engine.tokens.list(tenant)
        return _list(call, (token for token in known if _is_of(token, tenant)))

    async def revoke(self, call: Call) -> Answer:
        tenant = parse_tenant(call)
        require_tenant_admin(call.principal, tenant)
        require_tenant(call.engine.state, tenant)
        return await _revoke(call, lambda token: _is_of(token, tenant))

    def _check_room(self, engine: Engine, tenant: str) -> None:
        cap = Cap("max_tokens_per_tenant", self._count_max)
        known = engine.state.tokens_by_tenant.get(tenant, {})
        if not cap.has_room(len(known)):  # some may have expired, or be of another surface
            now_ms = engine.clock.now_ms()
            cap.check(
                sum(_is_of(token, tenant) and token.is_valid(now_ms) for token in known.values())
            )

    # --- tokens of superadmins --------------------------------------------------------------------

    async def create_superadmin(self, call: Call) -> Answer:
        require_superadmin(call.principal)
        request = await _read(call)
        if request.type is not TokenType.SUPERADMIN:
            raise _wrong(
                "type", f"{request.type.value} is made at /api/v1/tenants/{{tenant}}/tokens"
            )
        _refuse_bindings(request, "namespace", "environment")
        return await _issue(call, request, _SUPERADMIN)

    async def list_superadmins(self, call: Call) -> Answer:
        require_superadmin(call.principal)
        return _list(call, filter(_is_superadmin, await call.engine.tokens.list()))

    async def revoke_superadmin(self, call: Call) -> Answer:
        require_superadmin(call.principal)
        return await _revoke(call, _is_superadmin)


# --- requests -------------------------------------------------------------------------------------


async def _read(call: Call) -> wire.TokenRequest:
    body = await call.command(FLAGS_COMMAND_BYTES_MAX)
    try:
        request = decode(_request, body)
    except Refused as refused:
        if refused.detail.get("field") == "type":
            raise _wrong("type", f"type is one of {_TYPES}") from None
        raise
    if not 1 <= len(request.name) <= TOKEN_NAME_MAX:
        raise _wrong("name", f"name has 1 to {TOKEN_NAME_MAX} characters")
    check_printable(request.name, "name")
    return request


async def _parse_grants(call: Call, tenant: str, request: wire.TokenRequest) -> Grants:
    """What a token of a tenant opens."""
    kind = request.type
    if kind is TokenType.SUPERADMIN:
        raise _wrong("type", "superadmin is made at /api/v1/tokens, by a superadmin")
    if not is_of_namespace(kind):
        _refuse_bindings(request, "namespace", "environment")
        return Grants(tenants=(tenant,), roles=(kind.role,))
    if request.namespace is None:
        raise _wrong("namespace", f"{kind.value} needs a namespace")
    slug = parse_slug(request.namespace, "namespace")
    environment = ""
    if kind is not TokenType.NAMESPACE_CLIENT:
        _refuse_bindings(request, "environment")
    elif request.environment is None:
        raise _wrong("environment", f"{kind.value} needs an environment")
    else:
        environment = parse_environment(request.environment)
    await find_namespace(call, tenant, slug)
    return Grants(
        tenants=(tenant,),
        namespaces=(f"{tenant}/{slug}",),
        roles=(kind.role,),
        environment=environment,
    )


def _refuse_bindings(request: wire.TokenRequest, *names: str) -> None:
    """Refuse what would narrow a token of a type that is not bound to it."""
    for name in names:
        if getattr(request, name) is not None:
            raise _wrong(name, f"{request.type.value} is of no {name}")


def _parse_expiry(text: str | None, now_ms: int) -> int:
    """When a token expires; 0 for never."""
    if text is None:
        return 0
    at_ms = parse_date_ms(text.upper()) if _RFC3339.fullmatch(text) else None
    if at_ms is None:
        raise _wrong("expires_at", "expires_at is a time as in RFC 3339, 2030-01-31T12:00:00Z")
    if at_ms <= now_ms:
        raise _wrong("expires_at", "expires_at is in the past")
    return at_ms


def _wrong(field: str, message: str) -> Refused:
    return Refused(Code.INVALID, message, field=field)


# --- the catalog ----------------------------------------------------------------------------------


async def _issue(call: Call, request: wire.TokenRequest, grants: Grants) -> Answer:
    engine = call.engine
    expires_at_ms = _parse_expiry(request.expires_at, engine.clock.now_ms())
    secret, digest = new_secret(request.type.prefix)
    token = await engine.tokens.issue(
        digest,
        grants,
        label=request.name,
        created_by=call.principal.id,
        expires_at_ms=expires_at_ms,
    )
    reply = wire.TokenReply(_describe(token), secret, call.req.id)
    return json_answer(msgspec.json.encode(reply), 201)


def _list(call: Call, known: Iterable[Token]) -> Answer:
    after, _, size = parse_listing(call.req)
    behind = [token for token in known if _place(token) > after]
    shown = sorted(behind, key=_place)[:size]
    cursor = encode_cursor(_place(shown[-1])) if len(behind) > size else None
    reply = wire.TokenListReply([_describe(token) for token in shown], call.req.id, cursor)
    return json_answer(msgspec.json.encode(reply))


def _place(token: Token) -> str:
    """Where a token stands in a list: older ones come first."""
    return f"{token.created_at_ms:016d}/{token.id}"


async def _revoke(call: Call, is_wanted: Callable[[Token], bool]) -> Answer:
    engine, id = call.engine, call.param("id")
    token = engine.state.tokens.get(id)
    is_hidden = token is not None and not is_wanted(token)
    # (Of one that is gone, the engine says so when it stays gone.)
    if is_hidden or not await engine.tokens.revoke(id):
        raise TOKEN_NOT_FOUND.refused("there is no such token here")
    return Answer(204, [])


def _is_of(token: Token, tenant: str) -> bool:
    grants = token.grants
    return tenant in grants.tenants and type_of(grants.roles) is not None


def _is_superadmin(token: Token) -> bool:
    return TokenType.SUPERADMIN.role in token.grants.roles


def _describe(token: Token) -> wire.TokenDescription:
    grants = token.grants
    kind = type_of(grants.roles)
    assert kind is not None
    return wire.TokenDescription(
        id=token.id,
        type=kind.value,
        name=token.label,
        tenant=grants.tenants[0] if grants.tenants else None,
        namespace=grants.namespaces[0].partition("/")[2] if grants.namespaces else None,
        environment=grants.environment or None,
        created_at=format_date(token.created_at_ms),
        created_by=token.created_by,
        expires_at=format_date(token.expires_at_ms) if token.expires_at_ms else None,
    )
