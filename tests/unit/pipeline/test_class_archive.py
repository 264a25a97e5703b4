"""The class archive makes sessions start faster; no job waits for one that does not come."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline import session
from headrace.pipeline.java import Java
from headrace.pipeline.session import ARCHIVE_AGAIN_S, class_archive

Make = Callable[[Path], None]


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return _java(tmp_path / "one")


def _java(home: Path) -> Java:
    own = home / "lib" / "server" / "classes.jsa"
    own.parent.mkdir(parents=True)
    own.touch()
    return Java(home, "17.0.1")


def _making(monkeypatch: pytest.MonkeyPatch, make: Make) -> list[Path]:
    """Archives that somebody set out to make."""
    begun: list[Path] = []

    def run(command: list[str], **_: Any) -> None:
        begun.append(Path(command[-1]))
        make(begun[-1])

    monkeypatch.setattr(subprocess, "run", run)
    return begun


def _take_too_long(_: Path) -> None:
    raise subprocess.TimeoutExpired("archive", session.ARCHIVE_S)


def test_one_that_is_made_serves_all_later_jobs(
    java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = _making(monkeypatch, Path.touch)
    first = class_archive(java)
    assert first is not None
    assert first.exists()
    assert class_archive(java) == first
    assert len(begun) == 1


def test_one_that_took_too_long_is_not_waited_for_by_every_job(
    java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = _making(monkeypatch, _take_too_long)
    assert [class_archive(java) for _ in range(3)] == [None, None, None]
    assert len(begun) == 1
    for left in session.cache_folder().iterdir():
        then = left.stat().st_mtime - ARCHIVE_AGAIN_S - 1
        os.utime(left, (then, then))
    begun = _making(monkeypatch, Path.touch)
    assert class_archive(java) is not None
    assert len(begun) == 1


def test_jobs_that_start_meanwhile_do_without(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Java has an archive of its own, which is made at the same time."""
    other, found = _java(tmp_path / "other"), dict[str, Path | None]()
    flock = fcntl.flock

    def never_wait(file: Any, how: int) -> None:
        assert how & fcntl.LOCK_NB, "a job waits for another"
        flock(file, how)

    def make(path: Path) -> None:
        if not found:
            found["same"] = class_archive(java)
            found["other"] = class_archive(other)
        path.touch()

    monkeypatch.setattr(fcntl, "flock", never_wait)
    _making(monkeypatch, make)
    first = class_archive(java)
    assert first is not None
    assert found["same"] is None
    assert found["other"] not in (None, first)
