"""Reading batches: the same rows as the plain API tells, however they are found."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark import segments
from support.manifests import FLAG_FILE

from .server_fixture import Row, ServerFixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["log", "seq", "ts", "key", "tag", "node", "data", "meta"]


@pytest.fixture(scope="module")
def filled(shop: ServerFixture) -> ServerFixture:
    """Two logs in several segments, with holes, one that was made anew, and a tail of each."""
    shop.numbers("old", 0, 300, pad=200)
    shop.drop("old")
    for start in range(0, 3000, 600):
        shop.numbers("read-a", start, start + 600, pad=60)
        shop.numbers("read-b", start, start + 300, pad=60)
    shop.numbers("old", 1000, 1010)
    shop.wait_sealed("read-a", 3)
    shop.wait_sealed("read-b", 2)
    shop.call("POST", "/v0/topics/read-a/delete", {"before_seq": 40})
    shop.call("POST", "/v0/topics/read-a/delete", {"match": ["tag", "Eq", "t1"]})
    shop.numbers("read-a", 3000, 3010)
    return shop


def load(spark: SparkSession, shop: ServerFixture, how: str, **options: Any) -> DataFrame:
    reader = spark.read.format("headrace")
    if "url" in how:
        reader = reader.option("url", shop.url)
    if "path" in how:
        reader = reader.option("path", shop.path)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def rows_of(frame: DataFrame) -> list[Row]:
    found = [
        (*row[:2], round(row[2].replace(tzinfo=UTC).timestamp() * 1000), *row[3:])
        for row in frame.select(*COLUMNS).collect()
    ]
    return sorted(found)


@pytest.mark.parametrize("how", ["url", "url path"])
def test_a_batch_is_complete_to_the_head(
    spark: SparkSession, filled: ServerFixture, how: str
) -> None:
    frame = load(spark, filled, how, log="read-a,read-b")
    assert rows_of(frame) == sorted(filled.rows("read-a") + filled.rows("read-b"))
    types = dict(frame.dtypes)
    assert types == dict.fromkeys(COLUMNS, "string") | {"seq": "bigint", "ts": "timestamp"}


def test_a_log_made_anew_has_nothing_of_the_old_one(
    spark: SparkSession, filled: ServerFixture
) -> None:
    assert rows_of(load(spark, filled, "url path", log="ol*")) == filled.rows("old")


def test_sealed_records_come_from_the_object_store(
    spark: SparkSession, filled: ServerFixture
) -> None:
    from headrace.client.store import Store
    from headrace.spark.options import parse_read
    from headrace.spark.reading import HeadraceReader
    from headrace.spark.splits import Bundle, SegmentPart, ServerPart

    store = filled.call("GET", "/v0/logs?name=read-a&extents=true")["store"]
    manifest = Store(filled.path).manifest()
    assert manifest is not None
    assert manifest.owner is not None
    assert store == manifest.owner.directory
    options = {"url": filled.url, "path": filled.path, "log": "read-a"}
    tasks = HeadraceReader(parse_read(options)).partitions()
    parts = [part for task in tasks if isinstance(task, Bundle) for part in task.parts]
    sealed = [part for part in parts if isinstance(part, SegmentPart)]
    assert len({part.segment for part in sealed}) >= 3
    groups = {(part.segment, rows.group) for part in sealed for rows in part.rows}
    assert len(groups) >= 3 * len({segment for segment, _ in groups}), "row groups are too large"
    asked = sum(part.last - part.first + 1 for part in parts if isinstance(part, ServerPart))
    assert 10 <= asked < 1500


def test_bounds_keys_and_columns(spark: SparkSession, filled: ServerFixture) -> None:
    known = filled.rows("read-a")
    at = datetime.fromtimestamp(known[900][2] / 1000, UTC)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"from_seq": 100, "to_seq": 700}, lambda row: 100 <= row[1] <= 700),
        ({"from_ts": at.isoformat()}, lambda row: row[2] >= known[900][2]),
        ({"to_ts": known[900][2]}, lambda row: row[2] <= known[900][2]),
        ({"keys": "k1, k3"}, lambda row: row[3] in ("k1", "k3")),
        ({"from_seq": 2900, "keys": "k2"}, lambda row: row[1] >= 2900 and row[3] == "k2"),
    ]
    for options, takes in cases:
        frame = load(spark, filled, "url path", log="read-a", **options)
        assert rows_of(frame) == [row for row in known if takes(row)], options
    frame = load(spark, filled, "url", log="read-a", from_seq=100, to_seq=700)
    assert rows_of(frame) == [row for row in known if 100 <= row[1] <= 700]
    frame = load(spark, filled, "url path", log="read-a", columns="seq,data,epoch")
    assert frame.columns == ["seq", "data", "epoch"]
    assert sorted(row[:2] for row in frame.collect()) == [(row[1], row[6]) for row in known]


def test_pushed_filters_change_nothing_but_the_work(
    spark: SparkSession, filled: ServerFixture
) -> None:
    known = filled.rows("read-a") + filled.rows("read-b")
    at = datetime.fromtimestamp(known[500][2] / 1000, UTC).replace(tzinfo=None)
    conditions = [
        "seq between 100 and 900 and tag = 't2'",
        "log = 'read-b' and seq > 1400",
        "log like 'read-a%' and key in ('k1', 'k5')",
        "node is null and key = 'k3'",
        "tag = 't0' or key = 'k1'",
        f"ts >= timestamp '{at}' and ts < timestamp '{at + timedelta(seconds=1)}'",
        "seq = 7 and log = 'nothing'",
        "not (key = 'k1') and length(data) > 90",
    ]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        plain = load(spark, filled, "url", log="read-*").cache()
        for condition in conditions:
            expected = rows_of(plain.where(condition))
            # Anew for each: Spark keeps what it pushed into a DataFrame for its later queries.
            pushed = load(spark, filled, "url path", log="read-*", pushdown="true")
            assert rows_of(pushed.where(condition)) == expected, condition
        plain.unpersist()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_notifications_are_found_by_key_and_tag(spark: SparkSession, shop: ServerFixture) -> None:
    log = "notify:storm"
    for region in ("east", "north"):
        for severity in (1, 2, 3):
            polygon = "0,0,0,1.5,1,1,0,0"
            identifier = {"region": region, "severity": severity, "polygon": polygon}
            body = {"event_type": "storm", "identifier": identifier, "payload": {"n": severity}}
            shop.call("POST", "/api/v1/notification", body)
        shop.call("POST", "/v0/logs/seal", {})
    subjects = [f"storm.{region}.{n}" for region in ("east", "north") for n in (1, 2, 3)]
    whole = load(spark, shop, "url path", log=log)
    assert [row[1:5:2] for row in rows_of(whole)] == list(enumerate(subjects, 1))
    (by_key,) = rows_of(load(spark, shop, "url path", log=log, keys="storm.north.2"))
    (by_tag,) = rows_of(whole.where("tag = 'storm.east.3'"))
    assert (by_key[1], by_tag[1]) == (5, 3)
    assert json.loads(by_tag[6])["payload"] == {"n": 3}


def test_versions_of_flags_are_read_and_their_contents_are_not(
    spark: SparkSession, shop: ServerFixture
) -> None:
    shop.call("POST", "/api/v1/tenants", {"slug": "acme"})
    shop.call("POST", "/api/v1/tenants/acme/namespaces", {"slug": "billing"})
    for number in (1, 2):
        shop.upload("acme", "billing", {"flags/a.toml": FLAG_FILE.format(said=number)})
    shop.call("POST", "/v0/logs/seal", {})
    for how in ("url path", "url", "path"):
        rows = [json.loads(row[6]) for row in rows_of(load(spark, shop, how, log="flags:acme:*"))]
        assert [(row["version"], row["files"][0]["op"]) for row in rows] == [
            (1, "added"),
            (2, "modified"),
        ]
    for how in ("url path", "path"):
        names = {row[0] for row in rows_of(load(spark, shop, how, log="*"))}
        assert "flags:acme:billing" in names
        assert not [name for name in names if name.startswith("__flags")]
    assert not segments(spark, shop.path).where("log like '\\_\\_flags%'").count()


def test_without_a_server_what_is_sealed_and_not_deleted(
    spark: SparkSession, filled: ServerFixture
) -> None:
    (plan,) = filled.call("GET", "/v0/logs?name=read-b&extents=true")["logs"]
    last = plan["sealed"][-1][1]
    found = rows_of(load(spark, filled, "path", log="read-b"))
    known = filled.rows("read-b")
    assert found == known[: len(found)]
    assert len(found) >= last
    bounded = load(spark, filled, "path", log="read-b", from_seq=150, to_seq=420)
    assert rows_of(bounded) == known[149:420]


def test_data_that_is_not_json(spark: SparkSession, shop: ServerFixture) -> None:
    from urllib.request import Request, urlopen

    headers = {"content-type": "application/octet-stream"}
    url = f"{shop.url}/v1/stream/spark/raw"
    for method, body in (("PUT", None), ("POST", b"\xff\x00"), ("POST", b"")):
        if body == b"":
            continue
        with urlopen(Request(url, body, headers, method=method)):
            pass
    columns = "data,payload,media"
    (row,) = load(spark, shop, "url", log="spark/raw", columns=columns).collect()
    assert tuple(row) == ("/wA=", bytearray(b"\xff\x00"), "application/octet-stream")


def test_native_segments(spark: SparkSession, filled: ServerFixture) -> None:
    frame = segments(spark, filled.path, "read-b")
    found = [row.seq for row in frame.select("seq").orderBy("seq").collect()]
    assert found == list(range(1, len(found) + 1))
    assert segments(spark, filled.path).where("log = 'read-a'").count() > 1000
    begun = segments(spark, filled.path, "read-*").select("log").distinct().collect()
    assert {"read-a", "read-b"} <= {row.log for row in begun}
    assert all(row.log.startswith("read-") for row in begun)


def test_sql(spark: SparkSession, filled: ServerFixture) -> None:
    spark.sql(
        "create or replace temporary view shop using headrace "
        f"options (url '{filled.url}', path '{filled.path}', log 'read-a,read-b')"
    )
    query = (
        "select log, count(*), max(get_json_object(data, '$.n')) from shop group by log order by 1"
    )
    counts = {row[0]: row[1] for row in spark.sql(query).collect()}
    assert counts == {log: len(filled.rows(log)) for log in ("read-a", "read-b")}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "say url"),
        ({"url": "http://127.0.0.1:1"}, "say which log"),
        ({"url": "nowhere", "log": "a"}, "address of a server"),
        ({"url": "http://127.0.0.1:1", "log": "a*b"}, "end of a name"),
        ({"url": "http://127.0.0.1:1", "log": "a", "from_seq": "x"}, "from_seq"),
        ({"url": "http://127.0.0.1:1", "log": "a", "columns": "seq,colour"}, "colour"),
    ],
)
def test_what_is_wrong_is_said(spark: SparkSession, options: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=said):
        spark.read.format("headrace").options(**options).load().collect()


def test_what_is_not_there(spark: SparkSession, filled: ServerFixture, tmp_path: Path) -> None:
    """A mistake is never an empty answer; a known log that has nothing to give is one."""
    from pyspark.errors import PySparkException, StreamingQueryException

    nowhere = f"path: there is no manifest in {tmp_path}"
    for how, options, said in (
        ("url path", {"log": "nobody"}, "there is no log nobody"),
        ("path", {"log": "web-*"}, "no log begins with web-"),
        ("path", {"log": "read-a", "path": str(tmp_path)}, nowhere),
    ):
        with pytest.raises(PySparkException, match=said):
            load(spark, filled, how, **options).collect()
    query = (
        spark.readStream.format("headrace").option("url", filled.url).option("log", "web-*").load()
        .writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match="no log begins with web-"):
        query.awaitTermination()
    with pytest.raises(LookupError, match="there is no manifest"):
        segments(spark, str(tmp_path))
    with pytest.raises(LookupError, match="there is no log read; did you mean read-"):
        segments(spark, filled.path, "read")
    assert load(spark, filled, "url path", log="read-a", to_seq=0).count() == 0
