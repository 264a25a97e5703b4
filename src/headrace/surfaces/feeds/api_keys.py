"""API keys of a tenant: tokens of the catalog that have roles in this one tenant."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from headrace.core.cap import Cap
from headrace.core.errors import Code, Refused
from headrace.core.limits import FEED_KEYS_PER_TENANT_MAX
from headrace.core.names import has_controls
from headrace.core.token import Grants, Token
from headrace.search.values import format_date
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.commands import read_command
from headrace.surfaces.feeds.errors import invalid_field
from headrace.surfaces.feeds.permissions import MANAGERS, FeedRole
from headrace.surfaces.feeds.routes import check_takes_vendor, enter, vendor_answer
from headrace.web.answers import Answer
from headrace.web.calls import Call
from headrace.web.credential_store import new_secret

_PREFIX = "epk_"
"""How keys begin: whoever finds one in a text knows what it is."""
_CAP = Cap("max_api_keys_per_tenant", FEED_KEYS_PER_TENANT_MAX)
_request = msgspec.json.Decoder(wire.ApiKeyRequest)


class ApiKeyRoutes:
    """The handlers of API keys."""

    async def create(self, call: Call) -> Answer:
        tenant = enter(call, MANAGERS)
        check_takes_vendor(call)
        request = await read_command(call, _request)
        if has_controls(request.name):
            raise invalid_field("name", "has control characters")
        if len(set(request.roles)) < len(request.roles):
            raise invalid_field("roles", "names a role twice")
        now_ms, expires_at_ms = call.engine.clock.now_ms(), 0
        if request.expires_in_seconds is not UNSET:
            expires_at_ms = now_ms + int(request.expires_in_seconds * 1000)
        known = call.engine.state.tokens_by_tenant.get(tenant, {}).values()
        _CAP.check(sum(_is_key_of(each, tenant) and each.is_valid(now_ms) for each in known))
        secret, digest = new_secret(_PREFIX)
        token = await call.engine.tokens.issue(
            digest,
            Grants(tenants=(tenant,), roles=tuple(request.roles)),
            label=request.name,
            created_by=call.principal.id,
            expires_at_ms=expires_at_ms,
        )
        described = msgspec.structs.asdict(_describe(token))
        return vendor_answer(msgspec.json.encode(wire.NewApiKey(**described, key=secret)), 201)

    async def list(self, call: Call) -> Answer:
        tenant = enter(call, MANAGERS)
        check_takes_vendor(call)
        tokens = await call.engine.tokens.list(tenant)
        found = [_describe(token) for token in tokens if _is_key_of(token, tenant)]
        return vendor_answer(msgspec.json.encode(wire.ApiKeyList(found)))

    async def revoke(self, call: Call) -> Answer:
        tenant, id = enter(call, MANAGERS), call.param("keyId")
        engine = call.engine
        known = engine.state.tokens.get(id)
        if known is None or not _is_key_of(known, tenant) or not await engine.tokens.revoke(id):
            raise Refused(Code.NOT_FOUND, f"{tenant} has no such API key")
        return Answer(204, [])


def _is_key_of(token: Token, tenant: str) -> bool:
    """Whether a token was made here, for this tenant: other surfaces make tokens, too."""
    grants = token.grants
    roles = set(grants.roles)
    return grants.tenants == (tenant,) and bool(roles) and roles <= set(FeedRole)


def _describe(token: Token) -> wire.ApiKey:
    return wire.ApiKey(
        id=token.id,
        name=token.label,
        roles=[FeedRole(role) for role in token.grants.roles],
        created_at=format_date(token.created_at_ms),
        created_by=token.created_by,
        expires_at=format_date(token.expires_at_ms) if token.expires_at_ms else UNSET,
    )
