"""A server whose segments are in a bucket of a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import Objects
from headrace.storage.stores import open_objects
from support import seaweed

from .launching import Servers, run_headrace, serve_to_the_end, wait_until
from .test_lifecycle import append, read_data

pytestmark = pytest.mark.system

BUCKET = "systems"
ROUNDS, ROUND = 30, 100


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    program = seaweed.find()
    if program is None:
        pytest.skip("SeaweedFS is not installed")
    with seaweed.serve(program, tmp_path_factory.mktemp("s3")) as environ:
        seaweed.make_bucket(BUCKET, environ)
        yield environ


@pytest.fixture
def where(data_dir: Path) -> str:
    return f"s3://{BUCKET}/{data_dir.parent.name}"


@pytest.fixture
def objects(environ: Mapping[str, str], where: str, monkeypatch: pytest.MonkeyPatch) -> Objects:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return open_objects(where, MemoryDisk())


def settings(where: str, environ: Mapping[str, str]) -> dict[str, str]:
    # Memory for all of it: nobody is held back while a busy machine seals.
    small = {"HEADRACE_SEAL_BYTES": "64KiB", "HEADRACE_TAIL_BYTES": "64MiB"}
    return {"HEADRACE_OBJECTS": where, **small, **environ}


def payload(number: int) -> dict[str, object]:
    return {"n": number, "pad": "x" * 60}


def test_records_live_in_the_bucket(
    new_server: Servers,
    data_dir: Path,
    environ: Mapping[str, str],
    where: str,
    objects: Objects,
) -> None:
    server = new_server(**settings(where, environ)).start()
    for number in range(ROUNDS):
        batch = range(number * ROUND, (number + 1) * ROUND)
        append(server.port, "orders", *map(payload, batch), durability="disk")

    def sealed() -> Manifest:
        return manifests.load(objects)

    wait_until(lambda: len(sealed().segments) >= 2, "two segments in the bucket")
    expected = [payload(number) for number in range(ROUNDS * ROUND)]
    assert read_data(server.port, "orders") == expected
    server.kill()
    assert not any((data_dir / "objects").rglob("*")), "segments in the data directory"

    server = new_server(**settings(where, environ)).start()
    assert read_data(server.port, "orders") == expected
    _check_foreign_readers(environ, where, sealed(), expected)
    assert server.stop() == 0

    verified = run_headrace("verify", "--data-dir", str(data_dir), "--objects", where, env=environ)
    assert verified.returncode == 0, verified.stdout
    inspected = run_headrace(
        "inspect", "segments", "--data-dir", str(data_dir), "--objects", where, env=environ
    )
    assert inspected.returncode == 0, inspected.stdout
    assert len(inspected.stdout.splitlines()) == len(sealed().segments) + 1

    server = new_server(**settings(where, environ)).start()
    assert read_data(server.port, "orders") == expected


def _check_foreign_readers(
    environ: Mapping[str, str], where: str, manifest: Manifest, expected: list[dict[str, object]]
) -> None:
    """Plain Parquet for pyarrow and DuckDB, wherever it lies."""
    there = fs.S3FileSystem(
        access_key=environ["AWS_ACCESS_KEY_ID"],
        secret_key=environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=environ["AWS_ENDPOINT_URL"],
        region=environ["AWS_REGION"],
    )
    paths = [f"{where.removeprefix('s3://')}/{segment.name}" for segment in manifest.segments]
    segments = ds.dataset(paths, format="parquet", filesystem=there)
    rows = segments.to_table(filter=ds.field("log") == "orders").sort_by("seq").to_pylist()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert [json.loads(row["data"]) for row in rows] == expected[: len(rows)]
    counted = duckdb.sql(
        "select count(*), max((decode(data)::json->>'n')::int) from segments where log = 'orders'"
    )
    assert counted.fetchall() == [(len(rows), len(rows) - 1)]


def test_a_bucket_that_cannot_be_reached_is_said_in_one_line(
    data_dir: Path, environ: Mapping[str, str], where: str
) -> None:
    wrong = {**environ, "AWS_SECRET_ACCESS_KEY": "wrong"}
    refused = serve_to_the_end(data_dir, **settings(where, wrong))
    assert refused.returncode == 2
    assert "the object store cannot be used" in refused.stdout
    assert where in refused.stdout
    assert "Traceback" not in refused.stdout


def test_two_servers_do_not_share_a_place(
    new_server: Servers, tmp_path: Path, environ: Mapping[str, str], where: str, objects: Objects
) -> None:
    first = new_server(**settings(where, environ)).start()
    for _ in range(10):
        append(first.port, "a", *map(payload, range(100)), durability="disk")
    wait_until(lambda: bool(manifests.load(objects).segments), "a segment in the bucket")
    refused = serve_to_the_end(tmp_path / "other", **settings(where, environ))
    assert refused.returncode == 2
    assert "prefix of its own" in refused.stdout, "it says whose the place is, and what to do"
