"""The data source outside of this session: spark-submit with a driver that is killed, Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import light
from support.segment_store import SegmentStore, payloads, search

from .server_fixture import ServerFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

PATIENCE_S = 600.0
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "800m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}
SCRIPT = """
import sys
from pyspark.sql import SparkSession

url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("copy").getOrCreate()
"""
COPY = """
rows = spark.readStream.format("headrace").options(url=url, log="in-submit", maxRowsPerTrigger=40)
query = (
    rows.load().select("data").repartition(2).writeStream.format("headrace")
    .options(url=url, log="out-submit", checkpointLocation=checkpoint, chunkRows=15)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
"""


@contextmanager
def submitted(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process group of spark-submit's."""
    confs = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    submit = Path(sys.executable).with_name("spark-submit")
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(submit), *confs, *arguments], stdout=out, stderr=out, env=light.environment(),
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_driver_that_is_killed_in_the_middle(
    spark: SparkSession, shop: ServerFixture, tmp_path: Path
) -> None:
    """spark-submit, killed when some batches are there; another driver goes on from there."""
    script, log, checkpoint = tmp_path / "job.py", tmp_path / "submit.log", str(tmp_path / "c")
    script.write_text(SCRIPT + COPY)
    shop.numbers("in-submit", 0, 160)
    shop.call("PUT", "/v0/topics/out-submit", {})
    deadline = time.monotonic() + PATIENCE_S
    with submitted(log, "--master", "local[2,3]", str(script), shop.url, checkpoint) as process:
        while shop.head("out-submit") < 40:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = shop.head("out-submit")
    assert 40 <= before < 160, "it was not killed in the middle"
    exec(COPY, {"spark": spark, "url": shop.url, "checkpoint": checkpoint})
    numbers = [json.loads(row[6])["n"] for row in shop.rows("out-submit")]
    assert Counter(numbers) == Counter(range(160))


JOBS = """
import sys
from headrace.cli import main

url, folder = sys.argv[1:]
for job in [
    "follow --once --json", "backfill", "merge", "compact --min-run 2", "erase --now", "retain",
    "follow --once", "audit", f"export --to {folder}/all.jsonl", "report volume",
    "janitor --grace 0",
]:
    print("#", job, flush=True)
    try:
        main(["pipeline", *job.split(), "--data-dir", f"{folder}/data", "--remote", url])
    except SystemExit as done:
        assert not done.code, (job, done.code)
"""


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Its address; it serves from the JVM of this session, as the plugin of Spark Connect does."""
    jvm = spark._jvm
    spark._jsc.sc().conf().set("spark.connect.grpc.binding.port", "0")
    name = "org.apache.spark.sql.connect.service.SparkConnectService$"
    service = getattr(getattr(jvm, name), "MODULE$")
    service.start(spark._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        none = getattr(jvm, "scala.Option").empty()
        service.stop(none, none)


def test_over_connect(spark: SparkSession, shop: ServerFixture, tmp_path: Path) -> None:
    """A Connect server from the pip package, and clients that have no JVM: the data source, and
    every job of the pipeline.
    """
    shelf = SegmentStore(tmp_path / "data")
    shelf.plan({"a": search("w")})
    for _ in range(3):
        shelf.seal({"a": payloads(4), "b": payloads(2)}, keys=["k"])
    shelf.mark({"b": [1, 1]})
    shop.numbers("connect", 0, 20)
    client = f'''
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = spark.read.format("headrace").options(url="{shop.url}", log="connect").load()
assert rows.count() == 20, rows.count()
rows.select("data").write.format("headrace").mode("append").options(
    url="{shop.url}", log="connect-copy").save()
query = (
    spark.readStream.format("headrace").options(url="{shop.url}", log="connect").load()
    .select("data").writeStream.format("headrace")
    .options(url="{shop.url}", log="connect-stream", checkpointLocation={str(tmp_path / "c")!r})
    .trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
'''
    with connect_server(spark) as url:
        for program in ([client, url], [JOBS, url, str(tmp_path)]):
            done = subprocess.run(
                [sys.executable, "-c", *program], env=light.environment(), capture_output=True,
                text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    live = {place: data for place, data in shelf.all.items() if place != ("b", 1)}
    assert shelf.rows() == live
    assert shelf.indexed("a")["w"] == [seq for log, seq in sorted(live) if log == "a"]
    assert '"segments":3,"records":18' in done.stdout
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == len(live)
    for copy in ("connect-copy", "connect-stream"):
        assert [row[6] for row in shop.rows(copy)] == [row[6] for row in shop.rows("connect")]
