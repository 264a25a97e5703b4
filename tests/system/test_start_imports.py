"""What a start loads: no library that a server without data does not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

OF_COMMANDS = {"numpy", "pyarrow", "uvloop", "httptools", "asyncio", "tomllib", "headrace.app"}
"""Not to be loaded by a command that starts no server."""
OF_OTHERS = {
    "cryptography",  # signing webhooks
    "obstore",  # buckets
    "headrace.storage.s3",
    "headrace.pipeline",  # Spark jobs
    "headrace.client",
    "headrace.offline",
    "pyspark",
    "pandas",
    "duckdb",
    "tqdm",
    "tomllib",  # a file of settings
    "grpc",  # where its port is set
    "google.protobuf",
    "headrace_bench",
}
"""Not to be loaded by a server until it needs them."""

COMMAND = """
import json, sys
from headrace import cli
try:
    cli.main(["config"])
except SystemExit:
    print(json.dumps(sorted(sys.modules)))
"""
SERVER = """
import json, os, sys
from headrace import app, cli
def say(level, text, **_):
    if text == "ready":
        print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)
app.log_line = say
cli.main(["serve", "--port", "0", "--data-dir", sys.argv[1]])
"""


def loaded(program: str, *words: str) -> set[str]:
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(names)


def test_a_command_loads_no_server() -> None:
    assert loaded(COMMAND) & (OF_COMMANDS | OF_OTHERS) == set()


@pytest.mark.system
def test_a_server_without_data_loads_only_what_it_needs(tmp_path: Path) -> None:
    names = loaded(SERVER, str(tmp_path / "data"))
    assert {"headrace.app", "uvloop"} <= names
    assert names & OF_OTHERS == set()
