"""The commands that work on a data directory without a server: inspect and verify."""

from __future__ import annotations

import errno
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from tqdm import tqdm

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.observe import start_log
from headrace.printing import count, size, table
from headrace.storage.checks.findings import Problem
from headrace.storage.directory_report import (
    DirectoryReport,
    DirectorySummary,
    Folder,
    LogRow,
    NoSuchLog,
)
from headrace.storage.disk import RealDisk
from headrace.storage.objects import StoreError
from headrace.storage.verification import Verification

_LARGEST_MAX = 10


class CommandFailed(Exception):
    """The command could not do what was asked; says why."""


# --- verify ---


def verify(root: Path, objects: str | None) -> int:
    """Check everything, print what was found; 1 when something is wrong."""
    disk = _open(root)
    _lock(disk)
    start_log("error")
    problems = notes = 0
    with tqdm(
        unit="B", unit_scale=True, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False
    ) as bar:
        try:
            verification = Verification(disk, bar.update, objects)
            work = verification.measure()
            bar.reset(total=work.size_bytes)
            for finding in verification.run():
                wrong = isinstance(finding, Problem)
                problems, notes = problems + wrong, notes + (not wrong)
                tqdm.write(str(finding) if wrong else f"note: {finding}", file=sys.stdout)
        except StoreError as error:
            raise CommandFailed(f"cannot read the object store: {error}") from None
    print(
        f"{root}: {count(problems, 'problem')}, {count(notes, 'note')} in "
        f"{count(work.journal_files, 'journal file')}, {count(work.snapshots, 'snapshot')} and "
        f"{count(work.segments, 'segment')}"
    )
    return 1 if problems else 0


def _lock(disk: RealDisk) -> None:
    """Keep servers away while we look; a directory without a lock never had one."""
    if not disk.exists(layout.LOCK):
        return
    try:
        disk.lock(layout.LOCK)
    except BlockingIOError:
        raise CommandFailed(f"{disk.root} is in use by a headrace process; stop it first") from None
    except OSError as error:
        if error.errno != errno.EROFS:  # where nothing can be written, no server is at work
            raise CommandFailed(f"cannot lock {disk.root}: {error.strerror}") from None


def _open(root: Path) -> RealDisk:
    if not root.is_dir():
        raise CommandFailed(f"{root} is not a directory; --data-dir names another")
    disk = RealDisk(root)
    if not any(map(disk.exists, (layout.JOURNAL, layout.SNAPSHOTS, layout.OBJECTS))):
        raise CommandFailed(f"{root} is not a data directory: there is no journal in it")
    return disk


# --- inspect ---


def inspect(root: Path, objects: str | None, options: Namespace) -> int:
    """Print what the directory holds, as a table or as JSON."""
    start_log("error")
    limit: int | None = options.limit or None
    with tqdm(
        total=1.0, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False,
        bar_format="{percentage:3.0f}% |{bar:20}| {elapsed}",
    ) as bar:  # fmt: skip
        disk = _open(root)
        try:
            inspection = DirectoryReport(disk, lambda share: bar.update(share - bar.n), objects)
            listing = _LISTINGS[options.what](inspection, options.log, limit)
        except NoSuchLog as unknown:
            raise CommandFailed(f'{root} holds no log "{unknown}"') from None
        except Corrupt as damage:
            raise CommandFailed(
                f"{damage}; `headrace verify` lists everything that is wrong"
            ) from None
        except OSError as error:
            raise CommandFailed(f"cannot read {root}: {error}") from None
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(listing.plain), indent=2).decode())
    else:
        print("\n".join(listing.lines))
    return 0


class Listing(NamedTuple):
    """The answer for a machine and for a reader."""

    plain: object
    lines: Sequence[str]


def _summary(inspection: DirectoryReport, log: str | None, limit: int | None) -> Listing:
    summary = inspection.summary()
    largest = sorted(inspection.logs(), key=lambda row: -row.size_bytes)[:_LARGEST_MAX]
    lines = [f"{title:<11} {text}" for title, text in _summary_lines(summary)]
    if largest:
        lines += ["", "largest logs", *_log_table(largest)]
    return Listing(summary, lines)


def _summary_lines(summary: DirectorySummary) -> list[tuple[str, str]]:
    newest = summary.snapshot_position
    first, end = summary.journal_first, summary.journal_end
    stop = "clean" if summary.clean else "not clean, or a server is at work"
    records = f"{summary.records}, {size(summary.record_bytes)}"
    return [
        ("journal", f"{_folder(summary.journal)}, positions {first} to {end}"),
        (
            "snapshots",
            f"{_folder(summary.snapshots)}"
            + (f", newest at position {newest}" if newest is not None else ""),
        ),
        ("segments", f"{_folder(summary.segments)}; companions {_folder(summary.companions)}"),
        ("manifest", f"version {summary.manifest_version}, sealed to {summary.sealed_to}"),
        (
            "indexes",
            f"{count(summary.builds, 'build')}; plans of generation {summary.plans}, "
            f"marks of generation {summary.marks}",
        ),
        ("last stop", stop),
        ("logs", str(summary.logs)),
        ("records", records),
    ]


def _logs(inspection: DirectoryReport, log: str | None, limit: int | None) -> Listing:
    rows = inspection.logs(log)
    shown = rows[:limit]
    return Listing(shown, [*_log_table(shown), *_more(len(rows) - len(shown), "logs")])


def _log_table(rows: Sequence[LogRow]) -> list[str]:
    return table(
        "name id owner class head earliest count bytes extents",
        [msgspec.structs.astuple(row) for row in rows],
    )


def _segments(inspection: DirectoryReport, log: str | None, limit: int | None) -> Listing:
    rows = inspection.segments(log)
    shown = rows[-limit:] if limit else rows
    lines = table(
        "number rows logs row_groups record_bytes file_bytes journal_start journal_stop sources",
        [msgspec.structs.astuple(row) for row in shown],
    )
    return Listing(shown, [*lines, *_more(len(rows) - len(shown), "older segments")])


def _journal(inspection: DirectoryReport, log: str | None, limit: int | None) -> Listing:
    rows, count = inspection.journal(log, limit)
    lines = table("position kind log bytes meaning", [msgspec.structs.astuple(r) for r in rows])
    return Listing(rows, [*lines, *_more(count - len(rows), "older frames")])


_LISTINGS = {"summary": _summary, "logs": _logs, "segments": _segments, "journal": _journal}


def _more(count: int, what: str) -> list[str]:
    return [f"… and {count} {what}; --limit 0 shows all"] if count else []


def _folder(folder: Folder) -> str:
    return f"{count(folder.files, 'file')}, {size(folder.size_bytes)}"
