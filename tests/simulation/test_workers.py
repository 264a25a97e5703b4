"""Queues under seeded workers and crashes. HEADRACE_SIM_SEEDS=200 looks at more seeds."""

from __future__ import annotations

import os

import pytest
from workers import simulate

_SEEDS = int(os.environ.get("HEADRACE_SIM_SEEDS", "8"))


_KEPT = (16,)
"""An ack that waited for a segment took the job of a newer lease of the same worker."""


@pytest.mark.parametrize("seed", [*range(_SEEDS), *_KEPT])
def test_every_job_ends_once(seed: int) -> None:
    simulate(seed)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert simulate(7) == simulate(7)
