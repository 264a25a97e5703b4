"""Queues under seeded workers and crashes; `make soak` looks at fresh seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from workers import simulate

_FIXED = range(8)
_KEPT = (16,)
"""An ack that waited for a segment took the job of a newer lease of the same worker."""


@pytest.mark.parametrize("seed", [*_FIXED, *_KEPT])
def test_every_job_ends_once(seed: int) -> None:
    simulate(seed)


@pytest.mark.soak
def test_every_job_ends_once_with_fresh_seeds(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        simulate(seed)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert simulate(7) == simulate(7)
