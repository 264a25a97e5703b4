"""A browser's EventSource, on a page of another origin, against a real server."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from headrace_bench.process import ServerProcess

from .browser import browsing
from .delivery_promise import KEY, TOPICS
from .reports import Reports
from .watching import Follow, watch_a_killed_server, watch_over_a_broken_line

pytestmark = pytest.mark.system


@pytest.fixture
def follow(chromium: str, tmp_path: Path, reports: Reports) -> Follow:
    def follow(api: str) -> AbstractContextManager[None]:
        topics: dict[str, Any] = {topic: {} for topic in TOPICS}
        return browsing(chromium, tmp_path / "profile", reports, api=api, key=KEY, topics=topics)

    return follow


def test_a_broken_line_loses_and_repeats_nothing(
    server: ServerProcess, reports: Reports, follow: Follow
) -> None:
    watch_over_a_broken_line(server, reports, follow)


def test_a_killed_server_loses_and_repeats_nothing(
    server: ServerProcess, reports: Reports, follow: Follow
) -> None:
    watch_a_killed_server(server, reports, follow)


def test_a_page_of_an_origin_that_is_not_listed_gets_nothing(
    server: ServerProcess, chromium: str, tmp_path: Path
) -> None:
    topics: dict[str, Any] = {topic: {} for topic in TOPICS}
    with (
        Reports() as elsewhere,  # another port is another origin
        browsing(chromium, tmp_path / "profile", elsewhere, api=server.url, key=KEY, topics=topics),
    ):
        taken = elsewhere.wait(bool, "the first report")
    assert taken[0]["kind"] == "no session"
