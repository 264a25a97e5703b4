"""Redis, the other side of every ratio: its server, and its own benchmark client."""

from __future__ import annotations

import csv
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Literal, Self

from headrace_bench.daemon import Daemon
from headrace_bench.errors import BenchError
from headrace_bench.link import connect
from headrace_bench.wire import STREAM_FIELD, format_command

SERVER = "redis-server"
BENCHMARK = "redis-benchmark"
INSTALL = "apt-get install redis-server"
READY_TIMEOUT_S = 120.0
REWRITE_TIMEOUT_S = 120.0
WARMUP_SINGLES = 200
WARMUP_BATCHES = 20

Fsync = Literal["always", "everysec"]


def find_missing() -> list[str]:
    """The Redis programs that are not installed."""
    return [program for program in (SERVER, BENCHMARK) if shutil.which(program) is None]


def read_version() -> str:
    return subprocess.run(
        [SERVER, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()


class RedisProcess(Daemon):
    """A Redis with an append-only file in a directory of its own; restartable on the same data.

    It rewrites that file when it has doubled, as it does out of the box: that is its upkeep, as
    sealing is ours. Without `rewrites` it does so only when told to.
    """

    def __init__(self, data_dir: Path, *, fsync: Fsync, rewrites: bool = True) -> None:
        super().__init__()
        self.data_dir = data_dir
        self.fsync = fsync
        self.rewrites = rewrites
        self.port = 0

    def start(self) -> Self:
        """Start and wait until the data is loaded: before that, every command is refused."""
        self.data_dir.mkdir(exist_ok=True)
        self.port = find_free_port()
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "protected-mode": "yes",
            "dir": str(self.data_dir),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.fsync,
            "auto-aof-rewrite-percentage": "100" if self.rewrites else "0",
            "auto-aof-rewrite-min-size": "64mb",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._launch([SERVER, *words])
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            self._pause(deadline)
        return self

    def ask(self, *words: str) -> str:
        """The answer to one command that is answered by a status, a number or a text."""
        with connect(self.port) as link:
            link.sendall(format_command(*(word.encode() for word in words)))
            with link.makefile("rb") as answer:
                line = answer.readline().decode().rstrip("\r\n")
                match line[:1]:
                    case "$":
                        return answer.read(int(line[1:])).decode()
                    case "+" | ":":
                        return line[1:]
                    case _:
                        raise BenchError(f"Redis answered {words[0]} with {line!r}")

    def rewrite(self) -> None:
        """Rewrite the append-only file into its compact form and wait until that is done."""
        self.ask("BGREWRITEAOF")
        deadline = time.monotonic() + REWRITE_TIMEOUT_S
        while "aof_rewrite_in_progress:0" not in self.ask("INFO", "persistence"):
            self._pause(deadline)

    def append_rate(
        self, connections: int, payload: str, *, pipeline: int, window_s: float
    ) -> float:
        """XADDs a second by redis-benchmark, measured for about `window_s`, into a fresh stream."""
        # It takes a count, not a time: a short run warms up and tells how many fill the window.
        short = connections * pipeline * (WARMUP_BATCHES if pipeline > 1 else WARMUP_SINGLES)
        rate = self._benchmark(connections, payload, pipeline, short)
        return self._benchmark(connections, payload, pipeline, round(rate * window_s))

    def _benchmark(self, connections: int, payload: str, pipeline: int, count: int) -> float:
        self.ask("UNLINK", "bench")
        command = [BENCHMARK, "-p", str(self.port), "-c", str(connections), "-n", str(count)]
        command += ["-P", str(pipeline), "--csv"]
        command += ["XADD", "bench", "*", STREAM_FIELD.decode(), payload]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"{BENCHMARK} failed: {done.stderr or done.stdout}")
        stored = int(self.ask("XLEN", "bench"))
        if stored < count:
            raise BenchError(f"{BENCHMARK} sent {count} XADDs but Redis stored {stored}")
        return parse_rate(done.stdout)

    def _answers(self) -> bool:
        try:
            self.ask("DBSIZE")
        except (BenchError, OSError):
            return False
        return True


def parse_rate(output: str) -> float:
    """The requests a second in the `--csv` output of redis-benchmark."""
    rows = list(csv.DictReader(output.splitlines()))
    if len(rows) != 1 or "rps" not in rows[0]:
        raise BenchError(f"{BENCHMARK} printed something unexpected: {output!r}")
    return float(rows[0]["rps"])


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
