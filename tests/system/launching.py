"""How the system tests start the product: servers over a data directory, and command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from headrace.bench.process import ServerProcess

CLI_TIMEOUT_S = 60.0


class Servers:
    """Makes servers that are not started yet and are ended with the stack."""

    def __init__(self, data_dir: Path, stack: ExitStack) -> None:
        self._data_dir = data_dir
        self._stack = stack

    def __call__(self, data_dir: Path | None = None, **env: str) -> ServerProcess:
        server = ServerProcess(data_dir or self._data_dir, env=env)
        self._stack.push(server.__exit__)
        return server


def run_headrace(
    *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `headrace …` to its end, with no settings but the ones given."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TOPICS_", "HEADRACE_"))}
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        env=environ | dict(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=CLI_TIMEOUT_S,
        check=False,
    )


def serve_to_the_end(data_dir: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to refuse to start; take its status and what it said."""
    settings = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(data_dir)}
    return run_headrace("serve", env=settings | env)
