from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace_bench.arena import QUICK, Arena
from headrace_bench.errors import BenchError
from headrace_bench.main import add_arguments, choose_scenarios, run_scenarios
from headrace_bench.progress import Progress
from headrace_bench.report import Report, Row
from headrace_bench.scenarios.catalog import DEFAULT, Scenario


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
        (
            ("feeds",),
            ["feeds-sse", "feeds-poll", "feeds-grpc", "feeds-webhooks", "feeds-store"],
        ),
    ],
)
def test_which_scenarios_run(words: tuple[str, ...], expected: list[str]) -> None:
    assert list(choose_scenarios(parse(*words))) == expected


ROW = Row("a", "/s", (1.0,))


def run(**scenarios: Scenario) -> Report:
    report = Report({}, {}, [], [])
    arena = Arena(Path(), QUICK, False, lambda _: None)
    with Progress(len(scenarios)) as progress, suppress(KeyboardInterrupt):
        run_scenarios(scenarios, arena, progress, report)
    return report


def test_a_failed_scenario_costs_only_its_own_rows() -> None:
    def fail(arena: Arena) -> list[Row]:
        raise BenchError("no reply")

    report = run(bad=fail, good=lambda _: [ROW])
    assert report.rows == [ROW]
    assert [(failure.scenario, failure.message) for failure in report.failures] == [
        ("bad", "BenchError: no reply")
    ]


def test_who_interrupts_keeps_every_row_so_far() -> None:
    def interrupted(arena: Arena) -> Iterator[Row]:
        yield ROW
        raise KeyboardInterrupt

    assert run(good=lambda _: [ROW], cut=interrupted, never=lambda _: [ROW]).rows == [ROW, ROW]
