"""A client that follows event streams as browsers do watches notifications over a bad line."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from httpx_sse import connect_sse

from headrace_bench.process import ServerProcess

from .delivery_promise import ANSWER_S
from .flaky import FlakyLine

pytestmark = pytest.mark.system

COUNT = 120
CUTS = [600, 2_500, 700, 9_000, 400]
IDENTIFIER = json.dumps({"n": "*"})


def notify(url: str, first: int, last: int) -> None:
    with httpx.Client(base_url=url, timeout=ANSWER_S, trust_env=False) as client:
        for n in range(first, last + 1):
            body = {"event_type": "plain", "identifier": {"n": n}, "payload": n}
            client.post("/api/v1/notification", json=body).raise_for_status()


def test_a_broken_line_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Last-Event-ID goes on behind what was received, in the past and in what comes."""
    (tmp_path / "notifications.yaml").write_text("{}")
    env = {"NOTIFICATIONS_CONFIG": str(tmp_path / "notifications.yaml")}
    found: list[int] = []
    last_id = ""
    with ServerProcess(tmp_path / "data", env=env) as server:
        notify(server.url, 1, COUNT // 3)
        writer = threading.Thread(target=notify, args=(server.url, COUNT // 3 + 1, COUNT))
        writer.start()
        with (
            FlakyLine(lambda: server.port, [b"GET /api/v1/watch"], CUTS) as line,
            httpx.Client(base_url=line.url, timeout=ANSWER_S, trust_env=False) as client,
        ):
            asked = {"event_type": "plain", "identifier": IDENTIFIER, "from_id": "1"}
            while len(found) < COUNT:
                headers = {"Last-Event-ID": last_id} if last_id else {}
                with (
                    suppress(httpx.TransportError),
                    connect_sse(
                        client, "GET", "/api/v1/watch", params=asked, headers=headers
                    ) as events,
                ):
                    for event in events.iter_sse():
                        if event.event in ("replay", "live-notification"):
                            told = json.loads(event.data)
                            assert told["id"] == event.id
                            found.append(told["data"]["payload"])
                            last_id = event.id
                        if len(found) >= COUNT:
                            break
            assert line.cuts == len(CUTS)
        writer.join()
    assert found == list(range(1, COUNT + 1))
    assert last_id == f"plain@{COUNT}"
