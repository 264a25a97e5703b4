"""How much work sets of seqs are: what is counted is ranges that are moved, not time."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.apply import apply
from headrace.core.config import LogConfig
from headrace.core.entry import Append, Delete
from headrace.core.log import Log
from headrace.core.record import block, draft
from headrace.storage import sealing

HELD = 40_000
"""Ranges that are there: every fourth seq."""
DELETED = 10_000
"""Scattered seqs that are deleted together, between those."""


class Counted(list[int]):
    """A list that counts how many of its items are moved."""

    moved = 0

    def __setitem__(self, at: Any, new: Any) -> None:
        assert isinstance(at, slice)
        self.moved += len(self) - (at.start or 0) + len(new)
        super().__setitem__(at, new)


@pytest.fixture
def held() -> Counted:
    return Counted(seq for at in range(1, HELD + 1) for seq in (4 * at, 4 * at))


@pytest.fixture
def scattered() -> Delete:
    seqs = [seq for at in range(1, DELETED + 1) for seq in (16 * at + 2, 16 * at + 2)]
    return Delete(1, seqs, DELETED, 0)


def check(deleted: object, held: Counted) -> None:
    assert deleted is held
    assert len(held) == 2 * (HELD + DELETED)
    assert held.moved <= 2 * len(held)


def test_scattered_deletions_are_applied_in_one_pass(held: Counted, scattered: Delete) -> None:
    """Live and in replay: it is the same function."""
    log = Log(1, "a", "topics", LogConfig(), head=4 * HELD + 10, deleted=held)
    apply(log, scattered)
    check(log.deleted, held)


def test_scattered_deletions_are_sealed_in_one_pass(held: Counted, scattered: Delete) -> None:
    known: dict[int, sealing._Held] = {}
    sealing._take(known, Append(1, block(draft([b"{}"]), 1, 0), None, None))
    known[1].deleted = held
    sealing._take(known, scattered)
    check(known[1].deleted, held)


def test_a_few_deletions_move_no_more_than_they_must(held: Counted) -> None:
    log = Log(1, "a", "topics", LogConfig(), head=4 * HELD + 10, deleted=held)
    last = 4 * HELD - 2
    apply(log, Delete(1, [last, last], 1, 0))
    assert held.moved < 10
