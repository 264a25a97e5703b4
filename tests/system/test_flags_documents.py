"""What the documentation shows of flags, as pasted beside a server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess
from support.pasted import blocks, run, run_shell

pytestmark = pytest.mark.system


PAGE = "docs/surfaces/flags.md"


def test_the_examples_run_one_page_after_the_other(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        here = {"http://127.0.0.1:4000": server.url}
        for page in ("README.md", PAGE):
            shown = blocks(page, here)
            (block,) = (
                text for language, text in shown if language == "sh" and "/manifest" in text
            )
            said = run_shell(block, tmp_path)
            assert '"error"' not in said
            assert '"errors":[]' in said
            assert '"value":true' in said
        assert '"delivery":"snapshot"' in said
        assert "segments/employees.toml\n" in said
        assert '"secret":"exd_read_' in said
        programs = [text for language, text in blocks(PAGE, here) if language == "python"]
        assert len(programs) == 2
        for program in programs:
            run(program, PAGE, {})


def test_the_examples_of_the_command_run(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        here = {"http://127.0.0.1:4000": server.url}
        (made,) = (text for language, text in blocks(PAGE, here) if language == "sh")
        run_shell(made, tmp_path)
        text = (Path(__file__).parents[2] / PAGE).read_text()
        commands = [line for line in text.splitlines() if line.startswith("headrace keys")]
        assert len(commands) == 5
        for command in commands:
            command = command.replace("headrace", f"{sys.executable} -m headrace", 1)
            if "revoke" in command:
                continue  # of a token that was made somewhere else
            run_shell(f"{command} --url {server.url}", tmp_path)
