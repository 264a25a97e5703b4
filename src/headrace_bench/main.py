"""`headrace bench`: run scenarios, print a table, write JSON, leave nothing behind."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec

from headrace_bench import against, redis, wrk
from headrace_bench.arena import FULL, QUICK, Arena
from headrace_bench.checkout import check_out
from headrace_bench.errors import BenchError
from headrace_bench.peers import bullmq, durable_streams, nchan, npm, prisma
from headrace_bench.progress import Progress
from headrace_bench.report import Failure, Report, encode_report, format_table
from headrace_bench.scenarios import feeds, flags, notifications, pipeline, search
from headrace_bench.scenarios.catalog import DEFAULT, Scenario
from headrace_bench.scenarios.extras import large_log, many_topics
from headrace_bench.scenarios.manystreams import many_streams

EXTRAS = ("many-topics", "many-streams", "large-log")
"""Scenarios that run on request only."""
PIPELINE: dict[str, Scenario] = {
    "pipeline-index": pipeline.index,
    "pipeline-scan": pipeline.scan,
    "pipeline-beside": pipeline.beside,
}
SEARCH: dict[str, Scenario] = {"search": search.search}
NOTIFICATIONS: dict[str, Scenario] = {**notifications.SCENARIOS}
FLAGS: dict[str, Scenario] = {**flags.SCENARIOS}
FEEDS: dict[str, Scenario] = {**feeds.SCENARIOS}
GROUPS = {
    "pipeline": PIPELINE, "search": SEARCH, "notifications": NOTIFICATIONS, "flags": FLAGS,
    "feeds": FEEDS,
}  # fmt: skip
"""Those of `headrace bench GROUP`: all but flags and feeds need Spark, if only for indexes."""
LARGE_LOG_GB = 10.0
INTERRUPTED = 130
LOAD_MAX = 0.5
NO_REDIS = """\
{missing} not found, so Headrace is measured alone and there are no ratios.
To compare, install Redis: `apt-get install redis-server` on Debian and Ubuntu,
`dnf install redis` on Fedora, `brew install redis` on macOS."""


def main(words: Sequence[str]) -> int:
    """Run the benchmark that the words of a command line ask for. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="headrace bench")
    add_arguments(parser)
    options = parser.parse_args(words)
    if options.against and (here := choose_scenarios(options).keys() & PIPELINE.keys()):
        parser.error(f"--against measures servers, not this environment: {', '.join(sorted(here))}")
    return run(options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure a server of its own against others on this machine, in turns, and report ratios. "
        "Everything it starts is ended and everything it writes but the JSON is removed."
    )
    parser.add_argument(
        "group",
        nargs="?",
        choices=[*GROUPS],
        help="pipeline: Spark instead of the server; search: answers from the indexes it makes; "
        "notifications: beside topics, and replayed (packages of the extra `spark`); "
        "flags: changes of manifests beside topics; "
        "feeds: every way to their consumers (extra `grpc`)",
    )
    names = (*DEFAULT, *EXTRAS, *PIPELINE, *SEARCH, *NOTIFICATIONS, *FLAGS, *FEEDS)
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"run only this scenario (repeatable): {', '.join(names)}",
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="measure the server of this commit instead of Redis and others, in turns",
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes and shorter windows")
    parser.add_argument(
        "--json",
        type=Path,
        default=Path("bench-results.json"),
        metavar="PATH",
        help="where the results go, every round of them (default: %(default)s)",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="the file system to measure on; memory file systems make fsync free (default: here)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a reach is missed, too"
    )
    parser.add_argument(
        "--many-topics", action="store_true", help="also 100,000 topics of 10 records"
    )
    parser.add_argument(
        "--many-streams", action="store_true", help="also 1,000,000 streams with nothing in them"
    )
    parser.add_argument(
        "--large-log",
        type=float,
        metavar="GB",
        help=f"also a log of this size, read from its start ({LARGE_LOG_GB:g} with --only)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the benchmark. Returns the exit status."""
    missing = redis.find_missing()
    if missing and not options.against:
        print(NO_REDIS.format(missing=" and ".join(missing)), file=sys.stderr)
    load_before = os.getloadavg()[0]
    if load_before > LOAD_MAX:
        print(f"The machine is busy (load {load_before:.1f}): expect noise.", file=sys.stderr)
    scenarios = choose_scenarios(options)
    if "wrk" in scenarios and not wrk.is_installed():
        print(wrk.MISSING, file=sys.stderr)
    sizes = QUICK if options.quick else FULL
    machine = describe_machine(not missing) | {"load_before": f"{load_before:.2f}"}
    report = Report(machine, msgspec.to_builtins(sizes), [], [])
    interrupted = False
    try:
        with (
            terminate_as_interrupt(),
            tempfile.TemporaryDirectory(prefix=".headrace-bench-", dir=options.dir) as directory,
            Progress(len(scenarios)) as progress,
            ExitStack() as stack,
        ):
            if options.against:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()), "checkout")
                checkout = stack.enter_context(check_out(options.against, folder))
                machine["against"] = checkout.commit
                scenarios = {
                    name: partial(against.compare, scenario=scenario, checkout=checkout)
                    for name, scenario in scenarios.items()
                }
            arena = Arena(Path(directory).resolve(), sizes, not missing, progress.say)
            run_scenarios(scenarios, arena, progress, report)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; everything is cleaned up", file=sys.stderr)
    except BenchError as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 2
    options.json.write_bytes(encode_report(report))
    show(report, options.json)
    if interrupted:
        return INTERRUPTED
    return 1 if report.failures or (options.strict and report.missed()) else 0


def choose_scenarios(options: argparse.Namespace) -> dict[str, Scenario]:
    """The default scenarios or those of `--only`, then the extra ones that were asked for."""
    names = list(options.only or GROUPS.get(options.group, DEFAULT))
    wanted = (options.many_topics, options.many_streams, options.large_log is not None)
    names += [name for name, is_wanted in zip(EXTRAS, wanted, strict=True) if is_wanted]
    known: dict[str, Scenario] = {
        **DEFAULT,
        **PIPELINE,
        **SEARCH,
        **NOTIFICATIONS,
        **FLAGS,
        **FEEDS,
        "many-topics": many_topics,
        "many-streams": many_streams,
        "large-log": partial(large_log, size_gb=options.large_log or LARGE_LOG_GB),
    }
    return {name: known[name] for name in dict.fromkeys(names)}


def run_scenarios(
    scenarios: dict[str, Scenario], arena: Arena, progress: Progress, report: Report
) -> None:
    """Every scenario gets its chance; one that fails costs only what it had not measured yet.

    Each row is in the report as soon as it is known, so that who interrupts loses nothing.
    """
    for name, scenario in scenarios.items():
        progress.begin(name)
        try:
            for row in scenario(arena):
                report.rows.append(row)
        except (BenchError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            notes = getattr(error, "__notes__", [])
            message = "\n".join([f"{type(error).__name__}: {error}", *notes])
            report.failures.append(Failure(name, message))
        progress.end()


def show(report: Report, json_path: Path) -> None:
    if report.rows:
        print(format_table(report.rows))
        print(f"\nMedian of the rounds, their range in brackets; every round is in {json_path}.")
    for row in report.missed():
        print(f"missed: {row.what}")
    for failure in report.failures:
        print(f"FAILED: {failure.scenario}: {failure.message}", file=sys.stderr)


def describe_machine(with_redis: bool) -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "redis": redis.read_version() if with_redis else "not installed",
        "nchan": nchan.describe(),
        durable_streams.PACKAGE: npm.describe(durable_streams.PACKAGE),
        prisma.PACKAGE: npm.describe(prisma.PACKAGE),
        bullmq.PACKAGE: npm.describe(bullmq.PACKAGE),
    }


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM clean up the way Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
