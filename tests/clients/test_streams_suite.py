"""The public conformance suite of the base streams protocol, against a real process: all of it.

The suite comes from npm and runs in a folder outside the repository, which is kept between runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

from .conftest import miss, npm_install

VERSION = "0.3.6"
PACKAGE = f"@durable-streams/server-conformance-tests@{VERSION}"
TESTS = 338
RUN_S = 1200
RETRIES = 3
"""Some of its tests race against the clock, which a machine that is held up loses."""

SUITE = """\
import { runConformanceTests } from "@durable-streams/server-conformance-tests";
runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL, subscriptions: true });
"""
CONFIG = """\
import { defineConfig } from "vitest/config";
export default defineConfig({
  test: { include: ["suite.test.mjs"], testTimeout: 60000, hookTimeout: 60000, retry: RETRIES },
});
""".replace("RETRIES", str(RETRIES))


@pytest.fixture(scope="module")
def suite() -> Path:
    """A folder with the suite installed and ready to run."""
    for tool in ("node", "npm", "npx"):
        if shutil.which(tool) is None:
            miss(f"{tool} is not installed: THE PUBLIC SUITE OF THE STREAMS PROTOCOL DID NOT RUN")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "headrace" / f"streams-suite-{VERSION}"
    if not (folder / "node_modules").is_dir():
        _install(folder)
    (folder / "suite.test.mjs").write_text(SUITE)
    (folder / "vitest.config.mjs").write_text(CONFIG)
    return folder


def _install(folder: Path) -> None:
    """Into a folder aside, which gets its name when all is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    (aside / "package.json").write_text('{"private": true, "type": "module"}')
    if problem := npm_install(aside, PACKAGE):
        shutil.rmtree(aside)
        miss(f"npm cannot install {PACKAGE}: {problem}")
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


@pytest.mark.system
def test_the_public_suite_passes(suite: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    env = {"HEADRACE_WEBHOOK_HOSTS": "localhost,127.0.0.0/8,::1"}  # where the suite's receivers are
    with ServerProcess(tmp_path / "data", env=env) as server:
        done = subprocess.run(
            ["npx", "vitest", "run", "--reporter=json", f"--outputFile={report}"],
            cwd=suite, env={**os.environ, "CONFORMANCE_TEST_URL": f"{server.url}/ds"},
            capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
    assert report.exists(), f"the suite did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    found = json.loads(report.read_text())
    failed = [
        f"{test['fullName']}: {(test['failureMessages'] or [''])[0][:300]}"
        for file in found["testResults"]
        for test in file["assertionResults"]
        if test["status"] != "passed"
    ]
    assert failed == []
    assert (found["numTotalTests"], found["numPassedTests"]) == (TESTS, TESTS)
