from __future__ import annotations

import sys

import pytest

from headrace import cli


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
