"""When a reader of a feed asks for what: decided without a clock, a wire or a server."""

from __future__ import annotations

from headrace.client.feeds.actions import (
    BeatWanted,
    FeedAction,
    HintsCancelled,
    HintsWanted,
    PageCancelled,
    PageFetched,
    PageRefused,
    PageWanted,
)
from headrace.client.feeds.items import FeedEvent, FeedGap, FeedPage, FeedRefused, FeedResource
from headrace.client.feeds.policy import FollowPolicy
from headrace.client.feeds.session import FeedSession

POLICY = FollowPolicy()


def event(number: int) -> FeedEvent:
    about = FeedResource("theme", "dark")
    return FeedEvent(f"id-{number}", "theme.updated", "acme", "", number, about)


def page(first: int, last: int, *, has_more: bool = False) -> PageFetched:
    return PageFetched(tuple(map(event, range(first, last + 1))), last, has_more)


def nothing(cursor: int, *, has_more: bool = False) -> PageFetched:
    return PageFetched((), cursor, has_more)


class Reader:
    """A session, and the time as a test has it."""

    def __init__(
        self, *, after: int = 0, hints: bool = False, policy: FollowPolicy = POLICY
    ) -> None:
        self.now = 100.0
        self.session = FeedSession(after, policy, lambda: 1.0, with_hints=hints)
        self.session.start(self.now)
        self.number = self.hints = 0

    def wanted(self) -> list[FeedAction]:
        actions = self.session.take_actions()
        for action in actions:
            match action:
                case PageWanted(number=number):
                    self.number = number
                case HintsWanted(number=number):
                    self.hints = number
        return actions

    def asks(self) -> list[tuple[int, int]]:
        """(after, wait_s) of requests that it wants."""
        return [(a.after, a.wait_s) for a in self.wanted() if isinstance(a, PageWanted)]

    def answer(self, reply: PageFetched | PageRefused) -> None:
        self.session.fetched(self.number, reply, self.now)

    def release(self) -> None:
        self.session.release(self.now)

    def confirm(self, latest: int) -> None:
        self.session.hints_confirmed(self.hints, latest, self.now)

    def hint(self, latest: int) -> None:
        self.session.hinted(self.hints, latest, self.now)

    def lose_hints(self) -> None:
        self.session.hints_ended(self.hints, self.now)

    def pass_time(self, seconds: float) -> None:
        """To the end of that time, doing what is due on the way."""
        end = self.now + seconds
        while (at := self.session.wake_at) is not None and at <= end:
            assert at >= self.now
            self.now = at
            self.session.tick(at)
        self.now = end


def test_it_catches_up_and_then_waits_at_the_server() -> None:
    reader = Reader(after=7)
    assert reader.asks() == [(7, 0)]
    reader.answer(page(8, 9, has_more=True))
    assert reader.session.ready == FeedPage((event(8), event(9)), 9)
    assert reader.asks() == [], "one page at a time"
    assert reader.session.cursor == 7, "it is not done with the page"
    reader.release()
    assert (reader.session.cursor, reader.asks()) == (9, [(9, 0)])
    reader.answer(page(10, 10))
    reader.release()
    assert reader.asks() == [(10, 30)]
    reader.answer(nothing(10))
    assert reader.asks() == [(10, 30)]


def test_what_filters_leave_out_is_not_asked_for_again_nor_is_it_done() -> None:
    reader = Reader()
    reader.wanted()
    reader.answer(nothing(500, has_more=True))
    assert (reader.asks(), reader.session.cursor) == ([(500, 0)], 0)
    reader.answer(page(501, 501))
    reader.release()
    assert reader.session.cursor == 501


def test_a_server_that_promises_more_and_has_none_is_not_asked_in_a_circle() -> None:
    reader = Reader()
    reader.wanted()
    reader.answer(nothing(0, has_more=True))
    assert reader.asks() == [(0, 30)]


def test_with_hints_it_asks_when_it_is_told_and_once_in_a_while() -> None:
    reader = Reader(hints=True)
    reader.wanted()
    reader.confirm(0)
    reader.answer(nothing(0))
    assert reader.session.has_hints
    assert reader.asks() == []
    reader.hint(3)
    assert reader.asks() == [(0, 0)]
    reader.answer(page(1, 3))
    reader.release()
    assert reader.asks() == [], "it has all that hints told of"
    for _ in range(4):
        reader.session.hints_alive(reader.hints, reader.now)
        reader.pass_time(14)
        assert reader.asks() == []
    reader.session.hints_alive(reader.hints, reader.now)
    reader.pass_time(4)
    assert reader.asks() == [(3, 0)], "hints are no promise"


def test_a_hint_that_comes_while_a_page_is_read_or_asked_for_is_not_lost() -> None:
    reader = Reader(hints=True)
    reader.wanted()
    reader.confirm(2)
    reader.answer(page(1, 2))
    reader.hint(5)
    assert reader.asks() == []
    reader.release()
    assert reader.asks() == [(2, 0)]
    reader.hint(6)
    reader.answer(nothing(5))
    assert reader.asks() == [(5, 0)]


def test_a_hint_that_the_log_knows_nothing_of_is_asked_about_once() -> None:
    reader = Reader(hints=True)
    reader.wanted()
    reader.confirm(1000)
    reader.answer(nothing(3))
    assert reader.asks() == [(3, 0)], "it came when the request was under way"
    reader.answer(nothing(3))
    assert reader.asks() == []


def test_without_hints_any_more_it_asks_at_once_and_waits_at_the_server() -> None:
    reader = Reader(hints=True)
    reader.wanted()
    reader.confirm(0)
    reader.answer(nothing(0))
    reader.lose_hints()
    assert reader.asks() == [(0, 0)], "something may have come that nobody told"
    reader.answer(nothing(0))
    assert reader.asks() == [(0, 30)]
    reader.pass_time(0.5)
    assert [type(each) for each in reader.wanted()] == [HintsWanted]
    reader.confirm(4)
    assert reader.asks() == [], "the request that waits brings it"
    reader.answer(page(1, 4))
    reader.release()
    assert reader.asks() == []


def test_hints_that_cannot_be_had_are_tried_again_less_and_less_often() -> None:
    reader = Reader(hints=True, policy=FollowPolicy(pause_s=1, pause_s_max=5))
    reader.wanted()
    pauses = []
    for _ in range(5):
        reader.lose_hints()
        began = reader.now
        while not reader.session.take_actions():
            reader.pass_time(0.5)
        reader.hints += 1
        pauses.append(reader.now - began)
    assert pauses == [1, 2, 4, 5, 5]


def test_hints_that_fall_silent_are_given_up_and_it_says_that_it_lives() -> None:
    reader = Reader(hints=True)
    reader.wanted()
    reader.confirm(0)
    reader.answer(nothing(0))
    reader.pass_time(44)
    assert reader.wanted() == [BeatWanted(1), BeatWanted(1)]
    reader.pass_time(1)
    assert HintsCancelled(1) in reader.wanted()
    assert not reader.session.has_hints
    reader.session.hinted(1, 9, reader.now)
    assert reader.asks() == [], "of those before, nothing is heard"


def test_hints_that_are_not_confirmed_in_time_are_given_up() -> None:
    reader = Reader(hints=True)
    reader.wanted()
    reader.answer(nothing(0))
    reader.pass_time(10)
    assert HintsCancelled(1) in reader.wanted()


def test_failures_are_tried_again_with_pauses_that_grow_and_retry_after_is_a_minimum() -> None:
    reader = Reader(policy=FollowPolicy(pause_s=1, pause_s_max=30))
    reader.wanted()
    for pause_s in (1, 2, 4):
        reader.answer(PageRefused(0, message="nobody listens"))
        reader.pass_time(pause_s - 0.01)
        assert reader.asks() == []
        reader.pass_time(0.01)
        assert reader.asks() == [(0, 0)]
    reader.answer(PageRefused(429, "RATE_LIMITED", retry_after_s=20))
    reader.pass_time(19.9)
    assert reader.asks() == []
    reader.pass_time(0.1)
    assert reader.asks() == [(0, 0)]
    reader.answer(page(1, 1))
    reader.release()
    reader.wanted()
    reader.answer(PageRefused(503, "UNAVAILABLE"))
    reader.pass_time(1)
    assert reader.asks() == [(1, 0)], "a page ends the series"


def test_why_nothing_comes_is_known_until_something_does() -> None:
    reader = Reader()
    problems = []
    for reply in (
        PageRefused(0, message="nobody listens"),
        PageRefused(404, "NOT_FOUND", "there is no tenant acme"),
        PageRefused(503),
        nothing(0),
    ):
        reader.wanted()
        reader.answer(reply)
        problems.append(reader.session.problem)
        reader.pass_time(5)
    told = ["nobody listens", "404 NOT_FOUND: there is no tenant acme", "503"]
    assert problems == [*told, ""]


def test_a_request_that_is_not_answered_is_given_up() -> None:
    reader = Reader()
    reader.wanted()
    reader.answer(nothing(0))
    reader.wanted()
    reader.pass_time(59.9)
    assert reader.wanted() == [], "it was asked to wait for 30 s"
    reader.pass_time(0.1)
    assert reader.wanted() == [PageCancelled(2)]
    reader.session.fetched(2, page(1, 1), reader.now)
    assert reader.session.ready is None, "of that one nothing is heard"


def test_a_gap_is_a_value_and_it_goes_on_behind_it() -> None:
    reader = Reader(after=100)
    reader.wanted()
    reader.answer(PageRefused(410, "CURSOR_EXPIRED", earliest=5000))
    assert reader.session.ready == FeedGap(100, 5000)
    assert reader.session.cursor == 100
    reader.release()
    assert (reader.session.cursor, reader.asks()) == (4999, [(4999, 0)])


def test_a_tenant_without_events_is_waited_for() -> None:
    reader = Reader()
    reader.wanted()
    reader.answer(PageRefused(404, "NOT_FOUND"))
    assert reader.session.ready is None
    reader.pass_time(5)
    assert reader.asks() == [(0, 0)]


def test_a_refusal_stays() -> None:
    reader = Reader()
    reader.wanted()
    reader.answer(PageRefused(403, "FORBIDDEN", "not yours"))
    assert isinstance(reader.session.ready, FeedRefused)
    assert reader.session.ready.status == 403
    reader.release()
    assert isinstance(reader.session.ready, FeedRefused)
    assert reader.asks() == []


def test_without_waiting_it_polls() -> None:
    reader = Reader(policy=FollowPolicy(wait_s=0, poll_s=5))
    reader.wanted()
    reader.answer(nothing(0))
    reader.pass_time(4.9)
    assert reader.asks() == []
    reader.pass_time(0.1)
    assert reader.asks() == [(0, 0)]
