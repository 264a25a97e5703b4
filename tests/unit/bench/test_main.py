from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headrace.bench.arena import QUICK, Arena
from headrace.bench.errors import BenchError
from headrace.bench.main import add_arguments, choose_scenarios, run_scenarios
from headrace.bench.progress import Progress
from headrace.bench.report import Row
from headrace.bench.scenarios.catalog import DEFAULT


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), [*DEFAULT]),
        (("--many-topics",), [*DEFAULT, "many-topics"]),
        (("--many-streams",), [*DEFAULT, "many-streams"]),
        (("--large-log", "2"), [*DEFAULT, "large-log"]),
        (("--only", "disk", "--only", "single", "--only", "disk"), ["disk", "single"]),
        (("--only", "large-log", "--large-log", "2"), ["large-log"]),
        (("--only", "disk", "--many-topics"), ["disk", "many-topics"]),
    ],
)
def test_which_scenarios_run(words: tuple[str, ...], expected: list[str]) -> None:
    assert list(choose_scenarios(parse(*words))) == expected


def test_a_failed_scenario_costs_only_its_own_rows() -> None:
    def fail(arena: Arena) -> list[Row]:
        raise BenchError("no reply")

    row = Row("a", "/s", (1.0,))
    arena = Arena(Path(), QUICK, False, lambda _: None)
    with Progress(2) as progress:
        rows, failures = run_scenarios({"bad": fail, "good": lambda _: [row]}, arena, progress)
    assert rows == [row]
    assert [(failure.scenario, failure.message) for failure in failures] == [
        ("bad", "BenchError: no reply")
    ]
