"""One log: seqs, floors, gaps, and what a restart takes."""

from __future__ import annotations

import pytest

from headrace.core import log as core_log
from headrace.core import supersession
from headrace.core.apply import apply
from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.entry import Configure, Delete, LoseAtRestart, Reserve, Trim
from headrace.core.errors import Code, Refused
from headrace.core.record import draft
from support.samples import RECORD_BYTES, add, new_log, remove


def test_seqs_start_at_one_and_are_contiguous() -> None:
    log = new_log()
    assert (add(log, 3).block.first, log.head) == (1, 3)
    assert (add(log, 2).block.first, log.head) == (4, 5)
    assert (log.floor, log.earliest) == (1, 1)
    assert (log.count, log.size_bytes) == (5, 5 * RECORD_BYTES)


def test_an_empty_log_starts_behind_its_head() -> None:
    log = new_log()
    assert log.earliest == 1
    add(log, 2)
    remove(log, [1, 2])
    assert (log.count, log.size_bytes, log.earliest, log.head) == (0, 0, 3, 2)


def test_commit_times_never_fall() -> None:
    log = new_log()
    add(log, 1, now_ms=100)
    assert add(log, 1, now_ms=90).block.ts_ms == 100


def test_deletes_move_the_first_live_record_but_not_the_evict_floor() -> None:
    log = new_log()
    add(log, 5)
    remove(log, [1, 2])
    assert (log.earliest, log.floor) == (3, 1)
    remove(log, [4, 4])
    assert (log.earliest, list(log.deleted)) == (3, [1, 2, 4, 4])


def test_a_cap_discards_the_oldest() -> None:
    log = new_log(cap_records=3)
    add(log, 3)
    assert add(log, 2).trim == Trim(log.id, 3, 0, 2, 2 * RECORD_BYTES)
    assert (log.floor, log.earliest, log.count) == (3, 3, 3)


def test_a_batch_over_the_cap_keeps_its_newest() -> None:
    log = new_log(cap_records=3)
    add(log, 2)
    assert add(log, 5).trim == Trim(log.id, 5, 0, 4, 4 * RECORD_BYTES)
    assert (log.head, log.earliest, log.count) == (7, 5, 3)


def test_a_rejecting_log_refuses_what_does_not_fit_and_stays_as_it_is() -> None:
    log = new_log(cap_records=3, discard=Discard.REJECT)
    add(log, 2)
    with pytest.raises(Refused) as refusal:
        supersession.append(log, None, draft([b"1", b"2"]), None, 1)
    assert refusal.value.code is Code.LOG_FULL
    assert refusal.value.detail["permanent"] is False
    with pytest.raises(Refused) as refusal:
        supersession.append(log, None, draft([b"1"] * 4), None, 1)
    assert refusal.value.detail["permanent"] is True
    assert (log.head, log.count) == (2, 2)


def test_a_rejecting_log_loses_nothing_when_its_cap_is_tightened() -> None:
    log = new_log(cap_records=3, ttl_ms=1000, discard=Discard.REJECT)
    add(log, 3)
    tight = LogConfig(cap_records=1, ttl_ms=1000, discard=Discard.REJECT)
    apply(log, Configure(log.id, tight, log.head))
    assert core_log.overflow(log) is None


def test_a_tightened_cap_discards_at_once() -> None:
    log = new_log(cap_records=3)
    add(log, 3)
    apply(log, Configure(log.id, LogConfig(cap_records=1), log.head))
    trim = core_log.overflow(log)
    assert trim == Trim(log.id, 3, 0, 2, 2 * RECORD_BYTES)


def test_the_ledger_forgets_a_deleted_prefix() -> None:
    log = new_log(cap_records=1000)
    for now_ms in range(1, 101):
        add(log, 1, now_ms)
        remove(log, [now_ms, now_ms])
    assert log.ledger is not None
    assert list(log.ledger.runs(())) == []


def test_expired_means_older_than_the_time_to_live() -> None:
    log = new_log(ttl_ms=10)
    add(log, 2, now_ms=100)
    add(log, 1, now_ms=101)
    assert core_log.expire(log, 110) is None
    assert core_log.expire(log, 111) == Trim(log.id, 0, 3, 2, 2 * RECORD_BYTES)


def test_seqs_are_promised_ahead_unless_every_append_is_synced() -> None:
    log = new_log()
    assert log.reserved == 1024
    assert core_log.reserve(log, 500, 1024) is None
    assert core_log.reserve(log, 600, 1024) == Reserve(log.id, 1624)
    assert core_log.reserve(new_log(durability=Durability.FSYNC), 600, 1024) is None


def test_a_crash_of_the_system_takes_promised_seqs_with_it() -> None:
    log = new_log()
    add(log, 3)
    assert core_log.lost_by_restart(log, clean=True, same_boot=False) == ((), 3)
    assert core_log.lost_by_restart(log, clean=False, same_boot=True) == ((), 3)
    assert core_log.lost_by_restart(log, clean=False, same_boot=False) == ([4, 1024], 1024)


def test_a_loss_behind_live_records_is_a_gap_and_one_before_them_a_floor() -> None:
    log = new_log()
    add(log, 3)
    apply(log, LoseAtRestart(log.id, [4, 1024], 1024, log.size_bytes))
    assert (log.floor, list(log.gaps), log.head, log.count) == (1, [4, 1024], 1024, 3)
    apply(log, LoseAtRestart(log.id, [1, 3], 1024, 0))
    assert (log.floor, list(log.gaps), log.earliest, log.count) == (1025, [], 1025, 0)


def test_ephemeral_records_do_not_survive() -> None:
    log = new_log(durability=Durability.EPHEMERAL)
    add(log, 3)
    assert core_log.lost_by_restart(log, clean=True, same_boot=True) == ([1, 3], 3)


def test_replay_without_the_ephemeral_records_ends_with_exact_counts() -> None:
    """Their appends are not journaled, but trims and deletes that took some of them are."""
    log = new_log(durability=Durability.EPHEMERAL, ttl_ms=10)
    apply(log, Trim(log.id, 0, 5, 4, 4 * RECORD_BYTES))
    apply(log, Delete(log.id, [6, 7], 2, 2 * RECORD_BYTES))
    lost, head = core_log.lost_by_restart(log, clean=False, same_boot=True)
    apply(log, LoseAtRestart(log.id, list(lost), head, 0))
    assert (log.count, log.size_bytes) == (0, 0)
    assert (log.floor, log.head) == (1025, 1024)


def test_a_change_of_class_says_which_seqs_were_never_journaled() -> None:
    log = new_log(durability=Durability.EPHEMERAL)
    apply(log, Configure(log.id, LogConfig(), 10))
    add(log, 2)
    lost, head = core_log.lost_by_restart(log, clean=False, same_boot=True)
    assert (list(lost), head) == ([1, 10], 12)
    apply(log, LoseAtRestart(log.id, list(lost), head, 2 * RECORD_BYTES))
    assert (log.count, log.size_bytes, log.floor, log.earliest) == (2, 2 * RECORD_BYTES, 11, 11)


def test_a_key_is_forgotten_with_the_records_it_stands_for() -> None:
    log = new_log(durability=Durability.EPHEMERAL)
    add(log, 1, key="lost")
    apply(log, Configure(log.id, LogConfig(), log.head))
    add(log, 1, key="kept")
    lost, head = core_log.lost_by_restart(log, clean=True, same_boot=True)
    apply(log, LoseAtRestart(log.id, list(lost), head, RECORD_BYTES))
    assert log.keys is not None
    assert list(log.keys) == ["kept"]


def test_extents_are_told_once_and_pruned_when_nothing_in_them_lives() -> None:
    log = new_log()
    add(log, 6)
    core_log.place(log, {1, 2}, [(1, 1, 3)])
    core_log.place(log, {1, 2}, [(2, 4, 6)])
    core_log.place(log, {1, 2}, [(2, 4, 6)])
    assert list(log.extents) == [(1, 1, 3), (2, 4, 6)]
    assert log.sealed_last == 6
    remove(log, [1, 3])
    core_log.prune_extents(log)
    assert list(log.extents) == [(2, 4, 6)]
