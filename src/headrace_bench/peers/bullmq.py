"""BullMQ, the job queue of Node on Redis: one worker process of its own empties a queue."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec

from headrace_bench.errors import BenchError
from headrace_bench.jobs import Flow
from headrace_bench.peers import npm
from headrace_bench.redis import RedisProcess

NAME = "BullMQ"
PACKAGE = "bullmq"
WANTED = ("bullmq@6", "ioredis@5")
SCRIPT = Path(__file__).with_suffix(".mjs")
TIMEOUT_S = 600.0


def is_installed() -> bool:
    return npm.is_installed(PACKAGE, "ioredis")


def format_install() -> str:
    return npm.format_install(*WANTED)


def drain(redis: RedisProcess, *, jobs: int, concurrency: int, payload: str) -> Flow:
    """Fill a queue, then measure how long one worker takes to empty it."""
    words = [npm.find_packages(), redis.port, jobs, concurrency, payload]
    done = subprocess.run(
        [npm.NODE, str(SCRIPT), *map(str, words)],
        env=os.environ | {"NODE_ENV": "production"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise BenchError(f"BullMQ failed: {done.stderr or done.stdout}")
    return msgspec.convert(msgspec.json.decode(done.stdout) | {"type": "Flow"}, Flow)
