"""What readers are told of logs: where their records lie, as far as there is room for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET

from headrace.surfaces.bulk import plans


def live(dead: int) -> Any:
    """A log of which every other record was deleted."""
    log = SimpleNamespace(
        name="t", id=1, owner="topics", stream=None, earliest=1, floor=1, count=1, size_bytes=1,
        deleted=[seq for at in range(2, 2 * dead + 2, 2) for seq in (at, at)], gaps=(), holes=(),
        extents=[(1, 1, 100)], inherited=0, volatile=(),
    )  # fmt: skip
    return SimpleNamespace(log=log)


def test_an_answer_has_room_for_so_many_ranges_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PAGE_RANGES_MAX", 10)
    monkeypatch.setattr(plans, "PLANS_RANGES_MAX", 25)
    lives = [live(dead) for dead in (10, 11, 10, 10, 5, 1)]
    told = plans.plans_of(((each, 100) for each in lives), extents=True)
    counts = [None if plan.deleted is UNSET else len(plan.deleted) for plan in told]
    assert counts == [10, None, 10, None, 5, None]
    assert [plan.sealed for plan in told] == [[(1, 100)], [], [(1, 100)], [], [(1, 100)], []]


def test_without_extents_nothing_is_told_of_them() -> None:
    (plan,) = plans.plans_of([(live(1), 100)], extents=False)
    assert plan.sealed is plan.deleted is plan.lost is UNSET
