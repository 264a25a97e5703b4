"""When something that failed is tried again."""

from __future__ import annotations

from headrace.core.retry import DELIVERIES, WAKES


def test_deliveries_follow_standard_webhooks_and_end() -> None:
    waits = [DELIVERIES.wait_ms(failures, 0.0) for failures in range(1, 11)]
    assert waits == [
        5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 50_400_000, 72_000_000,
        86_400_000, None,
    ]  # fmt: skip


def test_wakes_are_tried_for_ever() -> None:
    waits = [WAKES.wait_ms(failures, 0.0) for failures in (1, 2, 3, 7, 8, 1000)]
    assert waits == [1000, 2000, 4000, 60_000, 60_000, 60_000]


def test_jitter_only_makes_a_wait_longer() -> None:
    assert DELIVERIES.wait_ms(1, 1.0) == 6000
    assert all(5000 <= (DELIVERIES.wait_ms(1, at / 10) or 0) <= 6000 for at in range(11))


def test_what_a_receiver_asks_for_is_the_least() -> None:
    assert DELIVERIES.wait_ms(1, 0.0, at_least_ms=60_000) == 60_000
    assert DELIVERIES.wait_ms(2, 0.0, at_least_ms=60_000) == 300_000
    assert DELIVERIES.wait_ms(10, 0.0, at_least_ms=60_000) is None
