"""A real server in a process of its own, for benchmarks and black-box tests."""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from headrace.config.declarations import SECTIONS
from headrace_bench.checkout import Checkout
from headrace_bench.daemon import Daemon

READY_TIMEOUT_S = 180.0
_PREFIXES = tuple({section.PREFIX for section in SECTIONS.values()})


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which no setting of a server is left."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


class ServerProcess(Daemon):
    """`headrace serve` on a free port over a data directory; restartable on the same data.

    It is the server of this environment, or that of another commit.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        env: dict[str, str] | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
        checkout: Checkout | None = None,
    ) -> None:
        super().__init__()
        self.data_dir = data_dir
        self.port = 0
        self._env = (checkout.environ if checkout else {}) | (env or {})
        self._python = checkout.python if checkout else sys.executable
        self._ready_timeout_s = ready_timeout_s

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def change_env(self, env: dict[str, str]) -> None:
        """Settings of the next start."""
        self._env = self._env | env

    def start(self, *, wait_ready: bool = True) -> Self:
        """Start and, unless told otherwise, wait until `/v0/ready` answers 200."""
        port_file = self.data_dir.parent / f"{self.data_dir.name}.port"
        port_file.unlink(missing_ok=True)
        environ = without_settings(os.environ) | {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            "HEADRACE_PIPELINE": "off",  # Spark only where somebody asks for it
            **self._env,
        }
        self._launch([self._python, "-m", "headrace", "serve"], environ)
        deadline = time.monotonic() + self._ready_timeout_s
        while not (port_file.exists() and (text := port_file.read_text()).endswith("\n")):
            self._pause(deadline)
        self.port = int(text)
        if wait_ready:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        deadline = time.monotonic() + self._ready_timeout_s
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/v0/ready", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503:
                        raise
            except OSError:
                pass
            self._pause(deadline)
