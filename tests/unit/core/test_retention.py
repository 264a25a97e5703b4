"""The ledger: ages and sizes in runs, and how far the floor must move."""

from __future__ import annotations

from headrace.core import retention
from headrace.core.record import block, draft
from headrace.core.retention import Ledger
from support.samples import RECORD_BYTES, block_at


def ledger() -> Ledger:
    """Records 1 to 3 of time 100, 4 and 5 of time 200, all of one size."""
    return retention.build(iter((block_at(1, 3, 100), block_at(4, 2, 200))))


def test_equal_records_are_one_run() -> None:
    held = ledger()
    held.add(block_at(6, 1, 200))
    assert list(held.runs(())) == [(1, 3, 100, RECORD_BYTES), (4, 6, 200, RECORD_BYTES)]
    held.add(block(draft([b"1", b"22"]), 7, 200))
    assert list(held.runs((), after=6)) == [(7, 7, 200, 17), (8, 8, 200, 18)]


def test_what_is_gone_does_not_count() -> None:
    assert [run[:2] for run in ledger().runs(([2, 2],))] == [(1, 1), (3, 3), (4, 5)]
    assert ledger().measure(2, 4, ([3, 3],)) == (2, 2 * RECORD_BYTES)


def test_the_oldest_go_until_both_excesses_are_shed() -> None:
    assert retention.overflow(ledger(), (), 2, 0) == (3, 2, 2 * RECORD_BYTES)
    assert retention.overflow(ledger(), (), 1, RECORD_BYTES + 1) == (3, 2, 2 * RECORD_BYTES)
    assert retention.overflow(ledger(), ([1, 1],), 1, 0) == (3, 1, RECORD_BYTES)
    assert retention.overflow(ledger(), (), 0, 0) == (0, 0, 0)


def test_expired_is_a_prefix() -> None:
    assert retention.expired(ledger(), (), ttl_ms=50, now_ms=150) == (0, 0, 0)
    assert retention.expired(ledger(), (), ttl_ms=50, now_ms=151) == (4, 3, 3 * RECORD_BYTES)


def test_a_ledger_survives_a_snapshot() -> None:
    held = ledger()
    held.drop_below(3)
    assert list(Ledger.load(held.dump()).runs(())) == list(held.runs(()))


def test_a_long_ledger_lets_go_of_what_it_forgot() -> None:
    held = Ledger()
    for seq in range(1, 10_001):
        held.add(block_at(seq, 1, ts_ms=seq))
    held.drop_below(9_000)
    assert len(held.dump()[0]) == 8 * 1_001
    assert [run[0] for run in held.runs((), after=9_998)] == [9_999, 10_000]
