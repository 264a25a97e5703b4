"""Prisma Streams, on Bun: SQLite with a sync for each group of appends, segments beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from headrace_bench.daemon import Daemon
from headrace_bench.link import answers
from headrace_bench.peers import npm
from headrace_bench.redis import find_free_port

NAME = "Prisma"
NAME_WIDE = "Prisma, gate 256"
PACKAGE = "@prisma/streams-server"
BUN = "bun"
WANTED = ("bun@1.3.6", f"{PACKAGE}@0.1.11")
WIDE_GATE = 256
"""By default it lets two appends in at a time, which wait for a timer together."""
PREFIX = "/v1/stream/"
READY_TIMEOUT_S = 30.0


def is_installed() -> bool:
    return npm.is_installed(PACKAGE, BUN)


def format_install() -> str:
    return npm.format_install(*WANTED)


class PrismaProcess(Daemon):
    """A server over a folder, which also plays the object store."""

    def __init__(
        self,
        folder: Path,
        *,
        ingest_gate: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._ingest_gate = ingest_gate
        self._env = env or {}
        self.port = 0

    def start(self) -> Self:
        self.port = find_free_port()
        modules = npm.find_packages() / "node_modules"
        environ = os.environ | {
            "NODE_ENV": "production",
            "DS_HOST": "127.0.0.1",
            "PORT": str(self.port),
            "DS_ROOT": str(self._folder / "data"),
            **self._env,
        }
        if self._ingest_gate is not None:
            environ["DS_INGEST_CONCURRENCY"] = str(self._ingest_gate)
        server = modules / PACKAGE / "src" / "server.ts"
        bun = modules / ".bin" / BUN
        self._launch([str(bun), str(server), "--object-store", "local", "--no-auth"], environ)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not answers(self.port):
            self._pause(deadline)
        return self
