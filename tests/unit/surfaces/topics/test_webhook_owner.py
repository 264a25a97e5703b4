"""Whose a webhook is: of the key that made it, and of others only when that one is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.surfaces.topics.webhooks import _is_own
from headrace.web.credentials import ADMIN, ALL_SCOPES, LOCAL, Principal

ACME = Principal("acme", ALL_SCOPES, ("acme:",))
SIBLING = Principal("sibling", ALL_SCOPES, ("acme:",))
ROOT = Principal("root", ALL_SCOPES)
OTHER = Principal("other", ALL_SCOPES, ("other:",))


def owns(principal: Principal, *, gone: bool = False, source: str = "acme:orders") -> bool:
    gate = SimpleNamespace(credentials=SimpleNamespace(is_gone=lambda id: gone and id == "acme"))
    live = SimpleNamespace(log=SimpleNamespace(created_by="acme"))
    state = SimpleNamespace(source_name=source)
    hooked = SimpleNamespace(name="topics/acme:w", live=live, state=state)
    call = SimpleNamespace(principal=principal, gate=gate)
    return _is_own(cast("Any", call), cast("Any", hooked))


@pytest.mark.parametrize("principal", [ACME, ADMIN, LOCAL])
def test_who_made_it_and_who_may_everything(principal: Principal) -> None:
    assert owns(principal)


@pytest.mark.parametrize("principal", [SIBLING, ROOT, OTHER])
def test_nobody_else_while_the_key_is_there(principal: Principal) -> None:
    assert not owns(principal)


def test_whoever_may_touch_it_when_the_key_is_gone() -> None:
    assert owns(SIBLING, gone=True)
    assert owns(ROOT, gone=True)
    assert not owns(OTHER, gone=True)
    assert not owns(SIBLING, gone=True, source="other:orders")


def test_a_key_that_lost_a_prefix_lost_the_webhook() -> None:
    assert not owns(ACME, source="other:orders")
