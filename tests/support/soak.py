"""Soak tests: fresh seeds for as long as somebody has patience; each failure names its seed.

A soak test has the marker `soak` and takes seeds from `fresh_seeds`:

    @pytest.mark.soak
    def test_frames(fresh_seeds: Iterator[int]) -> None:
        for seed in fresh_seeds:
            fuzz(Random(seed))

`make soak` runs all of them, for `HEADRACE_SOAK_MINUTES` together; `HEADRACE_SOAK_SEED` runs one
seed again. Everything else leaves them out: what is run for every change is the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import SystemRandom
from time import monotonic

import pytest

SEED_MAX = 2**32
MINUTES = "HEADRACE_SOAK_MINUTES"
SEED = "HEADRACE_SOAK_SEED"

_seconds = pytest.StashKey[float]()
_given = pytest.StashKey["Seeds"]()


class Seeds:
    """Seeds nobody has chosen until the time is over, one at least; or one that somebody chose."""

    def __init__(
        self, seconds: float, chosen: str | None = None, time: Callable[[], float] = monotonic
    ) -> None:
        self.last: int | None = None
        self._chosen = None if chosen is None else int(chosen)
        self._time = time
        self._deadline = time() + seconds

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.last is not None and (self._chosen is not None or self._time() >= self._deadline):
            raise StopIteration
        fresh = SystemRandom().randrange(SEED_MAX)
        self.last = fresh if self._chosen is None else self._chosen
        return self.last


@pytest.fixture
def fresh_seeds(request: pytest.FixtureRequest) -> Seeds:
    """Seeds for a soak test."""
    seeds = Seeds(request.config.stash[_seconds], os.environ.get(SEED))
    request.node.stash[_given] = seeds
    return seeds


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave soak tests out unless somebody asks for them; those that run share the time."""
    minutes = os.environ.get(MINUTES)
    soaking = [item for item in items if item.get_closest_marker("soak")]
    config.stash[_seconds] = float(minutes or 0) * 60 / max(len(soaking), 1)
    if minutes or SEED in os.environ or "soak" in (config.getoption("markexpr") or ""):
        return
    items[:] = [item for item in items if item not in set(soaking)]
    if soaking:
        config.hook.pytest_deselected(items=soaking)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Say which seed failed, and how to run it again."""
    report = yield
    seeds = item.stash.get(_given, None)
    if report.failed and seeds is not None:
        again = f"{SEED}={seeds.last} python -m pytest '{item.nodeid}'"
        report.sections.append(("run this seed again with", again))
    return report
