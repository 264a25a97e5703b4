"""Who may do what: roles, which are independent of each other, and the tenants of a credential.

The token of the superadmin has all roles everywhere; so has everybody while no credential is
configured. Scopes of other surfaces open nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from headrace.core.errors import Code, Refused
from headrace.web.credentials import Principal


class FeedRole(StrEnum):
    """What a credential may be made for."""

    READER = "reader"
    EDITOR = "editor"
    GENERATOR = "generator"
    MANAGER = "manager"


READERS = tuple(FeedRole)
WRITERS = (FeedRole.EDITOR, FeedRole.GENERATOR, FeedRole.MANAGER)
MANAGERS = (FeedRole.MANAGER,)

_WRITES_ALL = (FeedRole.EDITOR, FeedRole.MANAGER)
_GENERATION = "generation."
"""How the types of events begin that a generator may write."""


def require(principal: Principal, roles: tuple[FeedRole, ...], tenant: str) -> None:
    """Refuse who has none of the roles, or may not enter the tenant."""
    principal.require_role(*roles)
    principal.require_tenant(tenant)


def require_types(principal: Principal, types: Iterable[str]) -> None:
    """Refuse a writer who may not write events of all these types."""
    if principal.has_role(*_WRITES_ALL):
        return
    for type in types:
        if not type.startswith(_GENERATION):
            message = f"the role {FeedRole.GENERATOR} writes generation.* only, not {type}"
            raise Refused(Code.FORBIDDEN, message)
