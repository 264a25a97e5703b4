"""Pressure: the worst signal counts, lateness is smoothed, the severe state has a memory."""

from __future__ import annotations

import pytest

from headrace.core.limits import SEVERE_TICKS
from headrace.core.pressure import Pressure


def test_the_worst_signal_is_the_level() -> None:
    pressure = Pressure()
    pressure.update(waiting=0.1, lag_ms=0, busy=0.7)
    assert pressure.level == 0.7
    pressure.update(waiting=5, lag_ms=0, busy=0)
    assert pressure.level == 1.0


def test_one_late_timer_is_not_pressure_but_many_are() -> None:
    pressure = Pressure()
    pressure.update(waiting=0, lag_ms=3, busy=0)
    assert pressure.level < 0.2
    for _ in range(30):
        pressure.update(waiting=0, lag_ms=10, busy=0)
    assert pressure.level == 1.0


def test_pushes_gather_only_under_pressure() -> None:
    pressure = Pressure()
    for level, window_ms in ((0.0, 0), (0.2, 0), (0.6, 10), (1.0, 20)):
        pressure.level = level
        assert pressure.window_ms == pytest.approx(window_ms)


def test_severe_needs_time_to_come_and_relief_to_go() -> None:
    pressure = Pressure()
    for _ in range(SEVERE_TICKS - 1):
        pressure.update(waiting=0.9, lag_ms=0, busy=0)
    assert not pressure.severe
    pressure.update(waiting=0.9, lag_ms=0, busy=0)
    assert pressure.severe
    pressure.update(waiting=0.7, lag_ms=0, busy=0)
    assert pressure.severe
    pressure.update(waiting=0.5, lag_ms=0, busy=0)
    assert not pressure.severe
