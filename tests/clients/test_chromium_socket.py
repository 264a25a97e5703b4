"""A browser's WebSocket against a real server; its key travels as a subprotocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

from .browser import browsing
from .delivery_promise import KEY, TOPICS
from .reports import Report, Reports

pytestmark = pytest.mark.system


def test_a_page_talks_over_a_socket(
    server: ServerProcess, reports: Reports, chromium: str, tmp_path: Path
) -> None:
    def heard(taken: list[Report]) -> bool:
        return {"ack", "record"} <= {report.get("op") for report in taken}

    settings = {"api": server.url, "key": KEY, "room": TOPICS[0]}
    with browsing(chromium, tmp_path / "profile", reports, **settings):
        taken = reports.wait(heard, "an acknowledgement and the record")
    assert taken[0] == {"kind": "open", "protocol": "bearer"}
    said = [
        r["data"] for report in taken if report.get("op") == "record" for r in report["records"]
    ]
    assert said == ["from the page"]
