"""The same jobs where the objects are in a bucket of a real S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipeline.audit import audit
from headrace.pipeline.backfill import backfill
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.export import Selection, export
from headrace.pipeline.export_target import BucketTarget
from headrace.pipeline.follow import follow
from headrace.pipeline.janitor import clean
from headrace.pipeline.store_location import StoreLocation, check
from headrace.spark.source import HeadraceSource
from headrace.storage.objects import StoreError
from headrace.storage.s3 import S3Objects
from support import seaweed
from support.segment_store import SegmentStore, payloads, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

BUCKET = "pipeline"


def test_jobs_work_on_a_bucket(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = seaweed.find()
    if program is None:
        pytest.skip("SeaweedFS is not installed")
    (tmp_path / "s3").mkdir()
    where = f"s3://{BUCKET}/some/where"
    with seaweed.serve(program, tmp_path / "s3") as environ:
        seaweed.make_bucket(BUCKET, environ)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)  # for workers
        with pytest.raises(CannotRun, match=f"{where} has no manifest"):
            check(StoreLocation(tmp_path, where))
        shelf = SegmentStore(tmp_path / "data", where)
        shelf.plan({"a": search("w")})
        for _ in range(3):
            shelf.seal({"a": payloads(30), "b": payloads(5)}, tag="t", keys=["k"])
        shelf.mark({"a": [1, 3]})
        check(shelf.place)
        follow(spark, shelf.place, once=True)
        compact(spark, shelf.place, Sizes(run_min=2))
        erase(spark, shelf.place, now=True)
        backfill(spark, shelf.place)
        assert audit(spark, shelf.place).problems == []
        live = {(log, seq): data for (log, seq), data in shelf.all.items() if log != "a" or seq > 3}
        assert shelf.rows() == live
        assert shelf.indexed("a")["w"] == [seq for log, seq in sorted(live) if log == "a"]
        assert _read(spark, where) == live
        _export(spark, shelf, live)
        clean(shelf.place, grace_s=0)
        assert shelf.objects_there() == shelf.named()
        assert not (tmp_path / "data").exists()


def _export(spark: SparkSession, shelf: SegmentStore, live: dict[tuple[str, int], bytes]) -> None:
    """To one object and to a folder of them, without anything that Spark knows of buckets."""
    there = S3Objects(BUCKET, "out")
    folder, file = f"s3://{BUCKET}/out/all", f"s3://{BUCKET}/out/b.jsonl"
    assert f"{len(live)} records" in export(spark, shelf.place, Selection(), folder, None).summary
    success, *parts = there.list("all")
    assert success.name == "all/_SUCCESS"
    tables = [pq.read_table(there.open(part.name)) for part in parts]
    columns = pa.concat_tables(tables).select(["log", "seq", "data"]).to_pydict()
    assert {
        (log, seq): data.encode() for log, seq, data in zip(*columns.values(), strict=True)
    } == (live)
    assert (
        "5 records"
        in export(spark, shelf.place, Selection(logs=("b",), to_seq=5), file, None).summary
    )
    assert there.get("b.jsonl").count(b"\n") == 5
    for taken in (folder, file):
        with pytest.raises(CannotRun, match="exists"):
            export(spark, shelf.place, Selection(), taken, None)
    # Something of an export that was killed, and one that finds less than it wrote.
    there.put("half/part-00000-0123.parquet", b"PAR1")
    with pytest.raises(CannotRun, match="an export was ended there"):
        export(spark, shelf.place, Selection(), f"s3://{BUCKET}/out/half", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BucketTarget, "sizes", lambda _: {})
        with pytest.raises(JobFailed, match="is not there"):
            export(spark, shelf.place, Selection(), f"s3://{BUCKET}/out/failed", None)
    assert there.list("failed") == []
    with pytest.raises(StoreError, match="nobody"):
        export(spark, shelf.place, Selection(), "s3://nobody/out", None)


def _read(spark: SparkSession, where: str) -> dict[tuple[str, int], bytes]:
    """What the data source finds in the bucket, without a server."""
    own = spark.newSession()
    own.dataSource.register(HeadraceSource)  # with the environment that workers need
    rows = own.read.format("headrace").options(path=where, log="a,b").load()
    return {(row.log, row.seq): row.data.encode() for row in rows.collect()}
