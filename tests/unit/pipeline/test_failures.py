"""One line is found in pages of what Spark says."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path

import pytest

from headrace.core.errors import Corrupt
from headrace.pipeline.errors import CannotRun, Damaged, JobFailed, Unexpected
from headrace.pipeline.failures import LINE_MAX, failure, failure_of
from headrace.pipeline.session import errors_in
from headrace.storage.objects import NoCredentials, StoreError
from headrace.storage.replaced_objects import Vanished

STACK = "\tat org.apache.spark.sql.Some$.thing(Some.scala:1)\n\t... 41 more\n"


def _said_by_spark(error: Exception) -> str:
    """As the driver is told what a worker raised, behind another error and before a stack."""
    try:
        try:
            raise KeyError("before")
        except KeyError as first:
            raise error from first
    except type(error):
        told = traceback.format_exc()
    return f"Job aborted due to stage failure: Task 0: PythonException: {told}\n{STACK}"


RAISED = [
    (Corrupt("segments/x", 7, "not\nwhat"), JobFailed, "segments/x, byte 7: not what; `headrace "),
    (
        StoreError("s3://b/x: AccessDenied"),
        JobFailed,
        "the object store cannot be used: s3://b/x: ",
    ),
    (NoCredentials("s3://b: no credentials"), CannotRun, "s3://b: no credentials"),
    (Vanished("segments/x"), JobFailed, "segments/x is missing from the object store, though a "),
    (FileNotFoundError("s3://b/x"), JobFailed, "s3://b/x is missing, though a manifest names it; "),
    (
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/d/objects/plans/1"),
        JobFailed,
        "/d/objects/plans/1 is missing, though a manifest names it; `headrace pipeline audit` ",
    ),
    (
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/no/folder/out.csv"),
        JobFailed,
        "/no/folder/out.csv: no such file or directory",
    ),
    (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/s/x"),
        JobFailed,
        "no space left on device ",
    ),
    (
        PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/s/x"),
        JobFailed,
        "/s/x: permission",
    ),
    (
        ModuleNotFoundError("No module named 'headrace'"),
        JobFailed,
        "Python of Spark's workers has ",
    ),
    (MemoryError(), JobFailed, "a Python worker of Spark ran out of memory"),
    (CannotRun("x exists"), CannotRun, "x exists"),
    (
        Damaged(["segments/1: gone", "segments/2: gone"]),
        JobFailed,
        "segments/1: gone; segments/2: ",
    ),
    (AssertionError((1, 2)), Unexpected, "AssertionError: (1, 2)"),
    (ZeroDivisionError(), Unexpected, "ZeroDivisionError"),
]


@pytest.mark.parametrize(("error", "kind", "line"), RAISED, ids=lambda v: type(v).__name__)
def test_it_is_the_same_here_and_in_a_worker(
    error: Exception, kind: type[JobFailed], line: str
) -> None:
    here, there = failure(error), failure_of(_said_by_spark(error))
    assert str(here).startswith(line)
    assert isinstance(here, kind)
    assert type(there) is kind
    if "\n" not in str(error):
        assert str(here) == str(there)


def _java(said: str, *causes: str) -> str:
    stack = STACK + "".join(f"Caused by: {cause}\n{STACK}" for cause in causes)
    return f"An error occurred while calling o222.collectToPython.\n: {said}\n{stack}"


READING = "org.apache.spark.SparkException: [FAILED_READ_FILE."
OF_SPARK = [
    (
        _java(
            f"{READING}NO_HINT] Encountered error while reading file file:///d/objects/s/1.parquet."
            "  SQLSTATE: KD001",
            "java.lang.RuntimeException: /d/1 is not a Parquet file",
        ),
        "/d/objects/s/1.parquet cannot be read: /d/1 is not a Parquet file; `headrace",
    ),
    (
        _java(
            f"{READING}FILE_NOT_EXIST] Encountered error while reading file file:/d/objects/1. "
            "File does not exist."
        ),
        "/d/objects/1 is missing, though a manifest names it",
    ),
    (
        "[PATH_NOT_FOUND] Path does not exist: file:/d/objects/2.parquet. SQLSTATE: 42K03",
        "/d/objects/2.parquet is missing, though a manifest names it",
    ),
    (_java("java.io.IOException: No space left on device"), "no space left on device; Spark's own"),
    (
        _java("x.Y: z", "java.lang.OutOfMemoryError: Java heap space"),
        "Spark's JVM ran out of memory",
    ),
    (
        _java("org.apache.spark.SparkException: [A.B] c: d. SQLSTATE: 42K03"),
        "Spark failed: [A.B] c: d.",
    ),
    ("", "Spark failed: nothing is known"),
]


@pytest.mark.parametrize(("text", "line"), OF_SPARK)
def test_what_the_jvm_says(text: str, line: str) -> None:
    assert str(failure_of(text)).startswith(line)
    assert "\n" not in str(failure_of(text))


def test_lines_end() -> None:
    assert len(str(failure(ValueError("x" * 10_000)))) < LINE_MAX + 50


def test_why_spark_did_not_start_is_found_in_what_it_printed(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    assert errors_in(tmp_path) == []
    log.write_text("env: 'bash': No such file or directory\n")
    assert errors_in(tmp_path) == ["env: 'bash': No such file or directory"]
    why = "org.apache.spark.SparkException: HADOOP_CONF_DIR must be set in the environment."
    log.write_text(
        f"12:00:00 ERROR SparkContext: Error initializing SparkContext.\n{why}\n{why}\n"
        "\tat org.apache.spark.deploy.SparkSubmitArguments.error(SparkSubmitArguments.scala:670)\n"
        "more\n"
    )
    assert errors_in(tmp_path) == [why]
