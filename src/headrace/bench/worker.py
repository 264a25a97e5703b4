"""The load process and its parent's end: a job goes in on stdin, a result comes out on stdout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from headrace.bench.catchup import catch_up
from headrace.bench.errors import BenchError
from headrace.bench.jobs import Appends, CatchUp, Reading, Tally, require_success
from headrace.bench.load import append

Result = TypeVar("Result", Tally, Reading)


def run_appends(job: Appends) -> Tally:
    """Carry out a load of appends in a process of its own; any failed request is a failure."""
    with _start(job) as process:
        return require_success(_finish(process, Tally))


def run_catch_up(job: CatchUp) -> Reading:
    with _start(job) as process:
        return _finish(process, Reading)


@contextmanager
def background_appends(job: Appends) -> Iterator[None]:
    """Keep a load running beside the body; leaving waits for its end and checks it."""
    with _start(job) as process:
        yield
        require_success(_finish(process, Tally))


@contextmanager
def _start(job: Appends | CatchUp) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdin is not None
            process.stdin.write(msgspec.msgpack.encode(job))
            process.stdin.close()
            process.stdin = None
            yield process
        finally:
            process.kill()


def _finish(process: subprocess.Popen[bytes], kind: type[Result]) -> Result:
    output, complaint = process.communicate()
    if process.returncode:
        raise BenchError(f"the load generator failed: {complaint.decode(errors='replace')}")
    return msgspec.msgpack.decode(output, type=kind)


def main() -> None:
    job: Appends | CatchUp = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Appends | CatchUp)
    result = append(job) if isinstance(job, Appends) else catch_up(job)
    sys.stdout.buffer.write(msgspec.msgpack.encode(result))


if __name__ == "__main__":
    try:
        main()
    except (BenchError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
