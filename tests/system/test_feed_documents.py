"""What the documentation shows of feeds, as pasted beside a server."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace_bench.process import ServerProcess
from support.feed_grpc import event, grpc_server
from support.pasted import blocks, run, run_shell
from support.webhook_receiver import receiving

pytestmark = pytest.mark.system


FEEDS = "docs/surfaces/feeds.md"


def test_the_examples_run_one_page_after_the_other(tmp_path: Path) -> None:
    env = {"HEADRACE_WEBHOOK_HOSTS": "127.0.0.1"}
    with receiving() as receiver, ServerProcess(tmp_path / "data", env=env) as server:
        here = {"http://127.0.0.1:4000": server.url}
        there = here | {"http://127.0.0.1:9000/hook": receiver.url}
        shown = [
            block
            for language, block in blocks("README.md", here) + blocks(FEEDS, there)
            if language == "sh" and "/tenants/acme-corp" in block
        ]
        first, events, subscription, tracker, key = [run_shell(each, tmp_path) for each in shown]
    assert '"sequenceNumber":1,"duplicate":false' in first
    assert ": heartbeat\n\nid: 1\nevent: version.published\n" in first
    assert '"sequenceNumber":1,"duplicate":true' in events
    assert '"total":{"value":1,' in events
    assert '"delivered":true' in subscription
    assert [b"subscription.test" in body for _, body in receiver.deliveries] == [True, False]
    assert '"id":"shop-cache"' in tracker
    assert '"code":"TRACKER_LEASED"' in tracker
    assert '"key":"epk_' in key


def test_the_examples_of_grpc_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with grpc_server(tmp_path) as (server, target):
        httpx.post(f"{server.url}/tenants/acme-corp/events", json=event("version"))
        shown = blocks(FEEDS, {"http://127.0.0.1:4000": server.url, "127.0.0.1:4001": target})
        (stream, client) = [text for language, text in shown if language == "python"]
        run(stream, FEEDS, {})
        assert capsys.readouterr().out == "1\n"
        run(client, FEEDS, {})
        assert capsys.readouterr().out == "[(1, 'version.updated')]\n"
