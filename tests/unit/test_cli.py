from __future__ import annotations

import sys

import pytest

from headrace import cli
from headrace.surfaces.flags.permissions import TokenType


def test_a_benchmark_that_is_not_installed_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "headrace_bench", None)
    monkeypatch.delitem(sys.modules, "headrace_bench.main", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--quick", "--only", "single"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "make bench" in line


def test_tokens_can_be_made_of_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["keys", "make", "bogus", "--name", "a"])
    told = capsys.readouterr().err
    assert all(f"'{each.value}'" in told for each in TokenType)
