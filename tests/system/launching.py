"""How the system tests start the product: servers over a data directory, and command lines."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from headrace_bench.process import ServerProcess, without_settings

CLI_TIMEOUT_S = 300.0
DEADLINE_S = 120.0
POLL_S = 0.005


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
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        env=without_settings(os.environ) | dict(env or {}),
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


def wait_until(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """Look again and again, for a bounded time; what was waited for is told when it is up."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what if isinstance(what, str) else what()}")
        time.sleep(POLL_S)


def is_read_by_server(client: socket.socket) -> bool:
    """Whether the other end, on this machine, has taken every byte out of its socket."""
    ours = f"{client.getsockname()[1]:04X}"
    theirs = f"{client.getpeername()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (local[-4:], remote[-4:]) == (theirs, ours):
            return queues.split(":")[1] == "00000000"
    return False


def manifest_of(data_dir: Path) -> int:
    """The newest version of the list of segments that was published; 0 before the first."""
    return max((int(p.stem) for p in data_dir.glob("objects/manifests/*.json")), default=0)
