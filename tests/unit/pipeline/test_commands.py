"""Values on the command line of the pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headrace.pipeline import commands


def job(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return parser.parse_args(arguments)


def parsed(*arguments: str) -> argparse.Namespace:
    return job("export", "--to", "x.csv", *arguments)


def test_bounds() -> None:
    options = parsed("--from-seq", "1", "--to-seq", "0", "--to-ts", "1970-01-01T00:00:01")
    assert (options.from_seq, options.to_seq, options.to_ts) == (1, 0, 1000)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--from-seq", "0"),
        ("--from-seq=-1",),
        ("--to-seq=-1",),
        ("--to-seq", "1e3"),
        ("--to-seq", "9" * 30),
        ("--from-ts", "yesterday"),
        ("--from-ts", "9" * 30),
    ],
)
def test_what_is_no_bound(wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*wrong)
    assert ended.value.code == 2
    assert "is not a" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["-1", "nan", "inf", "soon"])
def test_what_is_no_grace(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert job("janitor", "--grace", "0.5").grace == 0.5
    with pytest.raises(SystemExit) as ended:
        job("janitor", f"--grace={wrong}")
    assert ended.value.code == 2
    assert "is not a number of seconds from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "--to", "data"), "data exists"),
        (("export", "--to", "hdfs://host/x"), "an export goes to a path, or to s3://bucket/path"),
        (("export", "--to", "x", "--log", "a*b"), "--log: a*b: * stands at the end"),
        (("export", "--to", "x", "--from-seq", "5", "--to-seq", "2"), "--from-seq 5 is after"),
        (("export", "--to", "x", "--from-ts", "5", "--to-ts", "2"), "--from-ts 5 is after"),
        (("report", "latency", "--from-ts", "5", "--to-ts", "2"), "--from-ts 5 is after"),
        (("report", "latency", "--log", "*x"), "--log: *x: * stands at the end"),
        (("report", "latency", "--chart", "a.gif"), "a chart is a file in"),
        (("report", "latency", "--chart", "no/a.png"), "there is no folder no"),
        (("report", "latency", "--to", "a.parquet"), "rows go to a file in"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    (tmp_path / "data" / "objects").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "session", None)
    assert commands.run(job(*arguments), Path("data"), None) == commands.CANNOT_RUN
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
