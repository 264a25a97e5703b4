"""Tokens: credentials that are made while the server runs, kept in the catalog as digests."""

from __future__ import annotations

import msgspec


class Grants(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a credential opens; surfaces ask for what an action of theirs needs."""

    scopes: int = 0
    """Bits, as `web.credentials.Scope` has them."""
    prefixes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    realm: str = ""
    superadmin: bool = False
    environment: str = ""
    """The one environment in which flags may be evaluated; nothing: all."""


class Token(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One token: whoever shows the secret of this digest has what it grants."""

    id: str
    digest: bytes
    """SHA-256 of the secret, which nobody keeps."""
    grants: Grants
    label: str = ""
    created_by: str = ""
    created_at_ms: int = 0
    expires_at_ms: int = 0
    """0: never."""

    def is_valid(self, now_ms: int) -> bool:
        return not self.expires_at_ms or now_ms < self.expires_at_ms
