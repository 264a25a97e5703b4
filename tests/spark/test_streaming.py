"""Reading streams: every record once, in steps, over restarts; losses are never silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .server_fixture import ServerFixture, uncommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession, shop: ServerFixture, log: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("headrace").option("url", shop.url).option("log", log)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


class Gatherer:
    """Collects what the batches of a query bring."""

    def __init__(self, frame: DataFrame, checkpoint: str) -> None:
        self.batches: dict[int, list[tuple[str, int]]] = {}
        self._frame = frame
        self._checkpoint = checkpoint

    def run(self) -> list[tuple[str, int]]:
        """Everything that is available now."""

        def take(frame: DataFrame, batch: int) -> None:
            self.batches[batch] = sorted((row.log, row.seq) for row in frame.collect())

        query = (
            self._frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def test_in_steps_over_restarts_exactly_once(
    spark: SparkSession, shop: ServerFixture, checkpoint: str
) -> None:
    shop.numbers("st-a", 0, 900, pad=100)
    shop.numbers("st-b", 0, 40)
    frame = stream(spark, shop, "st-*", maxRowsPerTrigger=400, path=shop.path)
    gatherer = Gatherer(frame, checkpoint)
    expected = sorted([("st-a", n) for n in range(1, 901)] + [("st-b", n) for n in range(1, 41)])
    assert sorted(gatherer.run()) == expected
    assert len(gatherer.batches) >= 3
    assert all(len(batch) <= 400 for batch in gatherer.batches.values())
    assert set(gatherer.batches[0]) & {("st-b", n) for n in range(1, 41)}, "one log starves"
    shop.numbers("st-b", 40, 50)
    shop.numbers("st-c", 0, 5)
    first = dict(gatherer.batches)
    again = Gatherer(frame, checkpoint)
    assert sorted(again.run()) == [("st-b", n) for n in range(41, 51)] + [
        ("st-c", n) for n in range(1, 6)
    ]
    assert not set(first) & set(again.batches)
    assert Gatherer(frame, checkpoint).run() == []


def test_a_batch_that_was_not_finished_comes_again_the_same(
    spark: SparkSession, shop: ServerFixture, checkpoint: str
) -> None:
    """Also where it was read from the server, and lies in segments by now."""
    shop.numbers("rep", 0, 1000, pad=100)
    frame = stream(spark, shop, "rep", maxRowsPerTrigger=350, path=shop.path)
    gatherer = Gatherer(frame, checkpoint)
    gatherer.run()
    last = max(gatherer.batches)
    uncommit(checkpoint, last)
    shop.numbers("rep", 1000, 1400, pad=100)
    shop.wait_sealed("rep", 2)
    again = Gatherer(frame, checkpoint)
    again.run()
    assert again.batches[last] == gatherer.batches[last]
    rest = [
        row for batch in range(last + 1, max(again.batches) + 1) for row in again.batches[batch]
    ]
    assert sorted(rest) == [("rep", n) for n in range(1001, 1401)]


@pytest.mark.parametrize("limit", ["maxBytesPerTrigger", "maxFilesPerTrigger"])
def test_other_limits(
    spark: SparkSession, shop: ServerFixture, checkpoint: str, limit: str
) -> None:
    name = f"lim-{limit}"
    shop.numbers(name, 0, 1500, pad=100)
    shop.wait_sealed(name, 2)
    value = 60_000 if limit == "maxBytesPerTrigger" else 1
    frame = stream(spark, shop, name, **{limit: value, "path": shop.path})
    gatherer = Gatherer(frame, checkpoint)
    assert gatherer.run() == [(name, n) for n in range(1, 1501)]
    assert 3 <= len(gatherer.batches) <= 20


def test_only_what_is_new(spark: SparkSession, shop: ServerFixture, checkpoint: str) -> None:
    """And how far a query came, people can read."""
    shop.numbers("new", 0, 10)
    frame = stream(spark, shop, "new", startingOffsets="latest")
    assert Gatherer(frame, checkpoint).run() == []
    shop.numbers("new", 10, 12)
    assert Gatherer(frame, checkpoint).run() == [("new", 11), ("new", 12)]
    offsets = Path(checkpoint) / "offsets"
    last = max(int(file.name) for file in offsets.iterdir() if file.name.isdigit())
    text = (offsets / str(last)).read_text().splitlines()[-1]
    assert json.loads(text)["logs"]["new"]["seq"] == 12


def test_a_log_made_anew(spark: SparkSession, shop: ServerFixture, checkpoint: str) -> None:
    from pyspark.errors import StreamingQueryException

    shop.numbers("anew", 0, 10)
    assert len(Gatherer(stream(spark, shop, "anew"), checkpoint).run()) == 10
    shop.drop("anew")
    shop.numbers("anew", 0, 3)
    with pytest.raises(StreamingQueryException, match="made anew"):
        Gatherer(stream(spark, shop, "anew"), checkpoint).run()
    lenient = stream(spark, shop, "anew", failOnDataLoss="false")
    assert Gatherer(lenient, checkpoint).run() == [("anew", n) for n in (1, 2, 3)]


def test_what_retention_took(spark: SparkSession, shop: ServerFixture, checkpoint: str) -> None:
    from pyspark.errors import StreamingQueryException

    shop.call("PUT", "/v0/topics/capped", {"cap_records": 20})
    shop.numbers("capped", 0, 10)
    assert len(Gatherer(stream(spark, shop, "capped"), checkpoint).run()) == 10
    shop.numbers("capped", 10, 50)
    with pytest.raises(StreamingQueryException, match="records 11 to 30"):
        Gatherer(stream(spark, shop, "capped"), checkpoint).run()
    lenient = stream(spark, shop, "capped", failOnDataLoss="false")
    assert Gatherer(lenient, checkpoint).run() == [("capped", n) for n in range(31, 51)]


def test_what_users_deleted_is_no_loss(
    spark: SparkSession, shop: ServerFixture, checkpoint: str
) -> None:
    shop.numbers("del", 0, 10)
    assert len(Gatherer(stream(spark, shop, "del"), checkpoint).run()) == 10
    shop.numbers("del", 10, 30)
    shop.call("POST", "/v0/topics/del/delete", {"before_seq": 21})
    assert Gatherer(stream(spark, shop, "del"), checkpoint).run() == [
        ("del", n) for n in range(21, 31)
    ]
