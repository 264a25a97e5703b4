"""How much work sets of seqs are: what is counted is ranges that are moved, not time."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core import log as core_log
from headrace.core import ranges
from headrace.core.apply import apply
from headrace.core.config import LogConfig
from headrace.core.entry import Append, Delete
from headrace.core.log import Log
from headrace.core.record import block, draft
from headrace.core.retention import build
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


def test_deletions_one_by_one_are_sealed_in_one_pass(held: Counted) -> None:
    known: dict[int, sealing._Held] = {}
    sealing._take(known, Append(1, block(draft([b"{}"] * 9), 4 * HELD + 4, 0), None, None))
    known[1].deleted = held
    for seq in (4 * HELD + 9, 2, 4 * HELD + 8, 4 * HELD + 5, 4 * HELD + 9):
        sealing._take(known, Delete(1, [seq, seq], 1, 0))
    assert held.moved == 0
    (rows,) = sealing._rows(known, {1: "a"})
    parts = [(part.first - 4 * HELD, part.last - 4 * HELD) for part in rows.blocks]
    assert parts == [(4, 4), (6, 7), (10, 12)]


def test_a_few_deletions_move_no_more_than_they_must(held: Counted) -> None:
    log = Log(1, "a", "topics", LogConfig(), head=4 * HELD + 10, deleted=held)
    last = 4 * HELD - 2
    apply(log, Delete(1, [last, last], 1, 0))
    assert held.moved < 10


class Seq(int):
    """A seq that counts how often one is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Seq.compared += 1
        return int(self) < int(other)


@pytest.mark.parametrize("deleted", [10, ranges._FEW + 1, 1000])
def test_each_deletion_is_looked_up_and_nothing_else_is_looked_at(deleted: int) -> None:
    held = [Seq(seq) for at in range(1, HELD + 1) for seq in (4 * at, 4 * at)]
    apart = HELD // deleted
    new = [seq for at in range(deleted) for seq in (4 * at * apart + 2, 4 * at * apart + 2)]
    Seq.compared = 0
    assert len(ranges.union(held, new)) == 2 * (HELD + deleted)
    assert Seq.compared < 4 * deleted * HELD.bit_length()


class Kept(list[int]):
    """A list that nobody walks through."""

    def __iter__(self) -> Any:
        raise AssertionError("walked through")


def test_retention_does_not_walk_through_deletions_where_a_restart_left_gaps() -> None:
    new = block(draft([b"{}"] * 10), 91, 0)
    log = Log(
        1, "a", "topics", LogConfig(cap_records=5, ttl_ms=1000), head=100, count=10,
        deleted=Kept([10, 20, 93, 93]), gaps=[30, 40], holes=[50, 60], extents=[(1, 1, 100)],
        ledger=build(iter((new,))),
    )  # fmt: skip
    trim = core_log.overflow(log)
    assert trim is not None
    assert (trim.floor_cap, trim.count) == (97, 5)
    expired = core_log.expire(log, 2000)
    assert expired is not None
    assert (expired.floor_ttl, expired.count) == (101, 9)
    core_log.prune_extents(log)
    assert log.extents == [(1, 1, 100)]
