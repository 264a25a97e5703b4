"""Node's `eventsource` package against a real server: its own reconnects with Last-Event-ID."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

from .delivery_promise import KEY, TOPICS
from .reports import Reports
from .watching import Follow, watch_a_killed_server, watch_over_a_broken_line

pytestmark = pytest.mark.system


@pytest.fixture
def follow(node_folder: Path, reports: Reports) -> Follow:
    @contextmanager
    def follow(api: str) -> Iterator[None]:
        topics = {topic: {} for topic in TOPICS}
        settings = {"api": api, "page": reports.url, "key": KEY, "topics": topics}
        command = ["node", "node.mjs", json.dumps(settings)]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, cwd=node_folder, stdout=said, stderr=said)
            try:
                yield
            except AssertionError as problem:
                said.seek(0)
                problem.add_note(f"node said: {said.read().decode()[-2000:]}")
                raise
            finally:
                process.kill()
                process.wait()

    return follow


def test_a_broken_line_loses_and_repeats_nothing(
    server: ServerProcess, reports: Reports, follow: Follow
) -> None:
    watch_over_a_broken_line(server, reports, follow)


def test_a_killed_server_loses_and_repeats_nothing(
    server: ServerProcess, reports: Reports, follow: Follow
) -> None:
    watch_a_killed_server(server, reports, follow)
