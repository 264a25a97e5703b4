"""Claims, and what a holder may do with them."""

from __future__ import annotations

from headrace.core import lease, supersession
from headrace.core.apply import apply
from headrace.core.config import Kind
from headrace.core.entry import Claim, Delay, Extend, Release
from headrace.core.lease import Asking, Counters
from headrace.core.log import Log
from headrace.core.record import draft
from support.samples import RECORD_BYTES, add, new_log, remove


def new_queue(jobs: int = 0, **config: object) -> Log:
    log = new_log(kind=Kind.QUEUE, **config)
    if jobs:
        add(log, jobs)
    return log


def claim(log: Log, node: str, wanted: int, now_ms: int = 100, lease_ms: int = 10) -> list[int]:
    """Claim for one node; returns the seqs."""
    claims, _ = lease.claim(log, [Asking(node, wanted, lease_ms)], log.head, now_ms)
    for entry in claims:
        if entry is not None:
            apply(log, entry)
    return claims[0].seqs if claims[0] else []


def add_grouped(log: Log, *groups: str | None) -> None:
    apply(
        log,
        supersession.append(
            log, None, draft([b"0123456789"] * len(groups), keys=[*groups]), None, 1
        ).append,
    )


def count(log: Log, now_ms: int = 100) -> tuple[int, int]:
    counters = lease.count(log, log.head, now_ms)
    return counters.ready, counters.in_flight


def test_a_claim_takes_the_oldest_fresh_jobs() -> None:
    log = new_queue(5)
    assert claim(log, "w", 2) == [1, 2]
    assert claim(log, "v", 9) == [3, 4, 5]
    assert claim(log, "v", 9) == []
    assert count(log) == (0, 5)


def test_a_claim_says_everything_that_replay_needs() -> None:
    log = new_queue(2)
    claims, spent = lease.claim(log, [Asking("w", 2, 10)], 2, 100)
    assert claims == [Claim(log.id, "w", 100, 110, 100 << 10, [1, 2])]
    assert spent == []


def test_fences_grow_with_each_job_and_with_the_clock() -> None:
    log = new_queue(6)
    claim(log, "w", 2, now_ms=100)
    assert [log.jobs.leases[seq].fence for seq in (1, 2)] == [100 << 10, (100 << 10) + 1]
    claim(log, "w", 1, now_ms=100)
    assert log.jobs.leases[3].fence == (100 << 10) + 2
    claim(log, "w", 1, now_ms=50, lease_ms=1000)
    assert log.jobs.leases[4].fence == (100 << 10) + 3, "the clock may go back"
    claim(log, "w", 1, now_ms=101)
    assert log.jobs.leases[5].fence == 101 << 10


def test_jobs_that_nobody_can_see_yet_are_not_handed_out() -> None:
    log = new_queue(3)
    claims, _ = lease.claim(log, [Asking("w", 9, 10)], 2, 100)
    assert claims[0] is not None
    assert claims[0].seqs == [1, 2]
    assert lease.count(log, 2, 100) == Counters(2, 0, 0)


def test_ten_who_want_ten_get_five_of_fifty() -> None:
    log = new_queue(50)
    askers = [Asking(f"w{at}", 10, 10) for at in range(10)]
    claims, _ = lease.claim(log, askers, 50, 100)
    assert [len(entry.seqs) for entry in claims if entry] == [5] * 10
    assert claims[3] is not None
    assert claims[3].seqs == [4, 14, 24, 34, 44]


def test_nobody_gets_more_than_asked_and_the_rest_is_shared() -> None:
    log = new_queue(9)
    askers = [Asking("modest", 1, 10), Asking("middling", 5, 10), Asking("greedy", 100, 10)]
    claims, _ = lease.claim(log, askers, 9, 100)
    assert [len(entry.seqs) for entry in claims if entry] == [1, 4, 4]


def test_the_first_turn_goes_round() -> None:
    log = new_queue(2)
    askers = [Asking("a", 1, 10), Asking("b", 1, 10), Asking("c", 1, 10)]
    claims, _ = lease.claim(log, askers, 2, 100, turn=2)
    assert [entry.seqs if entry else None for entry in claims] == [[2], None, [1]]


def test_each_keeps_his_own_lease() -> None:
    log = new_queue(2)
    claims, _ = lease.claim(log, [Asking("a", 1, 10), Asking("b", 1, 500)], 2, 100)
    assert [entry.deadline_ms for entry in claims if entry] == [110, 600]


def test_a_crash_between_two_claims_of_a_round_leaves_no_hole() -> None:
    log = new_queue(4)
    claims, _ = lease.claim(log, [Asking("a", 2, 10), Asking("b", 2, 10)], 4, 100)
    assert claims[0] is not None
    apply(log, claims[0])  # and the journal ends here
    assert claim(log, "c", 9) == [2, 4]


def test_a_lease_is_over_once_its_deadline_has_passed() -> None:
    log = new_queue(2)
    claim(log, "w", 1, now_ms=100, lease_ms=10)
    assert count(log, 110) == (1, 1)
    assert count(log, 111) == (2, 0)
    assert claim(log, "v", 1, now_ms=111) == [1], "a returned job comes first"
    assert log.jobs.deliveries == {1: 2}


def test_only_the_holder_holds() -> None:
    log = new_queue(3)
    claim(log, "me", 2)
    claim(log, "you", 1)
    assert lease.hold(log, "me", [3, 2, 1, 2, 9], None, 100) == ([1, 2], [3, 2, 9])
    fence = log.jobs.leases[1].fence
    assert lease.hold(log, "me", [1, 2], [fence, fence], 100) == ([1], [2])
    assert lease.hold(log, "me", [1, 2], [None, None], 100) == ([1, 2], [])
    assert lease.hold(log, "you", [1], [fence], 100) == ([], [1]), "a token is not enough"
    assert lease.hold(log, "me", [1], None, 111) == ([], [1]), "too late is too late"


def test_an_ack_is_the_delete() -> None:
    log = new_queue(4)
    claim(log, "w", 3)
    apply(log, lease.ack(log, [1, 1, 3, 3], 2, 2 * RECORD_BYTES))
    assert (log.count, list(log.deleted), log.jobs.deliveries) == (2, [1, 1, 3, 3], {2: 1})
    assert count(log) == (1, 1)


def test_a_nack_gives_back_at_once_or_later() -> None:
    log = new_queue(2)
    claim(log, "w", 2)
    assert lease.nack(log, [1], 0, 100) == Release(log.id, [1], 0)
    apply(log, lease.nack(log, [1], 0, 100))
    apply(log, lease.nack(log, [2], 7, 100))
    assert count(log, 106) == (1, 0)
    assert count(log, 107) == (2, 0)
    assert claim(log, "w", 9, now_ms=107) == [1, 2]


def test_an_extension_sets_the_deadline_and_keeps_the_fence() -> None:
    log = new_queue(1)
    claim(log, "w", 1)
    fence = log.jobs.leases[1].fence
    entry = lease.extend(log, [1], 50, 105)
    assert entry == Extend(log.id, [1], 155)
    apply(log, entry)
    assert count(log, 155) == (0, 1)
    assert lease.hold(log, "w", [1], [fence], 155) == ([1], [])
    assert count(log, 156) == (1, 0)
    assert log.jobs.deliveries == {1: 1}


def test_a_job_that_failed_too_often_is_for_nobody() -> None:
    log = new_queue(2, max_deliveries=1, dead_letter="dlq")
    claim(log, "w", 1)
    apply(log, lease.nack(log, [1], 0, 100))
    claims, spent = lease.claim(log, [Asking("w", 1, 10)], 2, 100)
    assert claims[0] is not None
    assert (claims[0].seqs, spent) == ([2], [1])
    apply(log, claims[0])
    apply(log, lease.dead_letter(log, spent, RECORD_BYTES))
    assert lease.count(log, 2, 100) == Counters(0, 1, 1)


def test_without_a_place_for_dead_letters_a_job_comes_back_for_ever() -> None:
    log = new_queue(1, max_deliveries=1)
    for _ in range(3):
        assert claim(log, "w", 1) == [1]
        apply(log, lease.nack(log, [1], 0, 100))
    assert log.jobs.deliveries == {1: 3}


def test_a_group_is_worked_on_in_order() -> None:
    log = new_queue()
    add_grouped(log, "a", "a", "b", None, "b")
    assert count(log) == (3, 0)
    assert claim(log, "w", 9) == [1, 3, 4]
    assert claim(log, "w", 9) == []
    apply(log, lease.nack(log, [1], 5, 100))
    assert claim(log, "w", 9) == [], "the first one is put off, and the others with it"
    assert claim(log, "w", 9, now_ms=105) == [1]
    apply(log, lease.ack(log, [1, 1], 1, RECORD_BYTES))
    assert claim(log, "w", 9, now_ms=105) == [2]


def test_a_deleted_job_leaves_its_group() -> None:
    log = new_queue()
    add_grouped(log, "a", "a", "a")
    remove(log, [2, 2])
    assert claim(log, "w", 9) == [1]
    remove(log, [1, 1])
    assert claim(log, "w", 9) == [3]
    remove(log, [3, 3])
    assert (log.jobs.grouped, log.jobs.parked) == ({}, 0)


def test_new_jobs_wait_for_their_time() -> None:
    log = new_queue(4)
    entries = lease.delay(log, 1, [None, 150, 150, 100], 100)
    assert entries == [Delay(log.id, [2, 3], 150)]
    apply(log, entries[0])
    assert claim(log, "w", 9, lease_ms=1000) == [1, 4]
    assert count(log, 149) == (0, 2)
    assert count(log, 150) == (2, 2)
    assert claim(log, "w", 9, now_ms=150) == [2, 3]


def test_a_delayed_job_behind_others_waits_for_both() -> None:
    log = new_queue()
    add_grouped(log, "a", "a")
    apply(log, Delay(log.id, [2, 2], 150))
    assert claim(log, "w", 9) == [1]
    apply(log, lease.ack(log, [1, 1], 1, RECORD_BYTES))
    assert claim(log, "w", 9, now_ms=149) == []
    assert claim(log, "w", 9, now_ms=150) == [2]


def test_a_restart_ends_leases_unless_the_queue_keeps_them() -> None:
    log = new_queue(3)
    claim(log, "w", 3)
    assert lease.lost_by_restart(log, [2, 2]) == Release(log.id, [1, 3], 0)
    durable = new_queue(1, leases_durable=True)
    claim(durable, "w", 1)
    assert lease.lost_by_restart(durable, ()) is None
    assert lease.lost_by_restart(new_log(), ()) is None
