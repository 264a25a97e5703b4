"""Who may do what: types of tokens, what each permits, and where.

A type is a role of the principal, `flags:<type>`: no other surface knows these roles, and no
scope of another surface opens anything here. Whoever may not do something is told so whether it
is there or not; that something is missing is told only to who may see it.
"""

from __future__ import annotations

from enum import Enum

from headrace.core.errors import Code, Refused
from headrace.web.credentials import Principal

_ROLE = "flags:"


class Permission(Enum):
    """What there is to be allowed."""

    MANIFEST_READ = "manifest.read"
    """Read manifests and closures, and follow their changes."""
    MANIFEST_WRITE = "manifest.write"
    EVALUATE = "evaluate"
    TENANT_ADMIN = "tenant.admin"
    """Make and delete namespaces and tokens of a tenant."""
    INSTALLATION_ADMIN = "installation.admin"
    """Make tenants and tokens of superadmins, change the signing key."""


class TokenType(Enum):
    """The kinds of tokens, with how their secrets begin and what they permit."""

    prefix: str
    permissions: frozenset[Permission]

    def __new__(cls, value: str, prefix: str, *permissions: Permission) -> TokenType:
        kind = object.__new__(cls)
        kind._value_ = value
        kind.prefix = prefix
        kind.permissions = frozenset(permissions)
        return kind

    NAMESPACE_READ = (
        "namespace-read", "exd_read_", Permission.MANIFEST_READ, Permission.EVALUATE,
    )  # fmt: skip
    NAMESPACE_WRITE = (
        "namespace-write", "exd_write_",
        Permission.MANIFEST_READ, Permission.MANIFEST_WRITE, Permission.EVALUATE,
    )  # fmt: skip
    NAMESPACE_CLIENT = "namespace-client", "exd_client_", Permission.EVALUATE
    TENANT_ADMIN = (
        "tenant-admin", "exd_tenant_",
        Permission.MANIFEST_READ, Permission.MANIFEST_WRITE, Permission.EVALUATE,
        Permission.TENANT_ADMIN,
    )  # fmt: skip
    SUPERADMIN = "superadmin", "exd_admin_", *Permission

    @property
    def role(self) -> str:
        """The role of a principal who shows such a token."""
        return f"{_ROLE}{self.value}"


_TYPES = {kind.role: kind for kind in TokenType}
_OF_NAMESPACES = frozenset(
    (TokenType.NAMESPACE_READ, TokenType.NAMESPACE_WRITE, TokenType.NAMESPACE_CLIENT)
)
_GRANTED = {kind.role: kind.permissions for kind in TokenType if kind is not TokenType.SUPERADMIN}
"""What each role permits. That of superadmins says what a token is called and opens nothing: a
superadmin is known by its own mark, which nobody can claim in a JSON Web Token.
"""


def is_of_namespace(kind: TokenType) -> bool:
    """Whether tokens of this type are bound to one namespace."""
    return kind in _OF_NAMESPACES


def type_of(roles: tuple[str, ...]) -> TokenType | None:
    """The type among the roles of a token; None if it is of another surface."""
    return next((_TYPES[role] for role in roles if role in _TYPES), None)


def permits(principal: Principal, permission: Permission) -> bool:
    """Whether a principal has a permission, wherever that may be."""
    if principal.superadmin:
        return True
    return any(permission in _GRANTED.get(role, ()) for role in principal.roles)


def require_manifest_read(principal: Principal, tenant: str, slug: str) -> None:
    """Refuse who may not read the manifests of a namespace."""
    _require_namespace(principal, Permission.MANIFEST_READ, tenant, slug)


def require_manifest_write(principal: Principal, tenant: str, slug: str) -> None:
    """Refuse who may not upload manifests of a namespace."""
    _require_namespace(principal, Permission.MANIFEST_WRITE, tenant, slug)


def require_evaluate(principal: Principal, tenant: str, slug: str) -> str | None:
    """Refuse who may not evaluate flags of a namespace; returns the one environment in which they
    may, None if that is theirs to choose.
    """
    _require_namespace(principal, Permission.EVALUATE, tenant, slug)
    if principal.superadmin or permits(principal, Permission.MANIFEST_READ):
        return None
    if not principal.environment:
        raise Refused(Code.FORBIDDEN, "this credential is for clients, and of no environment")
    return principal.environment


def require_tenant_admin(principal: Principal, tenant: str) -> None:
    """Refuse who may not administer a tenant."""
    _require(principal, Permission.TENANT_ADMIN)
    principal.require_tenant(tenant)


def require_superadmin(principal: Principal) -> None:
    """Refuse who may not administer the installation."""
    _require(principal, Permission.INSTALLATION_ADMIN)


def _require_namespace(
    principal: Principal, permission: Permission, tenant: str, slug: str
) -> None:
    _require(principal, permission)
    principal.require_tenant(tenant)
    principal.require_namespace(tenant, slug)


def _require(principal: Principal, permission: Permission) -> None:
    if not permits(principal, permission):
        raise Refused(
            Code.FORBIDDEN,
            f"this credential does not permit {permission.value}",
            permission=permission.value,
        )
