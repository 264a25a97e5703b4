"""Targets of exports: what counts is what is there."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.export import check_parts
from headrace.pipeline.export_files import write_part
from headrace.pipeline.export_target import BucketTarget, ExportPart, FolderTarget, parse_target
from headrace.storage.objects import Listed


def begun(to: Path) -> FolderTarget:
    target = parse_target(str(to), None)
    assert isinstance(target, FolderTarget)
    target.check()
    with target.begin():
        return target


def test_parts_must_be_there(tmp_path: Path) -> None:
    target = begun(tmp_path / "all")
    part = write_part(target, 0, [])
    check_parts(target, [part])
    with pytest.raises(JobFailed, match=r"part-00001.parquet was written, but is not there"):
        check_parts(target, [part, ExportPart(target.part(1), 7, 100)])
    with pytest.raises(JobFailed, match=r"has .* bytes, not 3"):
        check_parts(target, [ExportPart(part.name, 0, 3)])
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
    assert (str(there), there.single) == ("s3://bucket/a/b.jsonl", True)
    folder = parse_target("s3://bucket/a/", "csv")
    assert (str(folder), folder.single) == ("s3://bucket/a", False)
    assert folder.part(2).startswith("part-00002-")
    assert folder.part(2).endswith(".csv")


@pytest.mark.parametrize("to", ["s3://bucket", "s3://", "hdfs://host/path", "file:///tmp/x"])
def test_what_is_no_target(to: str) -> None:
    with pytest.raises(CannotRun, match=r"s3://bucket"):
        parse_target(to, None)


def test_another_export_keeps_off_until_the_first_has_ended(tmp_path: Path) -> None:
    first = parse_target(str(tmp_path / "all"), None)
    with first.begin():
        part = write_part(first, 0, [])
        check_parts(first, [part])
        with pytest.raises(CannotRun, match="another export writes to"):
            begun(tmp_path / "all")
        check_parts(first, [part])
    # As if it was killed: what it left is in nobody's way, and is not taken for whole.
    second = begun(tmp_path / "all")
    assert second.sizes() == {}
    assert first.problem() is not None, "a task that outlived its driver"
    second.publish([write_part(second, 1, [])])
    assert [path.name for path in tmp_path.iterdir()] == ["all"]
    assert [path.name for path in second.path.iterdir()] == ["part-00001.parquet"]


@pytest.mark.parametrize("name", ["all", "all.csv"])
def test_what_came_to_be_there_meanwhile_stays(tmp_path: Path, name: str) -> None:
    target = begun(tmp_path / name)
    part = write_part(target, 0, [])
    target.path.touch()
    with pytest.raises(JobFailed, match="somebody else"):
        target.publish([part])
    target.abandon()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert target.path.read_bytes() == b""


class _Bucket(dict[str, bytes]):
    """As much of a bucket as a single object needs."""

    def look(self, name: str) -> Listed | None:
        return Listed(name, len(self[name]), 0) if name in self else None

    def put_file(self, name: str, path: Path) -> None:
        self[name] = path.read_bytes()

    def open(self, name: str) -> pa.NativeFile:
        return pa.BufferReader(self[name])

    def remove(self, name: str) -> None:
        self.pop(name, None)


def test_a_single_object_shows_when_everything_is_proved() -> None:
    bucket = _Bucket()
    targets = [parse_target("s3://bucket/a/b.csv", None) for _ in range(2)]
    with mock.patch.object(BucketTarget, "_objects", return_value=bucket):
        parts = [write_part(target, 0, []) for target in targets]
        assert "b.csv" not in bucket
        check_parts(targets[0], parts[:1])
        targets[0].publish(parts[:1])
        whole = bucket["b.csv"]
        with pytest.raises(JobFailed, match="somebody else"):
            targets[1].publish(parts[1:])
        targets[1].abandon()
    assert bucket == {"b.csv": whole}
