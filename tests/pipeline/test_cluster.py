"""The same jobs, unchanged, on a standalone cluster that loses a worker; the one that is left has a
folder of its own where the driver has another.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from headrace.pipeline import crash_points
from headrace.pipeline.audit import audit
from headrace.pipeline.janitor import clean
from support import light, seaweed
from support.segment_store import SegmentStore, payloads, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

DEADLINE_S = 600.0
NAMESPACE = ["unshare", "--mount", "--map-root-user"]
JOBS = """
import os
import sys
from pathlib import Path
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.errors import CannotRun
from headrace.pipeline.export import Selection, export
from headrace.pipeline.follow import follow
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.session import session
from headrace.pipeline.settings import KERNELS, Target
from headrace.pipeline.tasks import run_tasks

place = StoreLocation(Path(sys.argv[1]))
with session("cluster", Target(master=sys.argv[2]), KERNELS) as spark:
    # Workers elsewhere get what the bucket needs, and nobody sees it in Spark's settings.
    assert run_tasks(spark, place, os.getenv, ["AWS_PROBE"]) == ["secret"]
    assert "AWS_" not in str(spark.sparkContext.getConf().getAll())
    follow(spark, place, once=True)
    compact(spark, place, Sizes(run_min=2))
    erase(spark, place, now=True)
    follow(spark, place, once=True)
    for to in sys.argv[3:]:
        try:
            print(export(spark, place, Selection(), to, None).summary)
        except CannotRun as refused:
            print(refused)
"""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Cluster:
    """A master and two workers, from the pip package alone; the second has its own `private`."""

    def __init__(self, folder: Path, stack: ExitStack, *, own: bool) -> None:
        self._folder = folder
        self._stack = stack
        self._port, self._web = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._start("master.Master", "--port", str(self._port), "--webui-port", str(self._web))
        # A worker that finds no master waits for some ten seconds before it tries again.
        _until(lambda: self.state() != {}, "the master did not come")
        self.workers = [
            self._start(
                "worker.Worker", "--cores", "1", "--memory", "1200m", "--webui-port", "0",
                "--work-dir", str(folder / f"work{n}"), self.url,
                inside=_with_own(folder / "private") if own and n else (),
            )
            for n in range(2)
        ]  # fmt: skip

    def _start(
        self, name: str, *arguments: str, inside: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self._stack.enter_context((self._folder / "cluster.log").open("ab"))
        process = subprocess.Popen(
            [*inside, home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}",
             "--host", "127.0.0.1", *arguments],
            env=light.environment(SPARK_HOME=str(home), SPARK_DAEMON_MEMORY="256m"),
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        self._stack.callback(_end, process)
        return process

    def state(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, http.client.HTTPException, ValueError):
            return {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and whatever it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _with_own(folder: Path) -> list[str]:
    """How to start a program for which this folder is another one than for everybody else."""
    folder.mkdir()
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    return [*NAMESPACE, "sh", "-c", script, str(folder)]


def _may_have_own() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def _cluster(folder: Path, *, own: bool) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(folder, stack, own=own)


@contextmanager
def _bucket(folder: Path) -> Iterator[dict[str, str]]:
    """The environment for a bucket called cluster; nothing where there can be none."""
    program = seaweed.find()
    if program is None:
        yield {}
        return
    folder.mkdir()
    with seaweed.serve(program, folder) as environ:
        seaweed.make_bucket("cluster", environ)
        yield environ


def test_jobs_run_on_a_cluster_that_loses_a_worker(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    shelf.plan({"a": search("w")})
    for _ in range(4):
        shelf.seal({"a": payloads(50), "b": payloads(20)}, keys=["k", "l"])
    shelf.mark({"b": [1, 10]})
    marker = tmp_path / "begun"
    own = _may_have_own()
    assert own or "CI" not in os.environ
    names = ["private/all", "private/all.csv"] if own else []
    targets = [str(tmp_path / name) for name in (*names, "all", "all.csv")]
    with _bucket(tmp_path / "s3") as store, _cluster(tmp_path, own=own) as cluster:
        # The one place that every node has, without a file or a setting of Spark's.
        targets = [*(["s3://cluster/all"] if store else []), *targets]
        jobs = subprocess.Popen(
            [sys.executable, "-c", JOBS, str(shelf.place.data_dir), cluster.url, *targets],
            env=light.environment(
                **{crash_points.VARIABLE: f"task@{marker}", "AWS_PROBE": "secret"}, **store
            ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        _until(lambda: cluster.state().get("aliveworkers") == 2, "the workers did not come")
        # The first task to begin loses its Python worker; then its machine goes too.
        _until(lambda: marker.exists() or jobs.poll() is not None, "no task ever began")
        if marker.exists():
            _end(cluster.workers[0])
        said, _ = jobs.communicate(timeout=DEADLINE_S)
        assert jobs.returncode == 0, said
        assert marker.exists()
        _until(lambda: cluster.state().get("aliveworkers") == 1, "no worker was lost")
    live = {(log, seq): data for (log, seq), data in shelf.all.items() if log != "b" or seq > 10}
    *others, folder, file = said.splitlines()[-len(targets) :]
    refused = [line for line in others if not line.startswith("s3://cluster/all: 270 records")]
    assert len(refused) == len(others) - bool(store) == len(names)
    assert all("do not share the folder" in line and "--to s3://" in line for line in refused)
    assert not own or [*(tmp_path / "private").iterdir()] == []
    assert f"{len(live)} records" in folder
    assert f"{len(live)} records" in file
    assert pq.read_table(tmp_path / "all").num_rows == len(live)
    assert len((tmp_path / "all.csv").read_text().splitlines()) == len(live) + 1
    assert shelf.rows() == live
    assert audit(spark, shelf.place).problems == []
    numbers = [number for build in shelf.manifest.builds for number in build.segments]
    assert sorted(numbers) == sorted(shelf.manifest.numbers)
    clean(shelf.place, grace_s=0)
    assert shelf.objects_there() == shelf.named()
