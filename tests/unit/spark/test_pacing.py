"""How far a batch goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.log_plan import LogPlan
from headrace.spark.options import Pace
from headrace.spark.pacing import Backlog, pace_of


def backlog(
    name: str, after: int, head: int, sealed: tuple[int, ...] = (), size: int = 10
) -> Backlog:
    plan = LogPlan(
        log=name,
        epoch=1,
        owner="topics",
        media=None,
        head_seq=head,
        earliest_seq=1,
        floor_seq=1,
        count=head,
        bytes=head * size,
        sealed=[(last - 9, last) for last in sealed],
    )
    return Backlog(plan, after, head)


def test_without_limits_everything() -> None:
    assert pace_of([backlog("a", 3, 10), backlog("b", 0, 5)], Pace()) == {"a": 10, "b": 5}
    assert pace_of([], Pace(rows=5)) == {}


def test_rows_are_shared_and_nobody_starves() -> None:
    logs = [backlog("a", 0, 1000), backlog("b", 0, 10), backlog("c", 50, 50)]
    assert pace_of(logs, Pace(rows=100)) == {"a": 90, "b": 10, "c": 50}


def test_bytes_count_by_the_average_record() -> None:
    logs = [backlog("a", 0, 100, size=100), backlog("b", 0, 100, size=10)]
    assert pace_of(logs, Pace(size_bytes=2000)) == {"a": 10, "b": 100}


def test_files_by_turns_and_the_rest_is_one() -> None:
    logs = [backlog("a", 5, 45, (10, 20, 30)), backlog("b", 0, 7)]
    assert pace_of(logs, Pace(files=1)) == {"a": 10, "b": 0}
    assert pace_of(logs, Pace(files=3)) == {"a": 20, "b": 7}
    assert pace_of(logs, Pace(files=9)) == {"a": 45, "b": 7}


def test_a_budget_below_one_record_goes_on_by_one() -> None:
    assert pace_of([backlog("a", 4, 9, size=100)], Pace(size_bytes=1)) == {"a": 5}


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_within_the_budget_and_never_at_rest(logs: list[tuple[int, int]], rows: int) -> None:
    backlogs = [backlog(f"l{n}", after, after + more) for n, (after, more) in enumerate(logs)]
    upto = pace_of(backlogs, Pace(rows=rows))
    taken = sum(upto[log.plan.log] - log.after for log in backlogs)
    waiting = sum(log.count for log in backlogs)
    assert min(1, waiting) <= taken <= rows
    assert all(log.after <= upto[log.plan.log] <= log.head for log in backlogs)
