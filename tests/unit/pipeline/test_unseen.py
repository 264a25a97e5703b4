"""Jobs say what they do not see, in one place."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.pipeline import commands
from headrace.pipeline.errors import NotSealed
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.unseen import tell_unseen
from support.directories import boot


async def _work(root: Path, count: int, *, seal: bool) -> None:
    started = await boot(root)
    upkeep = asyncio.create_task(started.upkeep.run())
    drafts = draft([b"1"] * count)
    await started.engine.appender.append("a", drafts, owner="topics", create=LogConfig())
    if seal:
        await started.engine.seal()
    upkeep.cancel()
    await started.engine.journal.close()


def test_what_is_not_sealed_is_told(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)
    asyncio.run(_work(tmp_path, 3, seal=False))
    (note,) = tell_unseen(place)
    assert note.startswith("3 records not sealed yet, and not seen;")
    asyncio.run(_work(tmp_path, 2, seal=True))
    assert tell_unseen(place) == []
    asyncio.run(_work(tmp_path, 1, seal=False))
    assert tell_unseen(place)[0].startswith("1 record not sealed")


def test_without_the_journal_it_is_told_from_when_on(tmp_path: Path) -> None:
    asyncio.run(_work(tmp_path, 2, seal=True))
    asyncio.run(_work(tmp_path, 2, seal=False))
    (tmp_path / "server.id").unlink()  # as where only the objects are at hand
    (note,) = tell_unseen(StoreLocation(tmp_path))
    assert note.startswith("records after ")
    assert "Z may not be sealed yet" in note


def test_a_journal_that_cannot_be_read_is_no_reason_to_fail(tmp_path: Path) -> None:
    asyncio.run(_work(tmp_path, 3, seal=False))
    asyncio.run(_work(tmp_path, 3, seal=False))
    first = min((tmp_path / "journal").glob("*.log"))
    first.write_bytes(b"\xff" + first.read_bytes()[1:])
    (note,) = tell_unseen(StoreLocation(tmp_path))
    assert "cannot be told" in note


@pytest.mark.parametrize("tail", [b"", b"PAR1" + bytes(40), bytes(8) + b"PAR1"])
def test_nor_is_a_damaged_segment_without_the_journal(tmp_path: Path, tail: bytes) -> None:
    asyncio.run(_work(tmp_path, 2, seal=True))
    (tmp_path / "server.id").unlink()
    (segment,) = (tmp_path / "objects/segments").iterdir()
    segment.write_bytes(tail)
    (note,) = tell_unseen(StoreLocation(tmp_path))
    assert "cannot be told" in note
    assert segment.name in note


def test_a_log_that_may_not_be_sealed_yet_is_refused_with_what_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_work(tmp_path, 3, seal=False))
    options = argparse.Namespace(
        name="export", weight=commands.SQL, master=None, remote=None, url=None, conf=[],
        debug=False, check=lambda _: None, job=mock.Mock(side_effect=NotSealed("no log a")),
    )  # fmt: skip
    with mock.patch.object(commands, "session", return_value=nullcontext()):
        assert commands.run(options, tmp_path, None) == commands.CANNOT_RUN
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: no log a; 3 records not sealed yet, and not seen;")


@pytest.mark.parametrize(
    ("name", "once", "weight", "told"),
    [
        ("export", False, commands.SQL, True),
        ("follow", True, commands.KERNELS, True),
        ("follow", False, commands.KERNELS, False),
        ("janitor", False, None, False),
    ],
)
def test_every_job_that_reads_history_tells_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    once: bool,
    weight: object,
    told: bool,
) -> None:
    asyncio.run(_work(tmp_path, 3, seal=False))
    options = argparse.Namespace(
        name=name, once=once, weight=weight, master=None, remote=None, url=None, conf=[],
        debug=False, subject=None, check=lambda _: None, job=lambda *_: Report("", [], "done"),
    )  # fmt: skip
    with mock.patch.object(commands, "session", return_value=nullcontext()):
        assert commands.run(options, tmp_path, None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ("3 records not sealed" in lines[0], lines[-1]) == (told, "done")


def test_erasure_has_the_server_seal_and_let_go_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_work(tmp_path, 3, seal=False))

    def ask(url: str, api_key: str | None, *, retire_journal: bool) -> None:
        assert (url, api_key, retire_journal) == ("http://here", "key", True)
        asyncio.run(_work(tmp_path, 1, seal=True))

    options = argparse.Namespace(
        name="erase", weight=commands.SQL, master=None, remote=None, conf=[], debug=False,
        check=lambda _: None, url="http://here", api_key="key", subject=None,
        job=lambda *_: Report("", [], "done"),
    )  # fmt: skip
    with (
        mock.patch.object(commands, "session", return_value=nullcontext()),
        mock.patch.object(commands, "ask_to_seal", ask),
    ):
        assert commands.run(options, tmp_path, None) == 0
    assert capsys.readouterr().out == "done\n"
