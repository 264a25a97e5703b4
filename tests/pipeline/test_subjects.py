"""Erasure on request, on a real server: whatever is stored of a subject is gone from the bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from headrace.pipeline.erasure import request as requests
from headrace.pipeline.erasure.request import ErasureRequest, erase_subject
from headrace.pipeline.erasure.subject import parse_subject
from headrace.pipeline.store_location import StoreLocation
from headrace_bench.process import ServerProcess
from pipeline.test_erasure_reach import SECRET, holders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", env={"HEADRACE_PIPELINE": "off"}) as process:
        yield process


def ask(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(server.url + path, raw, headers, method=method)) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def send(server: ServerProcess, topic: str, *tags: str) -> None:
    records = [{"data": {"user": tag}, "tag": tag} for tag in tags]
    ask(server, "POST", f"/v0/topics/{topic}", {"records": records})


def left(server: ServerProcess, topic: str) -> list[str]:
    page = ask(server, "POST", f"/v0/topics/{topic}/diff", {"from_seq": 0, "include_tags": True})
    return [record["$tag"] for record in page["records"]]


def test_a_subject_leaves_all_logs_and_all_bytes(
    spark: SparkSession, server: ServerProcess
) -> None:
    place = StoreLocation(server.data_dir)
    ask(server, "PUT", "/v0/routers/copy", {"source": "orders", "dest": "audit"})
    send(server, "orders", SECRET, "bob", SECRET)
    ask(server, "POST", "/v0/logs/seal")
    send(server, "orders", "bob", SECRET)  # in the journal only
    certificate = erase_subject(
        spark, place, ErasureRequest(parse_subject(f"tag={SECRET}"), server.url, None)
    )
    assert [(one.log, one.records) for one in certificate.found] == [("audit", 3), ("orders", 3)]
    assert (certificate.deleted, certificate.complete, certificate.remains) == (6, True, ())
    assert (certificate.read_back.found, certificate.read_back.records) == (0, 4)
    assert left(server, "orders") == left(server, "audit") == ["bob", "bob"]
    assert holders(server.data_dir) == set()


def test_what_comes_meanwhile_is_found_in_the_next_look(
    spark: SparkSession, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a log that is deleted meanwhile has nothing of the subject any more."""
    place = StoreLocation(server.data_dir)
    send(server, "orders", SECRET, "bob")
    send(server, "doomed", SECRET, "bob")
    delete, late = requests._delete, ["orders"]

    def deleting(*given: Any) -> int:
        if late:
            ask(server, "DELETE", "/v0/topics/doomed")
        done = delete(*given)
        while late:
            send(server, late.pop(), SECRET)
            ask(server, "POST", "/v0/logs/seal")
        return done

    monkeypatch.setattr(requests, "_delete", deleting)
    certificate = erase_subject(
        spark, place, ErasureRequest(parse_subject(f"tag={SECRET}"), server.url, None)
    )
    assert (certificate.deleted, certificate.complete) == (2, True)
    assert left(server, "orders") == ["bob"]
    assert holders(server.data_dir) == set()
