"""Reading: where a page starts and stops, and which loss it reports."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.apply import apply
from headrace.core.entry import LoseAtRestart, Trim
from headrace.core.log import Log
from headrace.core.match import TagPrefix
from headrace.core.read import (
    Budget,
    Gap,
    Gathering,
    Loss,
    Page,
    ReadPlan,
    Slice,
    gather_known,
    plan,
)
from headrace.core.record import Block, draft
from headrace.core.record import block as make_block
from headrace.core.selector import ColumnSelector
from support.samples import RECORD_BYTES, add, block_at, new_log, remove

ALL = Budget(1000, 1 << 20, 1000)


def read(
    log: Log,
    after: int,
    blocks: Iterable[Block],
    budget: Budget = ALL,
    exclude: Iterable[str] = (),
) -> Page:
    gathering = Gathering(
        log, plan(log, log.head, after, None), budget, ColumnSelector(frozenset(exclude))
    )
    for block in blocks:
        if not gathering.take(block):
            break
    return gathering.page(log.head)


def seqs(page: Page) -> list[int]:
    return [piece.block.seq_at(index) for piece in page.slices for index in piece.picks]


def test_a_page_holds_what_follows_the_cursor() -> None:
    log = new_log()
    add(log, 5)
    page = read(log, 2, [block_at(1, 5)])
    assert (seqs(page), page.next, page.caught_up, page.gap) == ([3, 4, 5], 5, True, None)


def test_a_full_page_stops_before_the_next_record() -> None:
    log = new_log()
    add(log, 5)
    page = read(log, 0, [block_at(1, 5)], Budget(2, 1 << 20, 1000))
    assert (seqs(page), page.next, page.caught_up) == ([1, 2], 2, False)


def test_the_byte_budget_is_kept_except_for_a_first_record_alone() -> None:
    log = new_log()
    add(log, 5)
    blocks = [block_at(1, 5)]
    assert seqs(read(log, 0, blocks, Budget(9, 2 * RECORD_BYTES, 1000))) == [1, 2]
    assert seqs(read(log, 0, blocks, Budget(9, 1, 1000))) == [1]


def test_filtered_and_deleted_records_move_the_cursor() -> None:
    log = new_log()
    add(log, 4)
    remove(log, [4, 4])
    page = read(log, 0, [block_at(1, 4, nodes=["me", None, "me", "you"])], exclude=["me"])
    assert (seqs(page), page.next, page.scanned) == ([2], 4, 4)


def test_a_log_may_opt_out_of_node_filters() -> None:
    log = new_log(dedupe_node=False)
    add(log, 1)
    assert seqs(read(log, 0, [block_at(1, 1, nodes=["me"])], exclude=["me"])) == [1]


def test_a_read_examines_a_bounded_number_of_records() -> None:
    log = new_log()
    add(log, 5)
    page = read(log, 0, [block_at(1, 5, nodes=["me"] * 5)], Budget(9, 1 << 20, 3), ["me"])
    assert (seqs(page), page.next, page.caught_up) == ([], 3, False)


def test_deleted_prefixes_are_silent() -> None:
    log = new_log()
    add(log, 5)
    remove(log, [1, 3])
    assert plan(log, 5, 0, None) == ReadPlan(4, 5, None)


@pytest.mark.parametrize(
    ("floor_cap", "floor_ttl", "reason"),
    [(4, 0, Loss.CAP), (0, 4, Loss.TTL), (3, 4, Loss.MIXED)],
)
def test_a_cursor_below_the_floor_is_told(floor_cap: int, floor_ttl: int, reason: Loss) -> None:
    log = new_log()
    add(log, 5)
    apply(log, Trim(log.id, floor_cap, floor_ttl, 3, 3 * RECORD_BYTES))
    assert plan(log, 5, 0, None) == ReadPlan(4, 5, Gap(1, 3, reason))
    assert plan(log, 5, 3, None) == ReadPlan(4, 5, None)


def test_the_gap_reaches_to_the_first_live_record() -> None:
    log = new_log(cap_records=3)
    add(log, 5)
    remove(log, [3, 3])
    assert (log.floor, log.earliest) == (3, 4)
    assert plan(log, 5, 0, None) == ReadPlan(4, 5, Gap(1, 3, Loss.CAP))
    assert plan(log, 5, 2, None) == ReadPlan(4, 5, None)


def test_a_read_stops_at_a_gap_and_the_next_one_reports_it() -> None:
    log = new_log()
    add(log, 3)
    apply(log, LoseAtRestart(log.id, [4, 9], 9, log.size_bytes))
    add(log, 2)
    assert plan(log, 11, 0, None) == ReadPlan(1, 3, None)
    assert plan(log, 11, 3, None) == ReadPlan(10, 11, Gap(4, 9, Loss.RESTART))
    assert plan(log, 11, 6, None) == ReadPlan(10, 11, Gap(7, 9, Loss.RESTART))


def test_two_gaps_make_two_pages() -> None:
    log = new_log()
    add(log, 1)
    apply(log, LoseAtRestart(log.id, [2, 3], 3, log.size_bytes))
    add(log, 1)
    apply(log, LoseAtRestart(log.id, [5, 6], 6, log.size_bytes))
    remove(log, [4, 4])
    first = read(log, 1, [])
    assert (first.gap, first.next) == (Gap(2, 3, Loss.RESTART), 4)
    assert read(log, first.next, []).gap == Gap(5, 6, Loss.RESTART)


def test_a_cursor_ahead_of_the_head_or_of_another_epoch_means_recreated() -> None:
    log = new_log()
    add(log, 2)
    assert plan(log, 2, 3, None) == ReadPlan(1, 2, Gap(1, 2, Loss.RECREATED))
    assert plan(log, 2, 1, log.id + 1) == ReadPlan(1, 2, Gap(1, 2, Loss.RECREATED))
    assert plan(log, 2, 1, log.id) == ReadPlan(2, 2, None)
    assert plan(new_log(), 0, 7, None) == ReadPlan(1, 0, Gap(1, 0, Loss.RECREATED))


def test_the_cursor_never_passes_what_readers_may_see() -> None:
    """Appends that are not yet committed have already pushed out more than is visible."""
    log = new_log(cap_records=2)
    add(log, 6)
    visible = 3
    behind = plan(log, visible, 0, None)
    assert behind == ReadPlan(4, 3, Gap(1, 3, Loss.CAP))
    page = Gathering(log, behind, ALL, ColumnSelector()).page(visible)
    assert (page.next, page.earliest, page.caught_up) == (3, 4, True)
    assert plan(log, visible, 3, None) == ReadPlan(4, 3, None)
    assert plan(log, 6, 3, None) == ReadPlan(5, 6, Gap(4, 4, Loss.CAP))


def test_what_is_trimmed_while_a_read_is_under_way_is_neither_given_nor_passed_over() -> None:
    log = new_log(cap_records=5)
    add(log, 5)
    gathering = Gathering(log, plan(log, 5, 0, None), ALL, ColumnSelector())
    remove(log, [2, 2])
    apply(log, Trim(log.id, 4, 0, 2, 2 * RECORD_BYTES))
    assert not gathering.take(block_at(1, 5))
    page = gathering.page(5)
    assert (seqs(page), page.next) == ([], 0)
    assert plan(log, 5, page.next, None) == ReadPlan(4, 5, Gap(1, 3, Loss.CAP))


def test_a_read_that_finds_everything_trimmed_stays_where_it_is() -> None:
    log = new_log(cap_records=5)
    add(log, 5)
    gathering = Gathering(log, plan(log, 5, 0, None), ALL, ColumnSelector())
    apply(log, Trim(log.id, 6, 0, 5, 5 * RECORD_BYTES))
    assert gathering.page(5).next == 0


def test_a_tag_filter_passes_over_what_does_not_match() -> None:
    log = new_log()
    add(log, 5)
    tagged = block_at(1, 5, tags=["a:1", "b", None, "a:2", "b"])
    gathering = Gathering(
        log,
        plan(log, log.head, 0, None),
        Budget(9, 1 << 20, 99),
        ColumnSelector(match=TagPrefix("a:")),
    )
    gathering.take(tagged)
    page = gathering.page(log.head)
    assert (seqs(page), page.next) == ([1, 4], 5)


@pytest.mark.parametrize("count_max", range(6))
def test_a_page_is_shortened(count_max: int) -> None:
    first = make_block(draft([b"1", b"2", b"3"]), 1, 0)
    second = make_block(draft([b"4", b"5"]), 4, 0)
    page = Page([Slice(first, [0, 2]), Slice(second, range(2))], 5, 5, 1, None, 5)
    page.shorten(count_max)
    seqs = [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]
    assert seqs == [1, 3, 4, 5][:count_max]
    assert all(piece.picks for piece in page.slices)


@given(
    wanted=st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=4),
    sizes=st.lists(st.integers(0, 30), min_size=20, max_size=20),
    after=st.integers(0, 20),
    upto=st.integers(0, 20),
    records=st.integers(1, 8),
    size_bytes=st.integers(1, 200),
)
def test_what_was_picked_before_makes_the_same_page(
    wanted: list[list[bool]],
    sizes: list[int],
    after: int,
    upto: int,
    records: int,
    size_bytes: int,
) -> None:
    log, blocks, first = new_log(), list[Block](), 1
    for tags in wanted:
        datas = [b"x" * size for size in sizes[first - 1 : first - 1 + len(tags)]]
        metas = [b"meta" if each else None for each in tags] if len(tags) > 2 else None
        named = ["yes" if each else "no" for each in tags]
        blocks.append(make_block(draft(datas, metas=metas, tags=named), first, 0))
        first += len(tags)
    upto = min(upto, first - 1)
    where, budget = ReadPlan(min(after, upto) + 1, upto, None), Budget(records, size_bytes, 1000)
    gathering = Gathering(log, where, budget, selector := ColumnSelector(match=TagPrefix("yes")))
    for block in blocks:
        if not gathering.take(block):
            break
    looked = gathering.page(upto)
    picked = [(block, selector.pick(block, range(block.count))) for block in blocks]
    known = gather_known(log, [each for each in picked if each[1]], where, budget)
    assert seqs(known) == seqs(looked)
    assert (known.head, known.earliest, known.gap) == (looked.head, looked.earliest, looked.gap)
    # Both go on before the next that is wanted; which of the others are behind it says nothing.
    left = [seq for block, picks in picked for at in picks if (seq := block.seq_at(at)) <= upto]
    assert [seq for seq in left if seq > known.next] == [seq for seq in left if seq > looked.next]
    assert known.next <= upto or upto < where.start
