"""What the documentation shows of notifications, as pasted beside a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess
from support.pasted import blocks, run_shell

pytestmark = pytest.mark.system


@pytest.mark.parametrize("page", ["README.md", "docs/surfaces/notifications.md"])
def test_the_examples_run(page: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        shown = [
            block
            for language, block in blocks(page, {"http://127.0.0.1:4000": server.url})
            if language == "sh" and "/api/v1" in block
        ]
        (block,) = shown
        said = run_shell(block, tmp_path)
    assert '"status":"success"' in said
    assert '"id":"storm@1"' in said
    assert '"reason":"end_of_stream"' in said
