"""What the documentation shows of feeds, as pasted beside a server."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace_bench.process import ServerProcess
from support.feed_grpc import event, grpc_server
from support.pasted import blocks, run, run_shell

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


def test_the_examples_of_grpc_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/surfaces/feeds.md"
    with grpc_server(tmp_path) as (server, target):
        httpx.post(f"{server.url}/tenants/acme-corp/events", json=event("version"))
        shown = blocks(page, {"http://127.0.0.1:4000": server.url, "127.0.0.1:4001": target})
        (stream, client) = [text for language, text in shown if language == "python"]
        # (Metadata is ASCII: whoever pastes this has a key.)
        run(stream.replace("…", ""), page, {})
        assert capsys.readouterr().out == "1\n"
        run(client, page, {})
        assert capsys.readouterr().out == "[(1, 'version.updated')]\n"
