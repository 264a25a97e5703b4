"""Where jobs are: what a queue keeps, and what it costs when there are many."""

from __future__ import annotations

import msgspec

from headrace.core import ranges
from headrace.core.entry import Claim
from headrace.core.queue_state import Lease, Places, Queue


def take(queue: Queue, first: int, last: int, deadline_ms: int = 10) -> None:
    seqs = list(range(first, last + 1))
    fresh = queue.take(Claim(1, "w", 1, deadline_ms, first, seqs))
    if fresh:
        queue.pass_to(fresh[-1], [])


def test_a_queue_is_kept_whole() -> None:
    queue = Queue()
    queue.line_up(1, ["a", "a", None, "a"])
    queue.delay([2, 3], 99)
    take(queue, 1, 1)
    queue.dead_lettered = 3
    raw = msgspec.msgpack.encode(queue.dump())
    again = Queue.load(msgspec.msgpack.decode(raw, type=Places))
    assert again.dump() == queue.dump()
    assert again.dump() == Places(
        cursor=1,
        fence=1,
        dead_lettered=3,
        aside=[2, 4],
        returned=[],
        leases={1: Lease(1, "w", 10)},
        delayed={2: 99, 3: 99},
        deliveries={1: 1},
        groups={"a": [1, 2, 4]},
    )
    assert (again.parked, again.next_change_ms()) == (2, 11)
    again.forget([1, 1], 1)
    assert (again.parked, again.delayed, again.next_change_ms()) == (1, {2: 99, 3: 99}, 99)


def test_what_is_done_leaves_nothing_behind() -> None:
    queue = Queue()
    for seq in range(1, 5001):
        take(queue, seq, seq, deadline_ms=seq + 1_000_000)
        queue.forget([seq, seq], 1)
    assert queue.dump() == Places(5000, 5000, 0, [], [], {}, {}, {}, {})
    assert len(queue._expiry) < 100
    assert queue.next_change_ms() is None


def test_jobs_put_off_again_and_again_leave_nothing_behind() -> None:
    queue = Queue()
    for turn in range(5000):
        queue.take(Claim(1, "w", 1, 10, turn + 1, [1]))
        queue.release([1], 1_000_000 + turn)
        queue.sweep(2_000_000) if turn % 2 else None
    assert len(queue._due) < 200
    assert len(queue._returning) < 200


def test_a_floor_takes_all_below_it() -> None:
    queue = Queue()
    queue.line_up(1, ["a", "b", "a", "b", "a"])
    take(queue, 1, 2)
    queue.forget_below(2)
    assert (list(queue.leases), queue.returned) == ([2], {3})
    queue.forget_below(4)
    assert (list(queue.leases), queue.returned, queue.parked) == ([], {4, 5}, 0)
    queue.delay([6, 7], 99)
    queue.forget_below(7)
    assert (queue.delayed, queue.returned, queue.grouped) == ({7: 99}, set(), {})


def test_many_deleted_at_once_cost_no_more_than_what_is_known() -> None:
    queue = Queue()
    take(queue, 1, 3)
    queue.forget([2, 1 << 60], (1 << 60) - 1)
    assert (list(queue.leases), queue.ended) == ([1], 2)


def test_returned_jobs_come_in_order_and_once() -> None:
    queue = Queue()
    take(queue, 1, 5)
    queue.release([5, 3], 0)
    queue.release([1], 0)
    assert queue.peek(2, 9, 0) == ([1, 3], [])
    assert queue.peek(9, 4, 0) == ([1, 3], [])
    queue.take(Claim(1, "w", 1, 10, 9, [3]))
    queue.release([3], 0)
    assert queue.peek(9, 9, 0) == ([1, 3, 5], [])
    assert queue.peek(9, 9, 2) == ([1, 5], [3]), "delivered twice"
    assert queue.peek(1, 9, 2) == ([1], [])


def test_a_long_run_of_delayed_jobs_is_one_range() -> None:
    queue = Queue()
    queue.delay([1, 100_000], 99)
    assert ranges.count(queue.aside) == 100_000
    assert len(queue.aside) == 2
