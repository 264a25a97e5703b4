"""Values on the command line of the pipeline."""

from __future__ import annotations

import argparse

import pytest

from headrace.pipeline import commands


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return parser.parse_args(["export", "--to", "x.csv", *arguments])


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
