"""Turns under pressure: weights, order inside a band, ageing."""

from __future__ import annotations

from collections import Counter

from headrace.core.schedule import Rounds, aged, band_of


def served(rounds: Rounds[str], count: int, now_ms: int = 0) -> list[str]:
    return [turn[0] for _ in range(count) if (turn := rounds.take(now_ms))]


def test_bands_begin_where_the_contract_says() -> None:
    assert [band_of(p) for p in (1000, 750, 749, 500, 499, 250, 249, 0, -1, -1000)] == [
        0, 0, 1, 1, 2, 2, 3, 3, 4, 4,
    ]  # fmt: skip


def test_all_bands_are_served_in_proportion_to_their_weights() -> None:
    rounds: Rounds[str] = Rounds()
    for name, priority in (("a", 900), ("b", 600), ("c", 300), ("d", 10), ("e", -5)):
        for _ in range(32):
            rounds.put(name, priority, 0)
    assert Counter(served(rounds, 32)) == {"a": 16, "b": 8, "c": 4, "d": 2, "e": 2}


def test_inside_a_band_the_first_come_is_the_first_served() -> None:
    rounds: Rounds[str] = Rounds()
    for name in ("x", "y", "z"):
        rounds.put(name, 100, 0)
    assert served(rounds, 5) == ["x", "y", "z"]
    assert len(rounds) == 0


def test_waiting_lifts_a_priority_up_to_a_limit() -> None:
    assert [aged(0, ms) for ms in (0, 500, 2_500, 10_000, 60_000)] == [0, 50, 250, 1000, 1000]


def test_what_has_waited_long_moves_into_a_higher_band() -> None:
    rounds: Rounds[str] = Rounds()
    for name in ("old", "older"):
        rounds.put(name, -100, 0)
    for _ in range(20):
        rounds.put("new", 900, 9_999)
    assert served(rounds, 3, now_ms=10_000) == ["old", "older", "new"]


def test_lowered_work_gives_way() -> None:
    rounds: Rounds[str] = Rounds()
    for _ in range(9):
        rounds.put("router", 800, 0, lowered=True)
        rounds.put("push", 800, 0)
    assert Counter(served(rounds, 9)) == {"push": 6, "router": 3}
