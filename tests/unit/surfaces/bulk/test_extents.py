"""What readers are told of logs: where their records lie, as far as there is room for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET

from headrace.surfaces.bulk import plans


def live(dead: int, segments: int = 1) -> Any:
    """A log of which every other record was deleted."""
    log = SimpleNamespace(
        name="t", id=1, owner="topics", stream=None, earliest=1, floor=1, count=1, size_bytes=1,
        deleted=[seq for at in range(2, 2 * dead + 2, 2) for seq in (at, at)], gaps=(), holes=(),
        extents=[(at + 1, 100 * at + 1, 100 * at + 100) for at in range(segments)],
        inherited=0, volatile=(),
    )  # fmt: skip
    return SimpleNamespace(log=log)


def test_an_answer_has_room_for_so_many_ranges_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PAGE_RANGES_MAX", 10)
    monkeypatch.setattr(plans, "PLANS_RANGES_MAX", 25)
    lives = [live(dead) for dead in (10, 11, 10, 10, 5, 1)]
    told = asyncio.run(plans.plans_of(((each, 100) for each in lives), extents=True))
    counts = [None if plan.deleted is UNSET else len(plan.deleted) for plan in told]
    assert counts == [10, None, 10, None, 5, None]
    assert [plan.sealed for plan in told] == [[(1, 100)], [], [(1, 100)], [], [(1, 100)], []]


def test_without_extents_nothing_is_told_of_them() -> None:
    (plan,) = asyncio.run(plans.plans_of([(live(1), 100)], extents=False))
    assert plan.sealed is plan.deleted is plan.lost is UNSET


def test_an_answer_has_room_for_so_many_segments_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand logs in a thousand segments each held everybody up for seconds."""
    monkeypatch.setattr(plans, "PLANS_EXTENTS_MAX", 10)
    lives = [live(0, segments) for segments in (6, 4, 1, 12)]
    told = asyncio.run(plans.plans_of(((each, 2000) for each in lives), extents=True))
    assert [len(plan.sealed or ()) for plan in told] == [6, 4, 0, 0], "by name: all, but not that"
    assert plans.fitting(lives) == 2, "by prefix: the next page has the rest"
    assert plans.fitting(lives[2:]) == plans.fitting(lives[3:]) == 1
    (large,) = asyncio.run(plans.plans_of([(lives[3], 2000)], extents=True))
    assert len(large.sealed or ()) == 12, "a log alone is told whole, whatever it takes"


def test_others_have_their_turn_while_an_answer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.flow.time_slices.WALK_MS", -1)
    turns = []

    async def work() -> None:
        other = asyncio.create_task(asyncio.sleep(0))
        other.add_done_callback(turns.append)
        await plans.plans_of(((live(0), 100) for _ in range(3)), extents=True)
        assert turns, "everybody waited"

    asyncio.run(work())
