"""Priorities: a manual value, or one that halves every thirty seconds since the last read."""

from __future__ import annotations

import pytest

from headrace.core.config import LogConfig
from headrace.core.priority import effective


@pytest.mark.parametrize(
    ("idle_s", "wanted"),
    [(0, 500), (15, 354), (30, 250), (60, 125), (120, 31), (300, 0), (9999, 0)],
)
def test_it_decays_with_idleness(idle_s: int, wanted: int) -> None:
    assert effective(LogConfig(), 1000, 1000 + idle_s * 1000) == wanted


def test_a_manual_priority_switches_the_automatic_one_off() -> None:
    assert effective(LogConfig(priority=-7), 1000, 1000) == -7


def test_nobody_ever_read_it() -> None:
    assert effective(LogConfig(), None, 1000) == 0


def test_automatic_priority_can_be_switched_off() -> None:
    assert effective(LogConfig(auto_priority=False), 1000, 1000) == 0


def test_a_clock_that_went_back_is_no_idleness() -> None:
    assert effective(LogConfig(), 2000, 1000) == 500
