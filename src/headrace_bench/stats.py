"""The little arithmetic behind the numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least `part` (0 to 1) of the values do not exceed."""
    assert values, "no values"
    assert 0 <= part <= 1
    rank = math.ceil(part * len(values))
    return sorted(values)[max(rank, 1) - 1]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios of each round: a round's noise hits both of its sides."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))
