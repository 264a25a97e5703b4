"""Ids of requests are ULIDs: of their form, in the order they were made, and never the same."""

from __future__ import annotations

import re

from headrace.web.request_ids import RequestIds, new_request_id

ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def test_they_are_ulids_of_now() -> None:
    assert ULID.fullmatch(new_request_id())


def test_the_time_comes_first() -> None:
    assert RequestIds().make(1469922850259)[:10] == "01ARZ3NDEK"


def test_they_ascend_and_differ_within_a_millisecond_and_when_the_clock_goes_back() -> None:
    ids = RequestIds()
    made = [ids.make(now_ms) for now_ms in [5] * 3000 + [7, 6, 6, 5, 8]]
    assert made == sorted(set(made))


def test_more_than_a_million_in_a_millisecond_still_differ() -> None:
    ids = RequestIds()
    ids.make(5)
    ids._count = (1 << 20) - 2
    made = [ids.make(5) for _ in range(4)]
    assert made == sorted(set(made))
    assert all(ULID.fullmatch(each) for each in made)


def test_two_processes_make_different_ones() -> None:
    assert RequestIds().make(5) != RequestIds().make(5)
