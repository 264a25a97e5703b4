"""Access rules: who may read and write notifications of a type, by realm and role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

ANY_ROLE = "*"

Roles = Mapping[str, tuple[str, ...]]
"""Roles by realm; `*` among them stands for everybody of the realm."""


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """Who may use an event type."""

    required: bool
    """Whether nobody may who did not say who they are."""
    read_roles: Roles | None = None
    """None: everybody who is known may read."""
    write_roles: Roles | None = None
    """None: only admins may write."""

    def may_read(self, realm: str, roles: Sequence[str], admin_roles: Roles) -> bool:
        """Whether somebody who is known may watch and replay."""
        if not self.required or self.read_roles is None:
            return True
        return has_role(admin_roles, realm, roles) or has_role(self.read_roles, realm, roles)

    def may_write(self, realm: str, roles: Sequence[str], admin_roles: Roles) -> bool:
        """Whether somebody who is known may notify."""
        if not self.required or has_role(admin_roles, realm, roles):
            return True
        return self.write_roles is not None and has_role(self.write_roles, realm, roles)


def has_role(wanted: Roles, realm: str, roles: Sequence[str]) -> bool:
    """Whether one of these roles is wanted of the realm; without a realm, none ever is."""
    if not realm:
        return False
    of_realm = wanted.get(realm, ())
    return ANY_ROLE in of_realm or not set(of_realm).isdisjoint(roles)
