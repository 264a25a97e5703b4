"""The load process and its parent's end: a job goes in on stdin, a result comes out on stdout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from headrace.processes.scheduling import SHORT_NS, ask_for_turns, come_first
from headrace_bench.catchup import catch_up
from headrace_bench.changing import change
from headrace_bench.errors import BenchError
from headrace_bench.jobs import (
    Appends,
    CatchUp,
    Changes,
    Drain,
    Flood,
    Flow,
    Hints,
    Latencies,
    Listen,
    Paced,
    Poll,
    Reading,
    Tally,
    Watch,
    require_success,
)
from headrace_bench.load import append
from headrace_bench.watching import flood, listen, poll, watch
from headrace_bench.working import drain

READY = b"ready\n"

Job = Appends | CatchUp | Watch | Listen | Poll | Changes | Hints | Flood | Drain
Result = TypeVar("Result", Tally, Reading, Latencies, Flow)


def run_appends(job: Appends) -> Tally:
    """Carry out a load of appends in a process of its own; any failed request is a failure."""
    with _start(job) as process:
        return require_success(_finish(process, Tally))


def run_catch_up(job: CatchUp) -> Reading:
    with _start(job) as process:
        return _finish(process, Reading)


def run_watch(job: Watch | Poll, writer: Appends) -> Latencies:
    """Append beside the watchers, from when all of them are there."""
    with _start(job) as process:
        assert process.stdout is not None
        if process.stdout.readline() == READY:
            run_appends(writer)
        return _finish(process, Latencies)


def run_changes(job: Changes) -> Latencies:
    with _start(job) as process:
        return _finish(process, Latencies)


def run_hints(job: Hints) -> Latencies:
    with _start(job) as process:
        return _finish(process, Latencies)


def run_flow(job: Flood | Drain) -> Flow:
    with _start(job) as process:
        return _finish(process, Flow)


@contextmanager
def background_appends(job: Appends) -> Iterator[None]:
    """Keep a load running beside the body; leaving waits for its end and checks it."""
    with _start(job) as process:
        yield
        require_success(_finish(process, Tally))


@contextmanager
def background_watchers(job: Listen | Poll) -> Iterator[None]:
    """Keep watchers connected beside the body, from when all of them are there."""
    with _start(job) as process:
        assert process.stdout is not None
        if process.stdout.readline() != READY:
            _finish(process, Flow)
            raise BenchError("the watchers did not come")
        yield
        if process.poll() is not None:
            raise BenchError("the watchers did not stay")


@contextmanager
def _start(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_bench.worker"],
        # Unbuffered: a line is read of its output, the rest by another way.
        bufsize=0,
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
    job: Job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    if isinstance(job, Appends) and isinstance(job.plan, Paced):
        # A client on a machine of its own would not wait for the turns of what runs beside servers.
        ask_for_turns(0, SHORT_NS)
        come_first(0)
    sys.stdout.buffer.write(msgspec.msgpack.encode(carry_out(job)))


def carry_out(job: Job) -> Tally | Reading | Latencies | Flow:
    match job:
        case Appends():
            return append(job)
        case CatchUp():
            return catch_up(job)
        case Watch():
            return watch(job, say_ready)
        case Listen():
            return listen(job, say_ready)
        case Poll():
            return poll(job, say_ready)
        case Changes():
            return change(job)
        case Hints():
            from headrace_bench.hinting import hear  # a library that others do without

            return hear(job)
        case Flood():
            return flood(job)
        case Drain():
            return drain(job)


def say_ready() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except (BenchError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
