"""The topics surface, black box over HTTP: every case of `topics/*.toml` is one test."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from .cases import Scenario, load_scenarios
from .runner import Mismatch, run_scenario
from .servers import ServerUnderTest, SharedServer

SCENARIOS = load_scenarios(Path(__file__).parent / "topics")
PARAMETERS = [
    pytest.param(scenario, id=scenario.id, marks=[pytest.mark.system] * scenario.restarts)
    for scenario in SCENARIOS
]


@pytest.mark.parametrize("scenario", PARAMETERS)
def test_topics(scenario: Scenario, shared_server: SharedServer, tmp_path: Path) -> None:
    if scenario.case.refuses_to_start:
        _expect_no_start(scenario, tmp_path / "data")
        return
    if problem := _play(scenario, shared_server, tmp_path / "data"):
        pytest.fail(problem, pytrace=False)


def _play(scenario: Scenario, shared_server: SharedServer, data_dir: Path) -> str:
    try:
        if scenario.case.own_server:
            with ServerUnderTest(data_dir, env=scenario.env) as server:
                run_scenario(scenario, server)
        else:
            run_scenario(scenario, shared_server(scenario.env))
    except Mismatch as mismatch:
        return str(mismatch)
    return ""


def _expect_no_start(scenario: Scenario, data_dir: Path) -> None:
    server = ServerUnderTest(data_dir, env=scenario.env)
    with ExitStack() as stack:
        stack.push(server)  # closes it whether or not it starts
        with pytest.raises(RuntimeError) as refusal:
            server.start()
    said = str(refusal.value)
    wanted = scenario.case.refuses_to_start
    assert re.search(wanted, said), f"expected it to say {wanted!r}, it said:\n{said}"
    assert "Traceback" not in said, f"a refusal is a message, not a trace:\n{said}"
