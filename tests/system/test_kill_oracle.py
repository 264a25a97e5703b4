"""The oracle of the kill test can fail: every rule is broken once by hand."""

from __future__ import annotations

import pytest

from .kill_history import (
    Answer,
    Append,
    Being,
    Delete,
    Existence,
    Gap,
    Page,
    Payload,
    Round,
    Seen,
    State,
    Terms,
    Walk,
)
from .kill_oracle import Oracle

pytestmark = pytest.mark.system

A, B, C, D = (Payload(b'{"id":"%s"}' % name, tag="t:1") for name in (b"a", b"b", b"c", b"d"))


class Story:
    """Tells the history of one topic; moments count up by themselves."""

    def __init__(self, durability: str = "disk", cap_records: int = 0) -> None:
        self.oracle = Oracle()
        self.durability = durability
        self.oracle.open("t", 1, Terms(durability, cap_records), run=0)
        self.round = Round()
        self.run = 0
        self._moment = 0

    def tick(self) -> int:
        self._moment += 1
        return self._moment

    def restart(self) -> None:
        self.run += 1

    def offer(self, *payloads: Payload, key: str | None = None) -> Append:
        append = Append("t", 1, payloads, self.tick(), self.run, key)
        self.round.appends.append(append)
        return append

    def answer(self, append: Append, first_seq: int, *, deduped: bool = False) -> None:
        answer = Answer(self.tick(), self.tick(), self.run, first_seq, deduped)
        append.answers.append(answer)
        self.round.answers.append((append, answer))

    def retry(self, append: Append, first_seq: int, *, deduped: bool) -> None:
        append.attempts += 1
        self.answer(append, first_seq, deduped=deduped)

    def append(self, first_seq: int, *payloads: Payload) -> Append:
        append = self.offer(*payloads)
        self.answer(append, first_seq)
        return append

    def delete(
        self,
        *,
        before_seq: int | None = None,
        tag: str | None = None,
        prefix: str | None = None,
        acked: bool = True,
    ) -> None:
        started, ended = self.tick(), self.tick()
        self.round.deletes.append(
            Delete("t", 1, started, ended, self.run, acked, before_seq, tag, prefix)
        )

    def page(
        self,
        head: int,
        records: dict[int, Payload],
        gap: Gap | None = None,
        after: int = 0,
        earliest: int | None = None,
    ) -> Page:
        seen = tuple(Seen(seq, 1000, payload) for seq, payload in records.items())
        if earliest is None:
            earliest = min(records, default=head + 1)
        return Page(self.tick(), self.tick(), after, head, head, earliest, True, seen, gap)

    def follow(self, page: Page) -> None:
        self.round.walks.append(Walk("t", 1, self.run, (page,)))

    def walk(
        self, head: int, records: dict[int, Payload], gap: Gap | None = None, epoch: int = 7
    ) -> Walk:
        page = self.page(head, records, gap)
        size = sum(payload.size_bytes for payload in records.values())
        state = State(head, page.earliest, head + 1, len(records), size, epoch, self.durability)
        walk = Walk("t", 1, self.run, (page,), state)
        self.round.walks.append(walk)
        return walk

    def judge(self) -> list[str]:
        self.oracle.judge(self.round)
        self.round = Round()
        return self.oracle.complaints

    def fails_with(self, text: str) -> None:
        complaints = self.judge()
        assert any(text in complaint for complaint in complaints), complaints


def test_a_right_history_has_no_complaints() -> None:
    story = Story()
    story.append(1, A, B)
    unknown = story.offer(C, key="k")
    story.restart()
    story.walk(3, {1: A, 2: B, 3: C})
    story.retry(unknown, 3, deduped=True)
    story.delete(before_seq=2)
    story.walk(3, {2: B, 3: C})
    assert story.judge() == []
    story.restart()
    story.walk(3, {2: B, 3: C})
    story.append(4, D)
    assert story.judge() == []


def test_an_unanswered_append_may_be_missing() -> None:
    story = Story("fsync")
    story.append(1, A)
    story.offer(B, C)
    story.restart()
    story.walk(1, {1: A})
    story.append(2, D)
    assert story.judge() == []


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_a_lost_acknowledged_append_is_found(durability: str) -> None:
    story = Story(durability)
    story.append(1, A)
    story.append(2, B)
    story.restart()
    story.walk(1, {1: A})
    story.fails_with("head_seq moved back from 2 to 1")


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_a_gap_does_not_excuse_an_acknowledged_record(durability: str) -> None:
    story = Story(durability)
    story.append(1, A, B)
    story.restart()
    story.walk(2, {1: A}, Gap(2, 2, "restart"))
    story.fails_with("[2] (1) lost, which nothing excuses")


def test_a_hole_in_the_middle_is_found() -> None:
    story = Story()
    story.append(1, A, B, C)
    story.restart()
    story.walk(3, {1: A, 3: C})
    story.fails_with("missing without a gap")


def test_half_of_an_unanswered_append_is_found() -> None:
    story = Story()
    story.offer(A, B)
    story.restart()
    story.walk(1, {1: A})
    story.walk(2, {1: A})
    story.fails_with("missing without a gap")


def test_half_of_an_unanswered_append_at_the_head_is_found() -> None:
    story = Story()
    story.offer(A, B)
    story.restart()
    story.walk(1, {1: A})
    story.fails_with("an append reaches to 2, the head is 1")


def test_a_record_that_a_reader_saw_must_survive() -> None:
    story = Story("fsync")
    story.offer(A)
    story.follow(story.page(1, {1: A}))
    story.restart()
    story.walk(1, {}, Gap(1, 1, "restart"))
    story.fails_with("lost, which nothing excuses")


def test_records_nobody_offered_are_found() -> None:
    story = Story()
    story.append(1, A)
    story.walk(2, {1: A, 2: B})
    story.fails_with("seq 2 was never offered here")


@pytest.mark.parametrize(
    "changed",
    [
        Payload(A.data, tag="t:2"),
        Payload(A.data, tag="t:1", meta=b"{}"),
        Payload(A.data, tag=None),
    ],
)
def test_a_changed_record_is_found(changed: Payload) -> None:
    story = Story()
    story.append(1, A)
    story.walk(1, {1: changed})
    story.fails_with("offered was")


def test_respelled_data_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.walk(1, {1: Payload(b'{"id": "a"}', tag="t:1")})
    story.fails_with("never offered")


def test_a_batch_out_of_order_is_found() -> None:
    story = Story()
    story.append(1, A, B)
    story.walk(2, {1: B, 2: A})
    story.fails_with("stands at 1 and at 0")


def test_records_out_of_order_are_found() -> None:
    story = Story()
    story.append(1, A, B)
    story.walk(2, {2: B, 1: A})
    story.fails_with("seq 1 follows 2")


def test_a_seq_used_twice_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.restart()
    story.append(1, B)
    story.fails_with("seq 1 is used twice")


def test_a_seq_used_twice_across_rounds_is_found_in_ephemeral_topics() -> None:
    story = Story("ephemeral")
    story.append(1, A)
    assert story.judge() == []
    story.restart()
    story.append(1, B)
    story.fails_with("seq 1 is used twice")


def test_a_seq_given_out_below_the_head_is_found() -> None:
    story = Story("ephemeral")
    story.append(1, A)
    story.restart()
    story.walk(256, {}, Gap(1, 256, "restart"))
    assert story.judge() == []
    story.append(2, B)
    story.fails_with("seq 2 was given out below the head 256")


def test_ephemeral_records_end_in_a_restart_gap() -> None:
    story = Story("ephemeral")
    story.append(1, A, B)
    story.walk(2, {1: A, 2: B})
    story.restart()
    story.walk(2, {}, Gap(1, 2, "restart"))
    story.append(3, C)
    story.walk(3, {3: C}, Gap(1, 2, "restart"))
    assert story.judge() == []


def test_ephemeral_records_lost_in_silence_are_found() -> None:
    story = Story("ephemeral")
    story.append(1, A, B)
    story.restart()
    story.walk(2, {})
    story.fails_with("missing without a gap")


def test_ephemeral_records_lost_without_a_restart_are_found() -> None:
    story = Story("ephemeral")
    story.append(1, A, B)
    story.walk(2, {}, Gap(1, 2, "restart"))
    story.fails_with("lost, which nothing excuses")


def test_ephemeral_records_that_outlive_the_process_are_found() -> None:
    story = Story("ephemeral")
    story.append(1, A)
    story.restart()
    story.walk(1, {1: A})
    story.fails_with("outlived its process")


def test_a_restart_gap_over_seqs_of_nobody_is_right() -> None:
    story = Story()
    story.append(1, A)
    story.restart()
    story.walk(256, {1: A}, Gap(2, 256, "restart"))
    story.append(257, B)
    assert story.judge() == []


def test_a_restart_gap_without_a_restart_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.walk(256, {1: A}, Gap(2, 256, "restart"))
    story.fails_with("(255) lost, which nothing excuses")


def test_a_deleted_record_that_returns_is_found() -> None:
    story = Story()
    story.append(1, A, B)
    story.delete(before_seq=2)
    story.restart()
    story.walk(2, {1: A, 2: B})
    story.fails_with("seq 1 was deleted and is still there")


@pytest.mark.parametrize(
    "match", [{"tag": "t:1"}, {"prefix": "t:"}, {"tag": "t:1", "before_seq": 2}]
)
def test_a_tag_delete_that_is_undone_is_found(match: dict[str, str]) -> None:
    story = Story()
    story.append(1, A)
    story.delete(**match)
    story.walk(1, {})
    assert story.judge() == []
    story.restart()
    story.walk(1, {1: A})
    story.fails_with("seq 1 was gone and is back")


def test_a_delete_of_another_tag_excuses_nothing() -> None:
    story = Story()
    story.append(1, A)
    story.delete(tag="t:2")
    story.delete(prefix="u")
    story.delete(tag="t:1", before_seq=1)
    story.walk(1, {})
    story.fails_with("missing without a gap")


def test_a_replayed_delete_that_sweeps_newer_records_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.delete(before_seq=100)
    story.delete(prefix="t:")
    story.append(2, B)
    story.restart()
    story.walk(2, {})
    story.fails_with("missing without a gap")


def test_a_delete_nobody_answered_may_have_happened_or_not() -> None:
    for survivors in ({1: A, 2: B}, {}):
        story = Story()
        story.append(1, A, B)
        story.delete(tag="t:1", acked=False)
        story.restart()
        story.walk(2, survivors)
        assert story.judge() == []


def test_half_of_a_delete_is_found() -> None:
    story = Story()
    story.append(1, A, B)
    story.delete(tag="t:1", acked=False)
    story.restart()
    story.walk(2, {2: B})
    story.fails_with("half of a delete survived")


def test_a_delete_nobody_answered_that_is_undone_later_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.delete(tag="t:1", acked=False)
    story.restart()
    story.walk(1, {})
    assert story.judge() == []
    story.restart()
    story.walk(1, {1: A})
    story.fails_with("seq 1 was gone and is back")


def test_a_deleted_unanswered_append_leaves_a_silent_seq() -> None:
    story = Story()
    story.append(1, A)
    story.offer(B)
    story.delete(tag="t:1")
    story.restart()
    story.walk(2, {})
    assert story.judge() == []


def test_a_cap_takes_the_oldest_with_a_gap() -> None:
    story = Story(cap_records=2)
    story.append(1, A, B, C)
    story.restart()
    story.walk(3, {2: B, 3: C}, Gap(1, 1, "cap"))
    assert story.judge() == []


@pytest.mark.parametrize(
    ("records", "gap", "complaint"),
    [
        ({2: B, 3: C}, None, "missing without a gap"),
        ({3: C}, Gap(1, 2, "cap"), "[2] (1) lost, which nothing excuses"),
        ({1: A, 2: B, 3: C}, None, "3 records are live"),
        ({2: B, 3: C}, Gap(1, 2, "cap"), "holds live records"),
        ({2: B, 3: C}, Gap(1, 1, "ttl"), "reason that nothing supports"),
        ({2: B, 3: C}, Gap(1, 1, "restart"), "reason that nothing supports"),
    ],
)
def test_a_wrong_eviction_is_found(
    records: dict[int, Payload], gap: Gap | None, complaint: str
) -> None:
    story = Story(cap_records=2)
    story.append(1, A, B, C)
    story.walk(3, records, gap)
    story.fails_with(complaint)


def test_a_cap_may_act_for_an_append_under_way() -> None:
    story = Story(cap_records=2)
    story.append(1, A, B)
    late = story.offer(C)
    story.follow(story.page(2, {2: B}, Gap(1, 1, "cap"), earliest=2))
    story.answer(late, 3)
    story.walk(3, {2: B, 3: C}, Gap(1, 1, "cap"))
    assert story.judge() == []


def test_a_cap_that_acts_for_nothing_is_found() -> None:
    story = Story(cap_records=2)
    story.append(1, A, B)
    story.offer(C)
    story.restart()
    story.walk(2, {2: B}, Gap(1, 1, "cap"))
    story.fails_with("[1] (1) lost, which nothing excuses")


def test_a_floor_that_moves_back_is_found() -> None:
    story = Story()
    story.append(1, A, B)
    story.follow(story.page(2, {2: B}, after=1, earliest=2))
    assert story.judge() == []
    story.restart()
    story.walk(2, {1: A, 2: B})
    story.fails_with("earliest_seq moved back from 2 to 1")


def test_a_floor_read_at_the_same_time_may_be_older() -> None:
    story = Story()
    story.append(1, A, B)
    started = story.tick()
    story.delete(before_seq=2)
    story.follow(story.page(2, {2: B}, after=1, earliest=2))
    late = Page(started, story.tick(), 1, 2, 2, 1, True, (Seen(2, 1000, B),))
    story.follow(late)
    assert story.judge() == []


def test_a_retry_that_appends_again_is_found() -> None:
    story = Story()
    unknown = story.offer(A, key="k")
    story.restart()
    story.walk(1, {1: A})
    assert story.judge() == []
    story.retry(unknown, 2, deduped=False)
    story.fails_with("appended again at 2")


def test_a_retry_that_appends_again_unseen_is_found() -> None:
    story = Story()
    unknown = story.offer(A, key="k")
    story.restart()
    story.retry(unknown, 2, deduped=False)
    story.walk(2, {1: A, 2: A})
    story.fails_with("stands at 2 and at 1")


def test_a_retry_that_names_other_seqs_is_found() -> None:
    story = Story()
    append = story.append(1, A)
    story.retry(append, 2, deduped=True)
    story.fails_with("stands at 1 and at 2")


def test_a_first_offer_that_is_called_a_repeat_is_found() -> None:
    story = Story()
    append = story.offer(A, key="k")
    story.answer(append, 1, deduped=True)
    story.fails_with("deduped, but it was offered once")


def test_wrong_counts_are_found() -> None:
    story = Story()
    story.append(1, A, B)
    right = story.walk(2, {1: A, 2: B})
    assert right.state is not None
    state = State(2, 1, 3, 3, 1, 7, "fsync")
    story.round.walks = [Walk("t", 1, 0, right.pages, state)]
    story.fails_with("count is 3, should be 2")
    story.fails_with("bytes is 1, should be 52")
    story.fails_with("durability is fsync, should be disk")


def test_time_that_runs_back_is_found() -> None:
    story = Story()
    story.append(1, A, B)
    page = Page(story.tick(), story.tick(), 0, 2, 2, 1, True, (Seen(1, 9, A), Seen(2, 8, B)))
    story.follow(page)
    story.fails_with("$ts falls from seq 1 to 2")


def test_an_epoch_that_changes_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.walk(1, {1: A}, epoch=7)
    story.restart()
    story.walk(1, {1: A}, epoch=8)
    story.fails_with("epoch 7 became 8")


def test_an_epoch_that_is_given_again_is_found() -> None:
    story = Story()
    story.append(1, A)
    story.walk(1, {1: A}, epoch=7)
    story.oracle.open("t", 2, Terms("disk"), run=0)
    again = story.walk(0, {}, epoch=7)
    story.round.walks[-1] = Walk("t", 2, 0, again.pages, again.state)
    story.fails_with("epoch 7 names two instances")


def test_topics_that_vanish_or_return_are_found() -> None:
    oracle = Oracle()
    oracle.judge_existence(Being("t", 1, Existence.PRESENT), found=True)
    oracle.judge_existence(Being("t", 1, Existence.ABSENT), found=False)
    for found in (True, False):
        oracle.judge_existence(Being("t", 1, Existence.UNKNOWN), found=found)
    assert oracle.complaints == []
    oracle.judge_existence(Being("t", 1, Existence.PRESENT), found=False)
    oracle.judge_existence(Being("t", 2, Existence.ABSENT), found=True)
    assert oracle.complaints == [
        "t#1: an acknowledged topic is gone",
        "t#2: a deleted topic returned",
    ]


def test_a_second_restart_that_changes_the_answer_is_found() -> None:
    story = Story("ephemeral")
    story.append(1, A)
    story.restart()
    once = story.walk(256, {}, Gap(1, 256, "restart"))
    story.restart()
    twice = story.walk(512, {}, Gap(1, 512, "restart"))
    story.oracle.judge_twice(once, once)
    assert story.oracle.complaints == []
    story.oracle.judge_twice(once, twice)
    assert len(story.oracle.complaints) == 2, story.oracle.complaints


def test_a_second_restart_that_loses_a_record_is_found() -> None:
    story = Story()
    once = story.walk(2, {1: A, 2: B})
    twice = story.walk(2, {1: A})
    story.oracle.judge_twice(once, twice)
    assert any("lost [2] (1)" in text for text in story.oracle.complaints)
