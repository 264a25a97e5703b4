"""The JSON of flags. Members of a request that are not known here are passed over."""

from __future__ import annotations

import msgspec

from headrace.surfaces.flags.permissions import TokenType


class TenantRequest(msgspec.Struct):
    """A tenant to be made."""

    slug: str


class Tenant(msgspec.Struct):
    """A tenant."""

    slug: str
    created_at: str
    created_by: str


class TenantReply(msgspec.Struct):
    """The tenant is there."""

    tenant: Tenant
    request_id: str


class TenantListReply(msgspec.Struct, omit_defaults=True):
    """A page of tenants, by name."""

    tenants: list[Tenant]
    request_id: str
    next_cursor: str | None = None


class NamespaceRequest(msgspec.Struct):
    """A namespace to be made."""

    slug: str


class Namespace(msgspec.Struct):
    """A namespace, and the version of its manifest; 0 while it has none."""

    tenant: str
    slug: str
    version: int
    created_at: str
    created_by: str


class NamespaceReply(msgspec.Struct):
    """The namespace is there."""

    namespace: Namespace
    request_id: str


class NamespaceListReply(msgspec.Struct, omit_defaults=True):
    """A page of namespaces of a tenant, by name."""

    namespaces: list[Namespace]
    request_id: str
    next_cursor: str | None = None


class TokenRequest(msgspec.Struct):
    """A token to be made: what for, and until when."""

    type: TokenType
    name: str
    namespace: str | None = None
    environment: str | None = None
    expires_at: str | None = None


class TokenDescription(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A token without its secret."""

    id: str
    type: str
    name: str
    tenant: str | None = None
    namespace: str | None = None
    environment: str | None = None
    created_at: str
    created_by: str
    expires_at: str | None = None


class TokenReply(msgspec.Struct):
    """A new token. The secret is told here and never again."""

    token: TokenDescription
    secret: str
    request_id: str


class TokenListReply(msgspec.Struct, omit_defaults=True):
    """A page of tokens, oldest first; expired ones are among them."""

    tokens: list[TokenDescription]
    request_id: str
    next_cursor: str | None = None
