from __future__ import annotations

import numpy as np
import pytest

from headrace.search.docsets import intersect, subtract, unite

SETS = [[], [1], [1, 2, 3], [3, 10**15], [2, 5, 10**15, 10**16], list(range(0, 1000, 3))]


@pytest.mark.parametrize("one", SETS)
@pytest.mark.parametrize("other", SETS)
def test_sets_are_sets(one: list[int], other: list[int]) -> None:
    a, b = np.array(one, np.int64), np.array(other, np.int64)
    assert intersect(a, b).tolist() == sorted(set(one) & set(other))
    assert subtract(a, b).tolist() == sorted(set(one) - set(other))
    assert unite([a, b]).tolist() == sorted(set(one) | set(other))
    assert a.tolist() == one
