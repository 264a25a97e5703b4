from __future__ import annotations

import pytest

from headrace_bench.stats import median_ratio, percentile


@pytest.mark.parametrize(
    ("part", "expected"),
    [(0, 1), (0.001, 1), (0.5, 50), (0.505, 51), (0.99, 99), (0.999, 100), (1, 100)],
)
def test_a_percentile_is_a_value_that_occurred(part: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), part) == expected


def test_one_value_is_every_percentile() -> None:
    assert {percentile([7.0], part) for part in (0, 0.5, 0.999, 1)} == {7.0}


def test_the_ratio_is_taken_within_each_round() -> None:
    # The machine slowed down threefold in the second round, for both.
    assert median_ratio([30, 10, 30], [60, 20, 60]) == 0.5


def test_rounds_without_a_partner_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        median_ratio([1, 2], [1])
