from __future__ import annotations

import math

import numpy as np
import pytest

from headrace.search import histogram
from support.histograms import bounds, log2_of, percentiles

VALUES = [0.0, -0.0, 1e-12, 0.3, 1.0, 1.5, 2.0, 3.999, 73.5, 1e308, -1.0, -2.5, -1e-300]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_in_its_bucket(value: float) -> None:
    at = histogram.bucket(value)
    low, high = bounds(at)
    if at:
        assert low <= value < high if value > 0 else low < value <= high
        assert (high - low) / abs(value) <= 1 / 32
    else:
        assert abs(value) < 2**-32


def test_many_values_at_once() -> None:
    assert histogram.buckets(np.array(VALUES)).tolist() == [histogram.bucket(v) for v in VALUES]


def test_log2_is_made_of_fine_buckets() -> None:
    fine: histogram.Histogram = {}
    expected: dict[int, int] = {}
    for value in VALUES:
        histogram.merge(fine, {histogram.bucket(value): 1})
        name = 2 ** math.floor(math.log2(max(1.0, abs(value))))
        expected[name] = expected.get(name, 0) + 1
    assert log2_of(fine) == dict(sorted(expected.items()))


def test_bytes_come_back_and_merge() -> None:
    one, other = {-700: 3, 0: 1, 5: 200, 40_000: 1}, {5: 1, 6: 2}
    assert histogram.decode(histogram.encode(one)) == one
    assert histogram.decode(histogram.encode({})) == {}
    both = histogram.decode(histogram.merged([histogram.encode(one), histogram.encode(other)]))
    assert both == {-700: 3, 0: 1, 5: 201, 6: 2, 40_000: 1}


def test_percentiles_lie_near_the_truth() -> None:
    values = [float(n) for n in range(1, 1001)]
    fine: histogram.Histogram = {}
    for value in values:
        histogram.merge(fine, {histogram.bucket(value): 1})
    parts = [0.5, 0.95, 0.99, 1.0]
    found = percentiles(fine, parts, 1.0, 1000.0)
    assert found == pytest.approx([500, 950, 990, 1000], rel=0.02)
    assert found[-1] == 1000.0
    assert percentiles({}, parts, 0.0, 0.0) == []


def test_of_powers_of_two_alone_percentiles_lie_inside_them() -> None:
    coarse = {histogram.bucket(4.0): 2, histogram.bucket(8.0): 2}
    assert percentiles(coarse, [0.5, 0.75], 4.0, 15.0, coarse=True) == [8.0, 12.0]
