"""Writing: every row once, whatever fails on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.http import Server

from .server_fixture import ServerFixture, uncommit

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def numbers(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("to_json(struct(id as n)) as data")


def found(shop: ServerFixture, topic: str) -> list[int]:
    return [json.loads(row[6])["n"] for row in shop.rows(topic)]


def save(frame: DataFrame, shop: ServerFixture, **options: Any) -> None:
    frame.write.format("headrace").mode("append").options(url=shop.url, **options).save()


def test_a_batch(spark: SparkSession, shop: ServerFixture) -> None:
    frame = spark.range(2500).repartition(3)
    save(numbers(frame), shop, log="out", chunkRows=300)
    assert sorted(found(shop, "out")) == list(range(2500))


def test_every_column_and_where_column_log_says(spark: SparkSession, shop: ServerFixture) -> None:
    frame = spark.createDataFrame(
        [("out-1", "1", "k", "t", "n", '{"m":1}'), ("out-2", "2", None, None, None, None)],
        "log string, data string, key string, tag string, node string, meta string",
    )
    save(frame, shop)
    assert [row[3:] for row in shop.rows("out-1")] == [("k", "t", "n", "1", '{"m": 1}')]
    assert [row[3:] for row in shop.rows("out-2")] == [(None, None, None, "2", None)]
    copy = spark.read.format("headrace").options(url=shop.url, log="out-1").load()
    save(copy.drop("log"), shop, log="out-3")
    assert [row[3:] for row in shop.rows("out-3")] == [row[3:] for row in shop.rows("out-1")]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id as n", {"log": "x"}, "column data"),
        ("'1' as data", {}, "option log"),
        ("'1' as data, 'red' as colour", {"log": "x"}, "colour"),
        ("id as data", {"log": "x"}, "data is text"),
        ("'1' as data", {"log": "x*"}, "one log"),
        ("'1' as data", {"log": "x", "batch": "1"}, "belong together"),
        ("'{' as data", {"log": "x"}, "not JSON"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, shop: ServerFixture, columns: str, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=said):
        save(spark.range(1).selectExpr(columns), shop, **options)


def test_nothing_is_written_when_one_task_fails(spark: SparkSession, shop: ServerFixture) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(100).repartition(4)
    bad = frame.selectExpr("case when id = 77 then '{' else '1' end as data")
    with pytest.raises(PySparkException):
        save(bad, shop, log="none")
    with Server(shop.url) as server:
        assert server.logs(["none"], extents=False) == []


def test_a_named_batch_is_written_once(spark: SparkSession, shop: ServerFixture) -> None:
    """As in foreachBatch, where Spark may come with the same batch again."""
    frame = numbers(spark.range(50))
    for _ in range(2):
        save(frame, shop, log="named", transaction="job-1", batch=7)
    save(numbers(spark.range(50, 60)), shop, log="named", transaction="job-1", batch=8)
    assert sorted(found(shop, "named")) == list(range(60))


def copy_all(
    spark: SparkSession, shop: ServerFixture, log: str, checkpoint: str, **more: Any
) -> None:
    """What is in `in-<log>` goes to `out-<log>`."""

    def stumble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fails the first attempt of a task that meets a certain record, after it was sent."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            met = any(json.loads(text)["n"] == 17 for text in batch.column(0).to_pylist())
            if met and context.attemptNumber() == 0:
                raise RuntimeError("stumbled")

    frame = (
        spark.readStream.format("headrace")
        .options(url=shop.url, log=f"in-{log}", **more)
        .load()
        .select("data")
        .mapInArrow(stumble, "data string")
    )
    query = (
        frame.writeStream.format("headrace")
        .options(url=shop.url, log=f"out-{log}", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_stream_with_a_task_that_fails(
    spark: SparkSession, shop: ServerFixture, checkpoint: str
) -> None:
    shop.numbers("in-task", 0, 300)
    copy_all(spark, shop, "task", checkpoint, maxRowsPerTrigger=100)
    assert sorted(found(shop, "out-task")) == list(range(300))


def test_a_driver_that_dies_behind_the_commit(
    spark: SparkSession, shop: ServerFixture, checkpoint: str
) -> None:
    """The batch is in the log, but Spark does not know: it comes again, and changes nothing."""
    shop.numbers("in-die", 0, 60)
    copy_all(spark, shop, "die", checkpoint, maxRowsPerTrigger=20)
    uncommit(checkpoint, 2)
    shop.numbers("in-die", 60, 65)
    copy_all(spark, shop, "die", checkpoint, maxRowsPerTrigger=20)
    counts = Counter(found(shop, "out-die"))
    assert counts == Counter(range(65))


def test_a_driver_that_dies_before_the_commit(
    spark: SparkSession, shop: ServerFixture, checkpoint: str
) -> None:
    """Chunks are staged, and nobody commits them: the batch comes again with others."""
    shop.numbers("in-half", 0, 40)
    copy_all(spark, shop, "half", checkpoint)
    meta = json.loads((Path(checkpoint) / "metadata").read_text())
    import pyarrow as pa

    shop.numbers("in-half", 40, 50)
    with Server(shop.url) as server:
        assert server.committed(meta["id"]) == 0
        server.stage(meta["id"], 1, "0-0-0", "out-half", pa.table({"data": ['{"n": -1}']}))
    copy_all(spark, shop, "half", checkpoint)
    assert Counter(found(shop, "out-half")) == Counter(range(50))
    with Server(shop.url) as server:
        assert server.committed(meta["id"]) == 1


def test_overwriting_is_refused(spark: SparkSession, shop: ServerFixture) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(1).selectExpr("'1' as data")
    with pytest.raises(PySparkException, match="only appended"):
        frame.write.format("headrace").mode("overwrite").options(url=shop.url, log="x").save()
