"""Whatever goes wrong in a job is told in one line, with its place and the right status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli import main
from headrace.core.errors import Corrupt
from headrace.pipeline import commands, janitor, retain
from headrace.pipeline.session import told
from headrace.pipeline.tasks import run_tasks
from support.segment_store import SegmentStore, payloads, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., tuple[int, list[str]]]

DAMAGED = [
    ("flipped", "backfill"),
    ("flipped", "compact", "--min-run", "2"),
    ("flipped", "export", "--to", "{folder}/out.jsonl"),
    ("missing", "erase"),
    ("missing", "report", "failures"),
    ("missing", "retain"),
]
ENDED = ("export", "report")
"""The others go on with what is whole, and list the rest."""


@pytest.fixture
def run(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    """A command with the session of all tests; its status and what it says went wrong."""

    @contextmanager
    def shared(*_: object) -> Iterator[SparkSession]:
        with told():
            yield spark

    monkeypatch.setattr(commands, "session", shared)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def command(*words: str) -> tuple[int, list[str]]:
        capfd.readouterr()
        status = _status(*words)
        told = capfd.readouterr()
        sys.stdout.write(told.out)
        return status, told.err.splitlines()

    return command


def _status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *words])
    return int(ended.value.code or 0)


def _fill(shelf: SegmentStore) -> Path:
    """A store that every job has something to do in; the file of its second segment."""
    shelf.plan({"a": search("w")})
    segments = [shelf.seal({"a": payloads(20), "b": payloads(5)}, tag="t") for _ in range(3)]
    shelf.mark({"a": [1, 3, 21, 25]})
    return shelf.place.data_dir / "objects" / segments[1].name


@pytest.mark.parametrize("words", DAMAGED, ids=" ".join)
def test_a_damaged_store(
    run: Run, shelf: SegmentStore, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:  # fmt: skip
    damage, *words = (word.format(folder=tmp_path) for word in words)
    path = _fill(shelf)
    if damage == "missing":
        path.unlink()
        (path.parents[1] / shelf.manifest.segments[1].index).unlink()
    else:
        raw = path.read_bytes()
        path.write_bytes(raw[:4] + bytes(byte ^ 0xFF for byte in raw[4:]))
    status, lines = run(*words, "--data-dir", str(shelf.place.data_dir))
    assert status == 1
    assert len(lines) == 1 if words[0] in ENDED else not lines
    assert path.name in "".join(lines) + capfd.readouterr().out


def _damaged(_: int) -> None:
    try:
        raise ValueError("in its depths")
    except ValueError as error:
        raise Corrupt("segments/x.parquet", 7, "not what it was") from error


def _mistaken(_: int) -> None:
    raise AssertionError((1, 2))


def _dead(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (_damaged, "segments/x.parquet, byte 7: not what it was; `headrace pipeline audit`"),
        (_mistaken, "AssertionError: (1, 2); details are in /"),
        (_dead, "a Python worker of Spark died"),
    ],
)
def test_what_workers_raise(
    run: Run, spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch,
    work: Callable[[int], None], said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(retain, "retain", lambda spark, place: run_tasks(spark, place, work, [1]))
    status, lines = run("retain", "--data-dir", str(shelf.place.data_dir))
    assert status == 1
    (line,) = lines
    assert line.startswith(f"headrace: {said}")
    if "details" in said:
        assert "in _mistaken" in Path(line.rpartition(" ")[2]).read_text()


def test_what_spark_itself_says(
    run: Run, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(spark: SparkSession, place: object) -> None:
        spark.sql("select raise_error('no\nway')").collect()

    monkeypatch.setattr(retain, "retain", ask)
    status, lines = run("retain", "--data-dir", str(shelf.place.data_dir))
    assert status == 1
    (line,) = lines
    line, _, path = line.partition("; details are in ")
    assert line == "headrace: Spark failed: [USER_RAISED_EXCEPTION] no"
    assert "way" in Path(path).read_text()


def test_a_follower_whose_manifest_is_damaged(run: Run, shelf: SegmentStore) -> None:
    _fill(shelf)
    plans = shelf.manifest.plans
    assert plans is not None
    (shelf.place.data_dir / "objects" / plans.name).unlink()
    status, lines = run("follow", "--once", "--data-dir", str(shelf.place.data_dir))
    assert status == 1
    (line,) = lines
    assert plans.name in line


def test_signals(run: Run, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        monkeypatch.setattr(janitor, "clean", lambda *_, n=number: os.kill(os.getpid(), n))
        status, lines = run("janitor", "--data-dir", str(shelf.place.data_dir))
        assert (status, lines) == (128 + number, [f"headrace: stopped by {number.name}"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--master", "spark://127.0.0.1:1"), "no Spark master answers at spark://127.0.0.1:1: "),
        (("--master", "k8s://https://127.0.0.1:1"), "no Kubernetes answers at k8s://https://127"),
        (("--master", "http://127.0.0.1"), "--master http://127.0.0.1: a master is local[2,3]"),
        (("--remote", "sc://127.0.0.1:1"), "no Spark Connect server answers at sc://127.0.0.1:1: "),
        (("--remote", "127.0.0.1"), "--remote 127.0.0.1: a Spark Connect server is sc://"),
        (
            ("--objects", "s3://bucket/there"),
            "s3://bucket/there: no credentials, AWS_ACCESS_KEY_ID ",
        ),
        (("--conf", "spark.sql.session.timeZone=CET"), "--conf spark.sql.session.timeZone: jobs "),
        (("--conf", "memory=4g"), "--conf memory=4g is not spark.something=value"),
    ],
)
def test_what_cannot_run(
    shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    assert _status("retain", "--data-dir", str(shelf.place.data_dir), *words) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"headrace: {said}")


def test_a_scratch_folder_that_cannot_be(
    shelf: SegmentStore,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _status("retain", "--data-dir", str(shelf.place.data_dir)) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "XDG_CACHE_HOME may name a folder that can be written" in line
