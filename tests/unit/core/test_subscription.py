"""Subscriptions: patterns, what is pending, leases and generations."""

from __future__ import annotations

import pytest

from headrace.core.entry import Dispatch, Follow, Following
from headrace.core.errors import Code, Refused
from headrace.core.subscription import (
    PULL,
    Link,
    StreamEnd,
    Subscription,
    acknowledge,
    apply,
    check_fence,
    claim,
    fail,
    pending,
    settled,
    wake,
)

FOLLOWING = Following(PULL, "a/*", [], None, "wakes", 1000, None, "", 0)


def subscribe(**links: Link) -> Subscription:
    held = [(path, link.named, link.epoch, link.seq) for path, link in links.items()]
    return apply(None, Follow(1, held, following=FOLLOWING))


def tails(**known: int) -> dict[str, StreamEnd]:
    return {path: StreamEnd(0, seq) for path, seq in known.items()}


def test_only_what_is_listed_and_behind_is_pending() -> None:
    subscription = subscribe(a=Link(False, 0, 2), b=Link(True, 0, 5), c=Link(True, 0, 0))
    found = {work.path: work for work in pending(subscription, tails(a=3, b=5, d=9).get)}
    assert list(found) == ["a"]
    assert (found["a"].done, found["a"].tail.seq) == (2, 3)


def test_of_a_stream_that_was_made_anew_nothing_is_done() -> None:
    subscription = subscribe(a=Link(True, 0, 7))
    [work] = pending(subscription, {"a": StreamEnd(1, 2)}.get)
    assert (work.done, work.tail) == (0, StreamEnd(1, 2))


def test_what_is_done_and_not_named_needs_no_note() -> None:
    subscription = subscribe(a=Link(False, 0, 3), b=Link(True, 0, 3), c=Link(False, 0, 2))
    ends = tails(a=3, b=3, c=3)
    assert settled(subscription, ["b", "a", "c", "a"], ends.get) == ["a"]
    # Only what was acked just now is looked at: there may be a hundred thousand others.
    assert settled(subscription, ["c"], ends.get) == []


def test_a_wake_is_claimed_once() -> None:
    subscription = subscribe(a=Link(False, 0, 0))
    apply(subscription, wake(1, subscription, "w1"))
    apply(subscription, claim(1, subscription, "me", "w2", 100, work=True))
    assert (subscription.generation, subscription.wake, subscription.holder) == (1, "w1", "me")
    with pytest.raises(Refused) as refused:
        claim(1, subscription, "you", "w3", 1099, work=True)
    assert refused.value.code is Code.ALREADY_CLAIMED
    assert refused.value.detail == {"current_holder": "me", "generation": 1}


def test_a_lease_that_ran_out_can_be_claimed_as_a_new_generation() -> None:
    subscription = subscribe(a=Link(False, 0, 0))
    apply(subscription, claim(1, subscription, "me", "w1", 100, work=True))
    apply(subscription, claim(1, subscription, "you", "w2", 1100, work=True))
    assert (subscription.generation, subscription.holder) == (2, "you")
    with pytest.raises(Refused):
        check_fence(subscription, "w1", 1, 1100)
    check_fence(subscription, "w2", 2, 1100)


def test_without_work_there_is_nothing_to_claim() -> None:
    with pytest.raises(Refused) as refused:
        claim(1, subscribe(), "me", "w", 0, work=False)
    assert refused.value.code is Code.NOTHING_PENDING


@pytest.mark.parametrize(
    ("name", "generation", "now_ms"), [("w2", 1, 0), ("w1", 2, 0), ("w1", 1, 1000)]
)
def test_the_fence(name: str, generation: int, now_ms: int) -> None:
    subscription = subscribe()
    apply(subscription, claim(1, subscription, "me", "w1", 0, work=True))
    check_fence(subscription, "w1", 1, 999)
    with pytest.raises(Refused) as refused:
        check_fence(subscription, name, generation, now_ms)
    assert refused.value.code is Code.FENCED


def test_a_heartbeat_extends_and_done_ends() -> None:
    subscription = subscribe(a=Link(True, 0, 0))
    apply(subscription, claim(1, subscription, "me", "w1", 0, work=True))
    apply(subscription, acknowledge(1, subscription, [("a", 0, 2)], 500, done=False))
    assert (subscription.lease_until_ms, subscription.links["a"]) == (1500, Link(True, 0, 2))
    apply(subscription, acknowledge(1, subscription, [], 600, done=True))
    assert subscription.idle
    with pytest.raises(Refused):
        check_fence(subscription, "w1", 1, 600)


def test_a_failed_delivery_is_tried_again_as_the_same_wake() -> None:
    subscription = subscribe()
    apply(subscription, wake(1, subscription, "w1", "webhook", 1000))
    apply(subscription, fail(1, subscription, 7000))
    assert (subscription.generation, subscription.wake, subscription.holder) == (1, "w1", None)
    assert (subscription.failures, subscription.retry_at_ms) == (1, 7000)
    apply(subscription, fail(1, subscription, 9000))
    assert subscription.failures == 2


def test_links_come_and_go() -> None:
    subscription = subscribe(a=Link(True, 0, 1))
    apply(subscription, Follow(1, [("b", False, 3, 4)], ["a"]))
    assert subscription.links == {"b": Link(False, 3, 4)}
    apply(subscription, Dispatch(1, 5, None, acks=[("c", 0, 1)]))
    assert subscription.links["c"] == Link(False, 0, 1)
