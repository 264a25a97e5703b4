"""Sessions: how long they live, and how they go back."""

from __future__ import annotations

import pytest

from headrace.core.cap import Cap
from headrace.core.errors import Code, Refused
from headrace.core.selector import EVERYTHING
from headrace.surfaces.topics.cursors import parse_composite
from headrace.surfaces.topics.events import TopicView
from headrace.surfaces.topics.sessions import Prefix, Session, Sessions, WatchPosition, begin
from headrace.web.concurrency import Slots
from headrace.web.credentials import LOCAL, Principal, Scope

LOOK = TopicView(
    selector=EVERYTHING, records_max=9, bytes_max=9, strong=False, tags=False, meta=True, data=True
)


class Hands:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def session_of(**places: WatchPosition) -> Session:
    return Session(LOCAL, places, [Prefix("p", LOOK)], 15.0)


def listed(after: int, epoch: int = 1) -> WatchPosition:
    return begin(after, epoch, LOOK, listed=True)


# --- life ---


def test_ids_are_long_and_never_the_same() -> None:
    wids = {session_of().wid for _ in range(1000)}
    assert len(wids) == 1000
    assert all(len(wid) == len("wid_") + 22 for wid in wids)


def test_a_session_nobody_uses_goes_after_its_time() -> None:
    hands = Hands()
    sessions = Sessions(Slots(), 1000, hands)
    early, late = session_of(), session_of()
    sessions.add(early)
    hands.now_s = 0.6
    sessions.add(late)
    assert sessions.find(early.wid) is early
    hands.now_s = 1.1
    with pytest.raises(Refused) as refusal:
        sessions.find(early.wid)
    assert refusal.value.code is Code.NOT_FOUND
    assert sessions.find(late.wid) is late
    assert len(sessions) == 1


def test_a_session_with_a_stream_stays_and_its_time_starts_anew() -> None:
    hands = Hands()
    sessions = Sessions(Slots(), 1000, hands)
    session = session_of()
    sessions.add(session)
    sessions.wake(session)
    hands.now_s = 100.0
    assert sessions.find(session.wid) is session
    sessions.rest(session)
    hands.now_s = 100.9
    assert sessions.find(session.wid) is session
    hands.now_s = 101.1
    sessions.sweep()
    assert len(sessions) == 0


def test_idle_sessions_make_room_for_new_ones() -> None:
    hands = Hands()
    sessions = Sessions(Slots(total=Cap("max_watch_sessions", 1)), 1000, hands)
    sessions.add(session_of())
    with pytest.raises(Refused) as refusal:
        sessions.check_room(LOCAL)
    assert refusal.value.detail == {"limit": "max_watch_sessions", "max": 1}
    hands.now_s = 2.0
    sessions.check_room(LOCAL)
    sessions.add(session_of())


def test_a_key_has_so_many_sessions_and_leaves_room_for_others() -> None:
    hands = Hands()
    slots = Slots(total=Cap("all", 9), per_key=Cap("max_watch_sessions_per_key", 2))
    sessions = Sessions(slots, 1000, hands)
    one, other = (Principal(id, Scope.READ) for id in ("one", "other"))
    for _ in range(2):
        sessions.add(Session(one, {}, (), 1.0))
    with pytest.raises(Refused) as refusal:
        sessions.check_room(one)
    assert refusal.value.detail == {"limit": "max_watch_sessions_per_key", "max": 2}
    with pytest.raises(Refused):
        sessions.add(Session(one, {}, (), 1.0))
    sessions.add(Session(other, {}, (), 1.0))
    hands.now_s = 2.0
    sessions.check_room(one)


# --- going back ---


def test_a_cursor_takes_back_and_never_forward() -> None:
    session = session_of(a=listed(5), b=listed(5), c=listed(5))
    session.rewind({"a": 3, "b": 9, "stranger": 1})
    assert [place.after for place in session.places.values()] == [3, 5, 5]


def test_a_topic_that_came_later_than_the_cursor_starts_over() -> None:
    session = session_of(a=listed(5))
    born = session.add("p1", 7, LOOK)
    born.after = 40
    session.rewind({"a": 5})
    assert (born.after, born.epoch) == (0, 7)


def test_a_cursor_of_the_instance_before_brings_it_back() -> None:
    """The reader has not heard of the new instance yet: it must."""
    place = listed(5, epoch=1)
    place.after, place.epoch = 10, 8
    session = session_of(a=place)
    session.rewind({"a@8": 10})
    assert (place.after, place.epoch) == (10, 8)
    session.rewind({"a": 5})
    assert (place.after, place.epoch) == (5, 1)


def test_a_name_used_before_is_told_apart() -> None:
    session = session_of(a=listed(5))
    first = session.add("p1", 7, LOOK)
    assert first.label("p1", 7) == "p1"
    session.remove("p1")
    second = session.add("p1", 9, LOOK)
    second.after = 3
    assert second.label("p1", 9) == "p1@9"
    session.rewind({"a": 5, "p1": 100})
    assert (second.after, second.epoch) == (0, 9), "that was the first one's place"


def test_a_checkpoint_of_another_session_says_nothing() -> None:
    session, other = session_of(a=listed(5)), session_of(a=listed(5))
    for index in range(200):
        other.cursor_history.tell(f"{'x' * 100}-{index}", 0)
    session.rewind(parse_composite(other.cursor_history.id().decode()))
    assert session.places["a"].after == 5
