"""The same jobs where the objects are in a bucket of a real S3 server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipeline.audit import audit
from headrace.pipeline.backfill import backfill
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.follow import follow
from headrace.pipeline.retire import clean
from headrace.spark.source import HeadraceSource

from .shelf import Shelf, payloads, search

sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))
import seaweed

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
        shelf = Shelf(tmp_path / "data", where)
        shelf.plan({"a": search("w")})
        for _ in range(3):
            shelf.seal({"a": payloads(30), "b": payloads(5)}, tag="t", keys=["k"])
        shelf.mark({"a": [1, 3]})
        follow(spark, shelf.place, once=True)
        compact(spark, shelf.place, Sizes(run_min=2))
        erase(spark, shelf.place, now=True)
        backfill(spark, shelf.place)
        assert audit(spark, shelf.place).problems == []
        live = {(log, seq): data for (log, seq), data in shelf.all.items() if log != "a" or seq > 3}
        assert shelf.rows() == live
        assert shelf.indexed("a")["w"] == [seq for log, seq in sorted(live) if log == "a"]
        assert _read(spark, where) == live
        clean(shelf.place, grace_s=0)
        assert shelf.objects_there() == shelf.named()
        assert not (tmp_path / "data").exists()


def _read(spark: SparkSession, where: str) -> dict[tuple[str, int], bytes]:
    """What the data source finds in the bucket, without a server."""
    own = spark.newSession()
    own.dataSource.register(HeadraceSource)  # with the environment that workers need
    rows = own.read.format("headrace").options(path=where, log="a,b").load()
    return {(row.log, row.seq): row.data.encode() for row in rows.collect()}
