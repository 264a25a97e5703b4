"""Tenants and their namespaces: made, listed, deleted. All of them are logs of the one catalog."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from headrace.core.cap import Cap
from headrace.core.config import Durability, LogConfig
from headrace.core.cursor import encode_cursor
from headrace.core.errors import Refused
from headrace.core.limits import FLAGS_COMMAND_BYTES_MAX
from headrace.core.log import Log
from headrace.core.owners import FLAGS, SYSTEM
from headrace.core.state import State
from headrace.engine.open_log import OpenLog
from headrace.search.values import format_date
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import (
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_FOUND,
    TENANT_EXISTS,
    TENANT_NOT_FOUND,
)
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.names import (
    TENANTS,
    log_of,
    namespaces_of,
    parse_log,
    parse_slug,
    tenant_log,
)
from headrace.surfaces.flags.permissions import (
    Permission,
    permits,
    require_superadmin,
    require_tenant_admin,
)
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode, parse_listing

CONFIG = LogConfig(durability=Durability.FSYNC, auto_create=False)
"""Of every log of the surface: what is told is on stable storage, and nothing is ever trimmed."""

_tenant = msgspec.json.Decoder(wire.TenantRequest)
_namespace = msgspec.json.Decoder(wire.NamespaceRequest)


class TenantRoutes:
    """The handlers of tenants and namespaces."""

    def __init__(
        self,
        store: Callable[[], ManifestStore],
        tenants_max: int,
        namespaces_max: int,
        namespaces_per_tenant_max: int,
    ) -> None:
        self._store = store
        self._tenants_max = tenants_max
        self._namespaces = Cap("max_namespaces", namespaces_max)
        self._namespaces_per_tenant_max = namespaces_per_tenant_max

    # --- tenants ----------------------------------------------------------------------------------

    async def create_tenant(self, call: Call) -> Answer:
        require_superadmin(call.principal)
        request = decode(_tenant, await call.command(FLAGS_COMMAND_BYTES_MAX))
        slug, engine = parse_slug(request.slug), call.engine
        if tenant_log(slug) not in engine.state.by_name:
            _check_room(engine.state, "max_tenants", self._tenants_max, TENANTS, SYSTEM)
        log, is_new = await engine.logs.put(tenant_log(slug), SYSTEM, CONFIG, call.principal.id)
        if not is_new:
            raise TENANT_EXISTS.refused(f"there is a tenant {slug}", tenant=slug)
        return _reply(wire.TenantReply(_describe_tenant(log), call.req.id), 201)

    async def list_tenants(self, call: Call) -> Answer:
        """All tenants for a superadmin, their own for others who administer one."""
        principal = call.principal
        if not permits(principal, Permission.TENANT_ADMIN):
            require_superadmin(principal)
        after, prefix, size = parse_listing(call.req)
        found, more = call.engine.logs.page(
            tenant_log(after) if after else "",
            tenant_log(prefix),
            size,
            lambda name: principal.may_enter(name.removeprefix(TENANTS)),
            SYSTEM,
        )
        tenants = [_describe_tenant(live.log) for live in found]
        cursor = encode_cursor(tenants[-1].slug) if more else None
        await call.engine.settle_control()
        return _reply(wire.TenantListReply(tenants, call.req.id, cursor))

    # --- namespaces -------------------------------------------------------------------------------

    async def create_namespace(self, call: Call) -> Answer:
        tenant = parse_tenant(call)
        require_tenant_admin(call.principal, tenant)
        request = decode(_namespace, await call.command(FLAGS_COMMAND_BYTES_MAX))
        slug, engine = parse_slug(request.slug), call.engine
        require_tenant(engine.state, tenant)
        name = log_of(tenant, slug)
        if name not in engine.state.by_name:
            self._namespaces.check(engine.state.count_of(FLAGS))
            _check_room(
                engine.state,
                "max_namespaces_per_tenant",
                self._namespaces_per_tenant_max,
                namespaces_of(tenant),
                FLAGS,
            )
        log, is_new = await engine.logs.put(name, FLAGS, CONFIG, call.principal.id)
        if not is_new:
            message = f"{tenant} has a namespace {slug}"
            raise NAMESPACE_EXISTS.refused(message, tenant=tenant, namespace=slug)
        # As it was made: by now somebody may have uploaded to it, or deleted it.
        return _reply(wire.NamespaceReply(describe_namespace(log, 0), call.req.id), 201)

    async def list_namespaces(self, call: Call) -> Answer:
        tenant = parse_tenant(call)
        require_tenant_admin(call.principal, tenant)
        require_tenant(call.engine.state, tenant)
        after, prefix, size = parse_listing(call.req)
        found, more = call.engine.logs.page(
            log_of(tenant, after) if after else "",
            log_of(tenant, prefix),
            size,
            lambda name: True,
            FLAGS,
        )
        namespaces = [describe_namespace(live.log, live.visible) for live in found]
        cursor = encode_cursor(namespaces[-1].slug) if more else None
        await call.engine.settle_control()
        return _reply(wire.NamespaceListReply(namespaces, call.req.id, cursor))

    async def delete_namespace(self, call: Call) -> Answer:
        tenant, slug = parse_names(call)
        require_tenant_admin(call.principal, tenant)
        require_tenant(call.engine.state, tenant)
        await self._store().versions.delete(await find_namespace(call, tenant, slug))
        return Answer(204, [])


def parse_tenant(call: Call) -> str:
    """The tenant that a path names."""
    return parse_slug(call.param("tenant"), "tenant")


def parse_names(call: Call) -> tuple[str, str]:
    """The tenant and the namespace that a path names."""
    return parse_tenant(call), parse_slug(call.param("namespace"), "namespace")


def require_tenant(state: State, tenant: str) -> None:
    """Refuse what is asked of a tenant that is not there."""
    if tenant_log(tenant) not in state.by_name:
        raise TENANT_NOT_FOUND.refused(f"there is no tenant {tenant}", tenant=tenant)


async def find_namespace(call: Call, tenant: str, slug: str) -> OpenLog:
    """A namespace that somebody may see, and that a crash cannot take; refuses if there is none."""
    engine = call.engine
    log = engine.state.by_name.get(log_of(tenant, slug))
    if log is None or log.owner != FLAGS:
        raise no_namespace(tenant, slug)
    live = engine.open_logs[log.id]
    await engine.settle(live)
    return live


def no_namespace(tenant: str, slug: str) -> Refused:
    """There is no such namespace."""
    message = f"there is no namespace {slug} of {tenant}"
    return NAMESPACE_NOT_FOUND.refused(message, tenant=tenant, namespace=slug)


def _check_room(state: State, limit: str, count_max: int, prefix: str, owner: str) -> None:
    """Refuse another log of this prefix where there are so many."""
    if count_max:
        count = sum(1 for _ in islice(state.names("", prefix, owner), count_max))
        Cap(limit, count_max).check(count)


def _describe_tenant(log: Log) -> wire.Tenant:
    slug = log.name.removeprefix(TENANTS)
    return wire.Tenant(slug, format_date(log.created_at_ms), log.created_by)


def describe_namespace(log: Log, version: int) -> wire.Namespace:
    """A namespace as it is told, with its current version."""
    tenant, slug = parse_log(log.name)
    return wire.Namespace(tenant, slug, version, format_date(log.created_at_ms), log.created_by)


def _reply(body: msgspec.Struct, status: int = 200) -> Answer:
    return json_answer(msgspec.json.encode(body), status)
