"""What the documentation shows of notifications, as pasted beside a server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess
from support.pasted import blocks, run_shell

pytestmark = pytest.mark.system


PAGE = "docs/surfaces/notifications.md"


@pytest.mark.parametrize("page", ["README.md", PAGE])
def test_the_examples_run(page: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        shown = [
            block
            for language, block in blocks(page, {"http://127.0.0.1:4000": server.url})
            if language == "sh" and "/notification" in block
        ]
        (block,) = shown
        said = run_shell(block, tmp_path)
    assert '"status":"success"' in said
    assert '"id":"storm@1"' in said
    assert '"reason":"end_of_stream"' in said


def test_the_examples_of_the_client_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where the client keeps what it remembers
    with ServerProcess(tmp_path / "data") as server:
        here = {"http://127.0.0.1:4000": server.url, ".venv/bin": str(Path(sys.executable).parent)}
        (block,) = (block for _, block in blocks(PAGE, here) if "/aviso " in block)
        said = run_shell(block, tmp_path)
    assert '"status":"success"' in said
    assert '"sequence":1' in said
