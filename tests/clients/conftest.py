"""What the tests with real clients share: a server with keys, and tools that may be missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from headrace_bench.process import ServerProcess

from .browser import HERE
from .delivery_promise import ANSWER_S, HEADERS, KEY, TOPICS
from .reports import Reports

REQUIRED = "HEADRACE_REQUIRE_CLIENTS"
NPM_S = 300.0
NPM_TRIES = 3
EVENTSOURCE = "eventsource@^3"


@pytest.fixture
def reports() -> Iterator[Reports]:
    with Reports() as reports:
        yield reports


@pytest.fixture
def server(tmp_path: Path, reports: Reports) -> Iterator[ServerProcess]:
    """A server with a key, for pages of the reports' origin, and with the topics of the story."""
    env = {"TOPICS_API_KEYS": KEY, "TOPICS_CORS_ORIGINS": reports.url}
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path / "data", env=env))
        with httpx.Client(
            base_url=server.url, headers=HEADERS, timeout=ANSWER_S, trust_env=False
        ) as client:
            for topic in TOPICS:
                client.put(f"/v0/topics/{topic}", json={}).raise_for_status()
        yield server


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm package and our scripts; nothing of it enters the repository."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            miss(f"{tool} is not installed, so Node's EventSource is not tested")
    folder = tmp_path_factory.mktemp("node")
    if problem := npm_install(folder, "--no-save", EVENTSOURCE):
        miss(f"npm cannot install {EVENTSOURCE}: {problem}")
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    miss("chromium is not installed, so a browser's EventSource is not tested")
    raise AssertionError("unreachable")


def npm_install(folder: Path, *what: str) -> str:
    """What went wrong, the last time; the network may have its moments."""
    command = ["npm", "install", "--no-audit", "--no-fund", *what]
    problem = ""
    for _ in range(NPM_TRIES):
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=NPM_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            problem = str(late)
            continue
        if done.returncode == 0:
            return ""
        problem = done.stderr[-500:]
    return problem


def miss(reason: str) -> None:
    """Skip, and say why; where clients are required, as in CI, fail."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason} ({REQUIRED}=1)", pytrace=False)
    pytest.skip(reason)
