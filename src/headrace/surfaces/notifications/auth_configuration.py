"""The section `auth` of the configuration file: how callers say who they are."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.core.limits import NOTIFICATION_USERS_MAX, ROLES_MAX, USER_NAME_MAX
from headrace.surfaces.notifications.access import Roles
from headrace.surfaces.notifications.schema_configuration import NoEffect, parse_roles
from headrace.surfaces.notifications.yaml_nodes import ConfigurationNode
from headrace.web.json_web_tokens import Verifier
from headrace.web.users import REALM_END, User, UserTable, build_user

AuthMode = Literal["direct", "trusted_proxy", "static"]

_NEEDED = {
    "direct": ("jwt_secret", "auth_o_tron_url"),
    "trusted_proxy": ("jwt_secret",),
    "static": ("users",),
}
"""Keys that a mode cannot do without."""
_UNUSED = {
    "direct": ("users",),
    "trusted_proxy": ("auth_o_tron_url", "timeout_ms", "users"),
    "static": ("jwt_secret", "auth_o_tron_url", "timeout_ms"),
}
"""Keys that say nothing to a mode."""


class AuthRules(msgspec.Struct, frozen=True, kw_only=True):
    """How callers say who they are, and who is an admin."""

    mode: AuthMode
    verifier: Verifier | None = None
    """Of JSON Web Tokens; None in mode `static`."""
    auth_url: str | None = None
    """Of the service that is asked; None but in mode `direct`."""
    timeout_ms: int = 5000
    users: UserTable = UserTable()
    """None but in mode `static`."""
    admin_roles: Roles = {}


def parse_auth(node: ConfigurationNode, no_effect: NoEffect) -> AuthRules | None:
    """What the section says; None if it is not enabled. Raises `ConfigurationError`."""
    given = node.members(
        "enabled",
        "mode",
        "jwt_secret",
        "auth_o_tron_url",
        "timeout_ms",
        "admin_roles",
        "users",
    )
    mode: AuthMode = "direct"
    if "mode" in given:
        mode = given["mode"].choice("direct", "trusted_proxy", "static")
    timeout = given.get("timeout_ms")
    timeout_ms = 5000 if timeout is None else timeout.whole(1, 60_000)
    verifier = _parse_secret(given["jwt_secret"]) if "jwt_secret" in given else None
    auth_url = given["auth_o_tron_url"].url() if "auth_o_tron_url" in given else None
    users = _parse_users(given["users"]) if "users" in given else UserTable()
    admin_roles = parse_roles(given["admin_roles"]) if "admin_roles" in given else {}
    if "enabled" not in given or not given["enabled"].switch():
        return None
    for name in _NEEDED[mode]:
        if name not in given:
            node.fail(f"has no {name}, which mode {mode} needs")
    for name in _UNUSED[mode]:
        if name in given:
            no_effect(given[name])
    return AuthRules(
        mode=mode,
        verifier=verifier if mode != "static" else None,
        auth_url=auth_url if mode == "direct" else None,
        timeout_ms=timeout_ms,
        users=users if mode == "static" else UserTable(),
        admin_roles=admin_roles,
    )


def _parse_secret(node: ConfigurationNode) -> Verifier:
    secret = node.text()
    try:
        return Verifier.of_secret(secret)
    except ValueError as expected:
        node.fail(f"is not {expected}")


def _parse_users(node: ConfigurationNode) -> UserTable:
    users: dict[str, User] = {}
    items = node.items(NOTIFICATION_USERS_MAX)
    if not items:
        node.fail("has no user")
    for item in items:
        given = item.members("username", "password", "realm", "roles")
        name = item.need("username").text(USER_NAME_MAX)
        if ":" in name:
            item.need("username").fail("has a colon in it")
        if name in users:
            item.need("username").fail("is the name of another user")
        if REALM_END in item.need("realm").text():
            item.need("realm").fail(f"has a {REALM_END} in it")
        users[name] = build_user(
            name,
            item.need("password").text(),
            item.need("realm").text(),
            tuple(role.text() for role in given["roles"].items(ROLES_MAX))
            if "roles" in given
            else (),
        )
    return UserTable(tuple(users.values()))
