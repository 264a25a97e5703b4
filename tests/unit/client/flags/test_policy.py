"""Pauses: longer with every failure, with jitter, and bounded."""

from __future__ import annotations

import pytest

from headrace.client.flags.policy import RefreshPolicy


def test_pauses_double_up_to_the_maximum() -> None:
    policy = RefreshPolicy(pause_s=0.5, pause_s_max=30)
    assert [policy.pause(n, lambda: 1.0) for n in (1, 2, 3, 7, 10**9)] == [0.5, 1, 2, 30, 30]


@pytest.mark.parametrize("failures", [0, 1, 5, 100])
def test_jitter_takes_away_at_most_half(failures: int) -> None:
    policy = RefreshPolicy()
    assert policy.pause(failures, lambda: 0.0) == policy.pause(failures, lambda: 1.0) / 2


def test_no_policy_waits_longer_than_anybody_may() -> None:
    assert RefreshPolicy(pause_s_max=10**9).pause(60, lambda: 1.0) == 300
