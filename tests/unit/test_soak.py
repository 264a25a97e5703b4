"""Soak tests: who runs them, for how long, and what a failure tells."""

from __future__ import annotations

from typing import Any

import pytest

from support import soak

pytest_plugins = ["pytester"]

TEST = """
import pytest

def test_always():
    pass

@pytest.mark.soak
def test_soak(fresh_seeds):
    for seed in fresh_seeds:
        assert seed != 7
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs pytest in a folder with one test and one soak test."""
    monkeypatch.delenv(soak.MINUTES, raising=False)
    monkeypatch.delenv(soak.SEED, raising=False)
    pytester.makeini("[pytest]\nmarkers = soak: long")
    pytester.makepyfile(TEST)
    return lambda *args: pytester.runpytest_inprocess("-q", *args, plugins=[soak])


def test_soak_tests_are_left_out(run: Any) -> None:
    run().assert_outcomes(passed=1, deselected=1)


def test_who_names_them_gets_them(run: Any) -> None:
    run("-m", "soak").assert_outcomes(passed=1, deselected=1)


def test_a_seed_is_run_again_and_told(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(soak.SEED, "7")
    result = run("-m", "soak")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines([f"*{soak.SEED}=7 python -m pytest *::test_soak'"])


def test_fresh_seeds_come_until_the_time_is_over() -> None:
    clock = iter((0.0, 30.0, 59.0, 60.0))
    seeds = list(soak.Seeds(60, time=lambda: next(clock)))
    assert len(set(seeds)) == 3


def test_one_seed_comes_however_little_time_there_is() -> None:
    assert len(list(soak.Seeds(0))) == 1


def test_a_chosen_seed_comes_once() -> None:
    assert list(soak.Seeds(60, "77")) == [77]
