"""The Node server of Durable Streams over files: the server a user would run instead."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Self

from headrace_bench.daemon import Daemon
from headrace_bench.peers import npm

NAME = "Node"
PACKAGE = "@durable-streams/server"
WANTED = f"{PACKAGE}@0.3"
SCRIPT = Path(__file__).with_suffix(".mjs")
PREFIX = "/"
READY_TIMEOUT_S = 30.0


def is_installed() -> bool:
    return npm.is_installed(PACKAGE)


def format_install() -> str:
    return npm.format_install(WANTED)


class DurableStreamsProcess(Daemon):
    """A server over a folder, which syncs every append before anybody sees it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.port = 0

    def start(self) -> Self:
        port_file = self._folder / "port"
        port_file.unlink(missing_ok=True)
        self._launch(
            [
                npm.NODE,
                str(SCRIPT),
                str(npm.find_packages()),
                str(self._folder / "data"),
                str(port_file),
            ],
            os.environ | {"NODE_ENV": "production"},
        )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not port_file.exists():
            self._pause(deadline)
        self.port = int(port_file.read_text())
        return self
