"""The commands of docs/PIPELINE.md, as pasted beside `data`; those of others are understood."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import cli
from headrace.client.http import Sealed
from headrace.formats import layout
from headrace.pipeline import commands, follow
from headrace.pipeline.maintenance import run as maintenance
from support.pasted import ROOT, blocks, run
from support.segment_store import SegmentStore, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "docs/PIPELINE.md"


def jobs(page: str) -> Iterator[list[str]]:
    """The arguments of every `headrace pipeline …`."""
    for block in (text for language, text in blocks(page) if language == "sh"):
        for line in re.findall(r"^(?:\.venv/bin/)?headrace (pipeline .*)", block, re.MULTILINE):
            yield shlex.split(line, comments=True)


@pytest.mark.parametrize("page", ["README.md", PIPELINE])
def test_the_commands_of_the_documents_are_understood(page: str) -> None:
    understood = [cli._parser().parse_args(arguments) for arguments in jobs(page)]
    assert {"erase", "audit", "export", "report"} <= {options.name for options in understood}


def test_the_commands_of_the_pipeline_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shelf = SegmentStore(tmp_path / "data")
    shelf.plan({"web": search("w")})
    requests = [{"timestamp": f"2026-02-12T12:0{n}:10Z", "duration": n} for n in range(5)]
    shelf.seal({"web": [json.dumps(request).encode() for request in requests],
                "orders": [b'{"total":%d}' % total for total in (20, 35)]})  # fmt: skip
    shelf.mark({"web": [1, 1]})
    (tmp_path / "data" / layout.SIGNING_KEY).write_text("00" * 32)

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(commands, "session", session)
    monkeypatch.setattr(maintenance, "session", session)
    monkeypatch.setattr(commands, "ask_to_seal", lambda *_, **__: Sealed(2, 1, 4))
    monkeypatch.setattr(follow, "stop_on_signals", lambda _: None)
    monkeypatch.chdir(tmp_path)
    names = []
    for arguments in jobs(PIPELINE):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0, f"{arguments} {capfd.readouterr()}"
        names.append(arguments[1])
    said = capfd.readouterr().out
    assert "1 dead record left 1 segment" in said
    assert "0 problems" in said
    assert "orders.jsonl: 2 records" in said
    orders = [json.loads(line) for line in Path("orders.jsonl").read_text().splitlines()]
    assert [order["data"]["total"] for order in orders] == [20, 35]
    assert "<td>web</td>" in Path("latency.html").read_text()
    known = re.findall(r"^\| `(\w+)` \|", (ROOT / PIPELINE).read_text(), re.MULTILINE)
    assert {*names} == {*known[: known.index("certificate") + 1]}  # every job has an example
    for program in (text for language, text in blocks(PIPELINE) if language == "python"):
        run(program, PIPELINE, {})
        assert "35" in capfd.readouterr().out
