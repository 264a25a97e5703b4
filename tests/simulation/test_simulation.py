"""The whole engine under seeded clients and crashes. Seeds that once failed are in seeds.txt.

`make soak` looks at fresh ones; one that fails belongs into the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .crash_simulation import simulate

_FILE = Path(__file__).with_name("seeds.txt")
_KEPT = [int(line.split("#")[0]) for line in _FILE.read_text().splitlines() if line[:1].isdigit()]
_FIXED = range(1_000_000, 1_000_005)


@pytest.mark.parametrize("seed", [*_KEPT, *_FIXED])
def test_lives_of_topics(seed: int) -> None:
    simulate(seed)


_SHORT = 2421207649
"""Crash after crash, and too little time for a rival."""


@pytest.mark.parametrize("seed", [*_FIXED, _SHORT])
def test_others_replace_segments(seed: int) -> None:
    simulate(seed, rivals=True)


@pytest.mark.parametrize("rivals", [False, True])
@pytest.mark.parametrize("seed", _FIXED)
def test_records_are_sealed_by_age_and_on_demand(seed: int, rivals: bool) -> None:
    simulate(seed, rivals=rivals, seals=True)


@pytest.mark.soak
@pytest.mark.parametrize("rivals", [False, True])
@pytest.mark.parametrize("seals", [False, True])
def test_fresh_lives_of_topics(fresh_seeds: Iterator[int], rivals: bool, seals: bool) -> None:
    for seed in fresh_seeds:
        simulate(seed, rivals=rivals, seals=seals)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert simulate(7) == simulate(7)
