"""The whole engine under seeded clients and crashes. Seeds that once failed are in seeds.txt.

HEADRACE_SIM_SEEDS=200 looks at more fresh seeds; a failure names its seed, which then belongs into
the file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lives import simulate

_FILE = Path(__file__).with_name("seeds.txt")
_KEPT = [int(line.split("#")[0]) for line in _FILE.read_text().splitlines() if line[:1].isdigit()]
_FRESH = int(os.environ.get("HEADRACE_SIM_SEEDS", "8"))
_FIRST = 1_000_000


@pytest.mark.parametrize("seed", _KEPT)
def test_seed_that_once_failed(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _FRESH))
def test_fresh_seed(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _FRESH))
def test_others_replace_segments(seed: int) -> None:
    simulate(seed, rivals=True)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert simulate(7) == simulate(7)
