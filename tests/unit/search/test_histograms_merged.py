"""Histograms of many rows: merged, told and decoded all at once."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headrace.search import histogram
from headrace.search.histogram import Histograms
from support.histograms import log2_of, percentiles


def random_histograms(random: Random, rows: int, ats: int) -> Histograms:
    count = random.randrange(0, 40)
    return Histograms(
        np.array([random.randrange(rows) for _ in range(count)], np.int64),
        np.array([random.randrange(-ats, ats) for _ in range(count)], np.int64),
        np.array([random.randrange(1, 9) for _ in range(count)], np.int64),
    )


@pytest.mark.parametrize(("rows", "ats"), [(3, 5), (3, 2000), (5000, 5), (5000, 2000)])
def test_each_bucket_is_there_once(rows: int, ats: int) -> None:
    random = Random(rows * ats)
    for _ in range(50):
        parts = [random_histograms(random, rows, ats) for _ in range(3)]
        expected: Counter[tuple[int, int]] = Counter()
        for part in parts:
            for row, at, n in zip(*(column.tolist() for column in part), strict=True):
                expected[row, at] += n
        merged = histogram.merge_many(parts)
        found = list(zip(*(column.tolist() for column in merged), strict=True))
        assert found == [(*cell, n) for cell, n in sorted(expected.items())]


def test_many_are_told_as_one_by_one() -> None:
    random = Random(1)
    merged = histogram.merge_many([random_histograms(random, 4, 3000) for _ in range(9)])
    lows, highs = np.full(5, -1e9), np.full(5, 1e9)
    found = histogram.percentiles_of(merged, [0.1, 0.5, 0.99], lows, highs)
    coarse = histogram.log2_of_many(merged, 5)
    for row in range(4):
        own = merged.rows == row
        one = dict(zip(merged.ats[own].tolist(), merged.counts[own].tolist(), strict=True))
        assert found[:, row].tolist() == percentiles(one, [0.1, 0.5, 0.99], -1e9, 1e9)
        assert coarse[row] == {str(at): n for at, n in log2_of(one).items()}
    assert np.isnan(found[:, 4]).all()
    assert coarse[4] == {}


def test_many_are_decoded_as_one_by_one() -> None:
    shapes = [{5: 2, -3: 1, 700: 300}, {}, {0: 1}, {-900: 9, 1: 128}]
    raws = pa.array([histogram.encode(shape) for shape in shapes], pa.binary())
    for start in range(len(shapes)):
        rows, ats, counts = histogram.decode_many(raws[start:])
        found: list[dict[int, int]] = [{} for _ in shapes[start:]]
        for row, at, n in zip(rows.tolist(), ats.tolist(), counts.tolist(), strict=True):
            found[row][at] = n
        assert found == shapes[start:]
    assert not len(histogram.decode_many(pa.nulls(3, pa.binary())).rows)
