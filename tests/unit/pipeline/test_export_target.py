"""Targets of exports: what counts is what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.export import check_parts
from headrace.pipeline.export_files import write_part
from headrace.pipeline.export_target import BucketTarget, FolderTarget, Part, parse_target


def begun(to: Path) -> FolderTarget:
    target = parse_target(str(to), None)
    assert isinstance(target, FolderTarget)
    target.check()
    target.begin()
    return target


def test_parts_must_be_there(tmp_path: Path) -> None:
    target = begun(tmp_path / "all")
    part = write_part(target, 0, [])
    check_parts(target, [part])
    with pytest.raises(JobFailed, match=r"part-00001.parquet was written, but is not there"):
        check_parts(target, [part, Part(target.part(1), 7, 100)])
    with pytest.raises(JobFailed, match=r"has .* bytes, not 3"):
        check_parts(target, [Part(part.name, 0, 3)])
    target.abandon()
    assert [*tmp_path.iterdir()] == []


def test_a_folder_shows_when_it_is_whole(tmp_path: Path) -> None:
    target = begun(tmp_path / "some" / "where")
    part = write_part(target, 3, [])
    assert not target.path.exists()
    assert target.problem() is None
    target.publish([part])
    assert [path.name for path in target.path.iterdir()] == ["part-00003.parquet"]
    with pytest.raises(CannotRun, match="exists"):
        begun(target.path)


def test_a_part_that_failed_is_none(tmp_path: Path) -> None:
    target = begun(tmp_path / "all.csv")

    def fail() -> None:
        with target.open(target.part(0)) as path:
            path.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.sizes() == {}


def test_who_sees_another_folder_says_so(tmp_path: Path) -> None:
    target = begun(tmp_path / "all")
    other = parse_target(str(target.path), None)
    assert "do not share" in str(other.problem())


def test_names_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = parse_target("a/b.csv", None)
    assert (str(here), here.format, here.single) == (f"{tmp_path}/a/b.csv", "csv", True)
    there = parse_target("s3://bucket/a/b.jsonl", None)
    assert isinstance(there, BucketTarget)
    assert (str(there), there.part(0), there.single) == ("s3://bucket/a/b.jsonl", "b.jsonl", True)
    folder = parse_target("s3://bucket/a/", "csv")
    assert (str(folder), folder.single) == ("s3://bucket/a", False)
    assert folder.part(2).startswith("part-00002-")
    assert folder.part(2).endswith(".csv")


@pytest.mark.parametrize("to", ["s3://bucket", "s3://", "hdfs://host/path", "file:///tmp/x"])
def test_what_is_no_target(to: str) -> None:
    with pytest.raises(CannotRun, match=r"s3://bucket"):
        parse_target(to, None)
