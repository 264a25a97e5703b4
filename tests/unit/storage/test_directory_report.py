"""Inspection: what a directory holds, read without leaving a trace."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from headrace.core.config import LogConfig
from headrace.core.entry import (
    KINDS,
    Append,
    Claim,
    Configure,
    Create,
    Delay,
    Delete,
    Drop,
    Entry,
    Extend,
    LoseAtRestart,
    Refer,
    Release,
    Reserve,
    Start,
    Stop,
    Trim,
)
from headrace.core.errors import Corrupt
from headrace.core.record import block, draft
from headrace.storage.directory_report import DirectoryReport, NoSuchLog
from headrace.storage.disk import RealDisk
from headrace.storage.readonly import ReadOnlyDisk
from support import directories


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directories.build(tmp_path_factory.mktemp("clean") / "data")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))


@pytest.fixture
def inspection(pristine: Path) -> DirectoryReport:
    return DirectoryReport(RealDisk(pristine))


def test_looking_changes_nothing(pristine: Path) -> None:
    before = directories.fingerprint(pristine)
    inspection = DirectoryReport(RealDisk(pristine))
    inspection.summary()
    inspection.logs()
    inspection.segments()
    inspection.journal(None, None)
    assert directories.fingerprint(pristine) == before


def test_the_summary_adds_up(inspection: DirectoryReport, pristine: Path) -> None:
    summary = inspection.summary()
    rows = inspection.logs()
    newest = max(int(path.stem) for path in pristine.glob("snapshots/*"))
    assert summary.clean
    assert (summary.journal.files, summary.snapshots.files, summary.segments.files) == (6, 2, 4)
    behind = summary.journal_end - summary.journal_first
    assert summary.journal.size_bytes >= behind  # some of it is blank
    assert summary.journal_first < summary.sealed_to  # the older snapshot needs that much more
    assert summary.snapshot_position == newest
    newest_manifest = max(path.stem for path in pristine.glob("objects/manifests/*"))
    assert summary.manifest_version == int(newest_manifest)
    assert (summary.plans, summary.marks, summary.builds) == (0, 1, 0)
    assert summary.logs == len(rows) == len(directories.LOGS)
    assert summary.records == sum(row.count for row in rows)
    assert summary.record_bytes == sum(row.size_bytes for row in rows)


def test_logs_are_what_a_server_would_start_with(inspection: DirectoryReport) -> None:
    rows = {row.name: row for row in inspection.logs()}
    assert list(rows) == sorted(directories.LOGS)
    capped, passing = rows["capped"], rows["passing"]
    assert (capped.count, capped.earliest) == (12, capped.head - 11)
    assert (passing.durability, passing.count, passing.earliest) == (
        "ephemeral", 0, passing.head + 1,
    )  # fmt: skip
    assert rows["plain"].earliest == 6
    assert rows["plain"].extents == 4
    assert inspection.logs("plain") == [rows["plain"]]


def test_segments_cover_the_sealed_journal(inspection: DirectoryReport) -> None:
    rows = inspection.segments()
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert [row.journal_start for row in rows[1:]] == [row.journal_stop for row in rows[:-1]]
    assert all(row.row_groups > 1 and row.logs == 4 for row in rows)


def test_segments_of_one_log(inspection: DirectoryReport) -> None:
    assert len(inspection.segments("synced")) == 4
    assert [row.number for row in inspection.segments("capped")] == [4]
    assert inspection.segments("passing") == []


def test_frames_lie_side_by_side(inspection: DirectoryReport) -> None:
    rows, count = inspection.journal(None, None)
    assert count == len(rows)
    ends = [row.position + row.size_bytes for row in rows]
    assert [row.position for row in rows[1:]] == ends[:-1]
    assert (rows[-1].kind, ends[-1]) == ("stop", inspection.summary().journal_end)


def test_the_newest_frames_of_one_log(inspection: DirectoryReport) -> None:
    everything, _ = inspection.journal(None, None)
    rows, count = inspection.journal("capped", 2)
    of_log = [row for row in everything if row.log == "capped"]
    assert count == len(of_log) > 2
    assert rows == of_log[-2:]


def test_a_log_that_is_not_there_is_told(inspection: DirectoryReport) -> None:
    for look in (inspection.logs, inspection.segments, lambda name: inspection.journal(name, 1)):
        with pytest.raises(NoSuchLog):
            look("nobody")


def test_a_torn_tail_is_shown(root: Path) -> None:
    newest = sorted(root.glob("journal/*"))[-1]
    directories.replace(newest, directories.content_of(newest)[:-3])
    rows, _ = DirectoryReport(RealDisk(root)).journal(None, 1)
    assert rows[0].kind == "torn"
    assert not DirectoryReport(RealDisk(root)).summary().clean


def test_damage_is_shown_and_not_passed_over(root: Path) -> None:
    needed = sorted(root.glob("journal/*"))[-2]
    directories.flip(needed, len(directories.content_of(needed)) // 2)
    rows, _ = DirectoryReport(RealDisk(root)).journal(None, None)
    (damaged,) = [row for row in rows if row.kind == "damaged"]
    assert needed.name in damaged.meaning
    with pytest.raises(Corrupt, match=needed.name):
        DirectoryReport(RealDisk(root)).logs()


def test_a_directory_in_use_can_be_looked_at(root: Path) -> None:
    async def look_while_running() -> int:
        started = await directories.boot(root)
        await started.engine.appender.append("plain", draft([b"1"]), owner="topics", create=None)
        head = DirectoryReport(RealDisk(root)).logs("plain")[0].head
        await started.engine.journal.close()
        return head - started.engine.live("plain").log.head

    assert asyncio.run(look_while_running()) == 0


def test_an_empty_directory_is_empty(tmp_path: Path) -> None:
    inspection = DirectoryReport(RealDisk(tmp_path))
    assert inspection.summary().logs == 0
    assert (inspection.logs(), inspection.segments()) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_disk_refuses_every_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    disk = ReadOnlyDisk(RealDisk(tmp_path))
    for change in (
        lambda: disk.write("new", (b"",)),
        lambda: disk.create_append("new"),
        lambda: disk.rename("file", "new"),
        lambda: disk.link("file", "new"),
        lambda: disk.remove("file"),
        lambda: disk.lock("LOCK"),
    ):
        with pytest.raises(PermissionError):
            change()
    disk.make_folder("folder")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert disk.read("file") == b"content"
    assert disk.list("folder") == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Create(7, "x", "topics", LogConfig(), 0, 8), ["log 7", "topics", "disk"]),
        (Configure(7, LogConfig(ttl_ms=5), 3), ['"ttl_ms":5', "head 3"]),
        (
            Append(7, block(draft([b"1", b"22"]), 4, 9), "k\n"),
            ["seqs 4 to 5", "35 bytes", '"k\\n"'],
        ),
        (
            Append(7, block(draft([b"1"]), 4, 9), None, Trim(7, 3, 0, 1, 17)),
            ["floor 3", "capacity"],
        ),
        (Delete(7, [1, 2, 5, 5, 7, 7, 9, 9], 5, 90), ["5 records", "1 to 2", "1 ranges more"]),
        (Trim(7, 0, 4, 2, 40), ["floor 4 for age", "2 records"]),
        (Reserve(7, 99), ["99"]),
        (LoseAtRestart(7, [3, 4], 9, 40), ["seqs 3 to 4", "head 9"]),
        (Drop(7), ["gone"]),
        (Start(0, "boot-1"), ["boot-1"]),
        (Stop(), ["good order"]),
        (Delete(7, [1, 2], 2, 34, 2), ["2 as dead letters", "1 to 2"]),
        (Claim(7, "w\n", 5, 9, 255, [1, 2, 4]), ["1 to 2, 4 to 4", '"w\\n"', "until 9", "ff"]),
        (Release(7, [3], 0), ["3 to 3", "at once"]),
        (Release(7, [3], 80), ["3 to 3", "from 80 on"]),
        (Extend(7, [3, 4], 99), ["3 to 4", "until 99"]),
        (Delay(7, [5, 9], 99), ["5 to 9", "before 99"]),
        (
            Refer(7, 9, 3, 4, b"a" * 64, [17, 18], b"a" * 96, b"b" * 32),
            ["log 9", "3 contents", "2 of them new", "1 no more", "from version 3 on"],
        ),
        (Refer(7, 9, 0, released=b"b" * 64), ["2 no more", "nothing is held"]),
    ],
)
def test_what_entries_mean(entry: Entry, words: list[str]) -> None:
    meaning = entry.describe()
    assert "\n" not in meaning
    assert [word for word in words if word not in meaning] == []


def test_what_entries_are_called() -> None:
    assert [kind.title() for kind in (Append, LoseAtRestart)] == ["append", "lose-at-restart"]
    assert len({kind.title() for kind in KINDS.values()}) == len(KINDS)


# --- the command ---


def run(*argv: str) -> int:
    return directories.run_command("inspect", *argv)


def test_tables_are_aligned(pristine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("logs", "--data-dir", str(pristine)) == 0
    titles, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(titles.split()) == "name id owner class head earliest count bytes extents"
    assert len({len(line) for line in (titles, *lines)}) == 1


def test_the_limit_is_told(pristine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("logs", "--data-dir", str(pristine), "--limit", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "3 logs" in lines[-1]


@pytest.mark.parametrize("what", ["summary", "logs", "segments", "journal"])
def test_json_for_programs(what: str, pristine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(what, "--data-dir", str(pristine), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["logs"] == 5 if what == "summary" else answer


def test_the_summary_comes_by_default(pristine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--data-dir", str(pristine)) == 0
    out = capsys.readouterr().out
    assert "last stop   clean" in out
    assert "synced" in out


@pytest.mark.parametrize(
    "argv", [["--data-dir", "nowhere"], ["logs", "--log", "nobody"], ["logs", "--limit", "-1"]]
)
def test_what_cannot_be_done_is_told(
    argv: list[str], pristine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if "--data-dir" in argv else ["--data-dir", str(pristine)]
    assert run(*argv, *where) == 2
    assert argv[-1] in capsys.readouterr().err


def test_the_setting_names_the_directory(
    pristine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPICS_DATA_DIR", str(pristine))
    assert run("logs", "--log", "plain") == 0
    assert "plain" in capsys.readouterr().out
