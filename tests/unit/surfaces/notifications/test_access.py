"""Who may read and write, by realm and role."""

from __future__ import annotations

import pytest

from headrace.surfaces.notifications.access import AccessRules, has_role

ADMINS = {"local": ("admin",)}
OPEN = AccessRules(required=False, read_roles={"a": ("reader",)}, write_roles={"a": ("writer",)})
PLAIN = AccessRules(required=True)
LISTED = AccessRules(
    required=True,
    read_roles={"a": ("*",), "b": ("reader", "writer")},
    write_roles={"a": ("writer",)},
)
NOBODY = AccessRules(required=True, read_roles={}, write_roles={"a": ()})


@pytest.mark.parametrize(
    ("rules", "realm", "roles", "reads", "writes"),
    [
        (OPEN, "", [], True, True),
        (OPEN, "x", ["y"], True, True),
        (PLAIN, "a", [], True, False),
        (PLAIN, "", ["admin"], True, False),
        (PLAIN, "other", ["admin"], True, False),
        (PLAIN, "local", ["admin"], True, True),
        (LISTED, "a", [], True, False),
        (LISTED, "a", ["writer"], True, True),
        (LISTED, "b", ["writer"], True, False),
        (LISTED, "b", ["other"], False, False),
        (LISTED, "b", [], False, False),
        (LISTED, "c", ["reader", "writer"], False, False),
        (LISTED, "", ["reader", "writer", "*"], False, False),
        (LISTED, "local", ["admin"], True, True),
        (LISTED, "b", ["*"], False, False),
        (NOBODY, "a", ["reader"], False, False),
        (NOBODY, "local", ["x", "admin"], True, True),
    ],
)
def test_rules(rules: AccessRules, realm: str, roles: list[str], reads: bool, writes: bool) -> None:
    assert rules.may_read(realm, roles, ADMINS) is reads
    assert rules.may_write(realm, roles, ADMINS) is writes


def test_nobody_without_a_realm_has_a_role() -> None:
    assert not has_role({"": ("*",)}, "", ["admin"])
    assert has_role({"local": ("*",)}, "local", [])
