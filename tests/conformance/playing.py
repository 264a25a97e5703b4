"""One scenario is one test, on a server of its own or on one that others use, too."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .cases import Scenario, load_scenarios
from .runner import Mismatch, run_scenario
from .servers import ServerUnderTest, SharedServer


def parameters(folder: Path) -> list[Any]:
    """The cases of a folder; those that restart a server take longer and say so."""
    return [
        pytest.param(scenario, id=scenario.id, marks=[pytest.mark.system] * scenario.restarts)
        for scenario in load_scenarios(folder)
    ]


def play(scenario: Scenario, shared_server: SharedServer, data_dir: Path) -> None:
    """Run it; the test fails with what differed."""
    if scenario.case.refuses_to_start:
        _expect_no_start(scenario, data_dir)
    elif problem := _play(scenario, shared_server, data_dir):
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
