"""Killed at any step, a job leaves a store as good as before; the next run finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from headrace.pipeline import crash_points
from headrace.pipeline import erase as erasing
from headrace.pipeline.audit import audit
from headrace.pipeline.backfill import backfill
from headrace.pipeline.erase import erase
from headrace.pipeline.follow import follow
from headrace.pipeline.janitor import clean
from headrace.pipeline.merge import merge
from headrace.pipeline.retain import retain
from headrace.storage import leases
from support import light
from support.segment_store import SegmentStore, payloads, search

from . import driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """Stands for SIGKILL: nobody answers it."""


def _fill(shelf: SegmentStore, segments: int) -> None:
    shelf.plan({"a": search("w")})
    for _ in range(segments):
        shelf.seal({"a": payloads(4), "b": payloads(2)}, keys=["k", "l"])


@pytest.fixture(scope="module")
def indexed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], SegmentStore]:
    """So many segments, each with a build of its own; the same ones for everybody."""

    @cache
    def make(segments: int) -> SegmentStore:
        shelf = SegmentStore(tmp_path_factory.mktemp("indexed") / "data")
        _fill(shelf, segments)
        backfill(spark, shelf.place)
        return shelf

    return make


def _nothing_is_lost(
    spark: SparkSession, shelf: SegmentStore, live: dict[tuple[str, int], bytes]
) -> None:
    """The store holds the live records once, all of them indexed once, and nothing else."""
    backfill(spark, shelf.place)
    assert shelf.rows() == live
    assert shelf.indexed("a")["w"] == sorted(seq for log, seq in live if log == "a")
    numbers = [number for build in shelf.manifest.builds for number in build.segments]
    assert sorted(numbers) == sorted(shelf.manifest.numbers)
    with mock.patch.object(leases, "LEASE_S", 0):  # killed jobs took theirs along
        clean(shelf.place, grace_s=0)
    assert shelf.objects_there() == shelf.named()


POINTS = [
    ("merge", "merged"),
    ("merge", "before-publish"),
    ("erase", "before-publish:2"),
    ("erase", "published"),
    ("erase", "removed:3"),
    ("retain", "before-publish"),
]


@pytest.mark.parametrize(("job", "step"), POINTS)
def test_a_job_that_dies_at_a_step_harms_nothing(
    spark: SparkSession,
    indexed: Callable[[int], SegmentStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    step: str,
) -> None:
    shelf = indexed(9 if job == "merge" else 3).copy(tmp_path / "data")
    live = dict(shelf.all)
    if job in ("erase", "retain"):
        dead = range(1, 5) if job == "retain" else (*range(2, 4), *range(6, 8), *range(10, 12))
        ranges = [1, 4] if job == "retain" else [2, 3, 6, 7, 10, 11]
        shelf.mark({"a": ranges, "b": [1, 2]} if job == "retain" else {"a": ranges})
        live = {
            (log, seq): data for (log, seq), data in live.items() if log != "a" or seq not in dead
        }
        if job == "retain":
            live = {
                place: data for place, data in live.items() if place not in (("b", 1), ("b", 2))
            }
    jobs = {
        "merge": lambda: merge(spark, shelf.place),
        "erase": lambda: erase(spark, shelf.place, now=True),
        "retain": lambda: retain(spark, shelf.place),
    }

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGKILL)
        monkeypatch.delenv(crash_points.VARIABLE)
        raise Killed

    monkeypatch.setattr(erasing, "GROUP_OUTPUTS_MAX", 1)  # a commit for each segment
    monkeypatch.setattr(crash_points.os, "kill", kill)
    monkeypatch.setattr(crash_points, "_passed", type(crash_points._passed)())
    monkeypatch.setenv(crash_points.VARIABLE, step)
    with pytest.raises(Killed):
        jobs[job]()
    monkeypatch.undo()
    jobs[job]()
    _nothing_is_lost(spark, shelf, live)


def test_a_python_worker_is_killed(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(shelf, 3)
    marker = tmp_path / "killed"
    # Workers are started with this environment; the driver, which is us, has another.
    monkeypatch.setitem(spark.sparkContext.environment, crash_points.VARIABLE, f"task@{marker}")
    assert backfill(spark, shelf.place).problems == []
    assert marker.exists()
    _nothing_is_lost(spark, shelf, shelf.all)


# --- real processes ---


def _run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], env=light.environment(**environ), capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip


def _with_jvm(place: Path, job: list[str]) -> list[str]:
    """A driver as users start it; its JVM goes with it."""
    return ["-m", "headrace", "pipeline", *job, "--data-dir", str(place)]


def _attached(place: Path, job: list[str]) -> list[str]:
    """A driver in our JVM, where what it began may go on without it."""
    return [driver.__file__, str(place), *job]


Command = Callable[[Path, list[str]], list[str]]
DEATHS: dict[str, list[tuple[str, Command]]] = {
    "follow --once": [
        ("before-publish", _with_jvm),
        ("built", _attached),
        ("published", _attached),
    ],
    "compact --min-run 2": [
        ("rewritten", _attached),
        ("proved", _attached),
        ("before-retire", _attached),
        ("before-publish", _attached),
        ("published", _attached),
    ],
}


@pytest.mark.system
def test_drivers_are_killed_at_every_step_of_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    def kill(
        job: list[str], deaths: list[tuple[str, Command]], door: dict[str, str]
    ) -> SegmentStore:
        shelf = SegmentStore(tmp_path / job[0])
        _fill(shelf, 3)
        for step, command in deaths:
            environ = {crash_points.VARIABLE: step, **(door if command is _attached else {})}
            died = _run(command(shelf.place.data_dir, job), **environ)
            assert died.returncode == -signal.SIGKILL, died.stderr
            assert shelf.rows() == shelf.all
            # After the first commit there is nothing left to do, so give it something.
            shelf.seal({"a": payloads(3)})
        return shelf

    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        shelves = [
            pool.submit(kill, job.split(), deaths, stack.enter_context(driver.door(spark)))
            for job, deaths in DEATHS.items()
        ]
    follow(spark, shelves[0].result().place, once=True)
    for shelf in (one.result() for one in shelves):
        _nothing_is_lost(spark, shelf, shelf.all)
        assert audit(spark, shelf.place).problems == []


@pytest.mark.system
def test_a_job_that_cannot_run_says_so_in_a_sentence(tmp_path: Path) -> None:
    done = _run(_with_jvm(tmp_path, ["audit"]))
    assert done.returncode == 2
    assert done.stderr.startswith("headrace: ")
    assert len(done.stderr.splitlines()) == 1
