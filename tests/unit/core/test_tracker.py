"""Trackers: one holder at a time, fences, and what can be acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.entry import NotePoll, SetTracker
from headrace.core.errors import Code, Refused
from headrace.core.limits import TRACKER_LEASE_MS
from headrace.core.tracker import Tracker, apply, give, poll


def track(cursor: int = 10) -> Tracker:
    return apply(None, SetTracker(1, 7, "orders", cursor))


def asked(tracker: Tracker, node: str, now_ms: int = 0, **more: Any) -> NotePoll:
    wanted: dict[str, Any] = {"ack": None, "fence": None, "lost_upto": 0, **more}
    return poll(1, tracker, node, now_ms=now_ms, **wanted)


def test_a_poll_takes_the_lease_and_the_next_one_renews_it() -> None:
    tracker = track()
    apply(tracker, asked(tracker, "a", 100))
    assert (tracker.node, tracker.lease_until_ms, tracker.fence) == ("a", 100 + TRACKER_LEASE_MS, 1)
    apply(tracker, asked(tracker, "a", 5_000))
    assert (tracker.lease_until_ms, tracker.fence) == (5_000 + TRACKER_LEASE_MS, 1)
    assert tracker.holder(5_000) == "a"
    assert tracker.holder(tracker.lease_until_ms) is None


def test_another_node_waits_for_the_lease_to_end() -> None:
    tracker = track()
    apply(tracker, asked(tracker, "a"))
    with pytest.raises(Refused) as refused:
        asked(tracker, "b", TRACKER_LEASE_MS - 1)
    assert refused.value.code is Code.TRACKER_LEASED
    assert refused.value.detail == {
        "active_node": "a",
        "lease_expires_at_ms": TRACKER_LEASE_MS,
    }
    apply(tracker, asked(tracker, "b", TRACKER_LEASE_MS))
    assert (tracker.node, tracker.fence) == ("b", 2)


def test_a_fence_is_that_of_the_last_takeover() -> None:
    tracker = track()
    apply(tracker, asked(tracker, "a"))
    apply(tracker, asked(tracker, "a", 10 * TRACKER_LEASE_MS, fence=1))
    apply(tracker, asked(tracker, "b", 20 * TRACKER_LEASE_MS))
    with pytest.raises(Refused) as refused:
        asked(tracker, "a", 30 * TRACKER_LEASE_MS, fence=1)
    assert refused.value.code is Code.FENCED
    with pytest.raises(Refused):
        asked(tracker, "b", 20 * TRACKER_LEASE_MS, fence=1)
    apply(tracker, asked(tracker, "a", 30 * TRACKER_LEASE_MS))
    assert tracker.fence == 3, "without a fence it takes over in its turn"


def test_what_was_given_can_be_acknowledged_and_nothing_else() -> None:
    tracker = track(10)
    apply(tracker, asked(tracker, "a"))
    apply(tracker, give(1, tracker, 20))
    for ack in (9, 21):
        with pytest.raises(Refused) as refused:
            asked(tracker, "a", ack=ack)
        assert refused.value.code is Code.INVALID
        assert refused.value.detail["cursor_seq"] == 10
        assert refused.value.detail["given_seq"] == 20
    for ack in (10, 15, 15, 20):
        apply(tracker, asked(tracker, "a", ack=ack))
        assert tracker.cursor == ack
    assert tracker.given == 20


def test_a_loss_can_be_acknowledged_though_nobody_was_given_it() -> None:
    tracker = track(10)
    apply(tracker, asked(tracker, "a", ack=30, lost_upto=30))
    assert (tracker.cursor, tracker.given) == (30, 30)


def test_a_tracker_that_begins_anew_has_no_holder_of_before() -> None:
    tracker = track(10)
    apply(tracker, asked(tracker, "a"))
    again = apply(tracker, SetTracker(1, 8, "orders", 0))
    assert (again.source, again.cursor, again.given, again.node) == (8, 0, 0, "")
    assert again.fence == 2, "its fence is none that was given out"
