"""What the documentation shows of feeds, as pasted beside a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess
from support.pasted import blocks, run_shell

pytestmark = pytest.mark.system


@pytest.mark.parametrize("page", ["README.md", "docs/surfaces/feeds.md"])
def test_the_examples_run(page: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        shown = [
            block
            for language, block in blocks(page, {"http://127.0.0.1:4000": server.url})
            if language == "sh" and "/tenants/acme-corp" in block
        ]
        said = [run_shell(block, tmp_path) for block in shown]
    assert '"sequenceNumber":1,"duplicate":false' in said[0]
    assert ": heartbeat\n\nid: 1\nevent: version.published\n" in said[0]
    if page != "README.md":
        assert '"total":{"value":1,' in said[0]
        assert '"id":"shop-cache"' in said[1]
        assert '"code":"TRACKER_LEASED"' in said[1]
        assert '"key":"epk_' in said[2]
