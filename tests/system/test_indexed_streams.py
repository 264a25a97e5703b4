"""Answers over HTTP from companions that somebody made beside the running server."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.storage.disk import RealDisk
from headrace.storage.objects import LocalObjects
from support.fake_indexer import FakeIndexer

from .launching import Servers

pytestmark = pytest.mark.system

RECORDS = 200
POLLS_MAX = 30
"""Each of them waits for a change, for three seconds at most."""


def bound(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}


UPDATE = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/user", "required": True},
    "search": {
        "primaryTimestampField": "at",
        "fields": {
            "at": bound("date", "at", column=True),
            "service": bound("keyword", "service", exact=True),
            "ms": bound("float", "ms", column=True, aggregatable=True),
            "msg": bound("text", "msg", analyzer="unicode_word_v1"),
        },
        "rollups": {
            "latency": {
                "dimensions": ["service"],
                "intervals": ["1m"],
                "measures": {
                    "n": {"kind": "count"},
                    "ms": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
                },
            }
        },
    },
}


class Client:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.tag = ""

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        raw = None if body is None else json.dumps(body)
        sent = {"content-type": "application/json"} if raw is not None else {}
        self._connection.request(method, f"/v1/stream/s{path}", raw, {**sent, **headers})
        reply = self._connection.getresponse()
        self.tag = reply.headers.get("etag", "")
        text = reply.read()
        return reply.status, json.loads(text) if text else None

    def wait_for(self, resource: str, *, covered: int, segments: int) -> dict[str, Any]:
        """The descriptor when it tells of so much, waiting as a page that shows it would."""
        tag = ""
        for _ in range(POLLS_MAX):
            headers = {"if-none-match": tag} if tag else {}
            status, found = self.call("GET", f"/{resource}?live=true", **headers)
            assert status in (200, 304)
            tag = self.tag
            if status == 304:
                continue
            told: dict[str, Any] = found
            status_of = told if resource == "_index_status" else told["index_status"]
            done = {family["covered_segment_count"] for family in status_of["search_families"]}
            planned = status_of["desired_index_plan_generation"] > 0
            if planned and status_of["segments"]["total_count"] >= segments and done == {covered}:
                return told
        raise AssertionError(f"not indexed in time: {found}")


def document(number: int) -> dict[str, Any]:
    return {
        "at": 60_000 * (number // 50) + number,
        "service": "ab"[number % 2],
        "ms": number % 7,
        "user": f"u{number % 5}",
        "msg": f"message {number} {'x' * 100}",
    }


def test_what_was_indexed_meanwhile_is_used_and_told(new_server: Servers, data_dir: Path) -> None:
    server = new_server(HEADRACE_SEAL_BYTES="16000", HEADRACE_TAIL_BYTES="0").start()
    with closing(Client(server.port)) as client:
        check(client, data_dir)
    assert server.stop() == 0


def check(client: Client, data_dir: Path) -> None:
    assert client.call("PUT", "", [])[0] == 201
    assert client.call("POST", "/_schema", UPDATE)[0] == 200
    for start in range(0, RECORDS, 20):
        records = [document(number) for number in range(start, start + 20)]
        assert client.call("POST", "", records)[0] == 200
    client.wait_for("_details", covered=0, segments=1)
    asked = {"rollup": "latency", "from": 0, "to": 10**9, "interval": "1m", "group_by": ["service"]}
    _, before = client.call("POST", "/_aggregate", asked)
    assert before["coverage"]["complete"]
    assert not before["coverage"]["used_rollups"]
    assert count(before) == RECORDS
    _, keys_before = client.call("GET", "/_routing_keys?limit=3")

    fake_indexer = FakeIndexer(LocalObjects(RealDisk(data_dir)))
    made = {build.name for build in fake_indexer.index()}
    status = client.wait_for("_index_status", covered=len(made), segments=len(made))
    col = next(f for f in status["search_families"] if f["family"] == "col")
    assert (col["object_count"], col["stale_segment_count"]) == (len(made), 0)
    assert int(col["bytes_at_rest"]) > 0
    assert status["routing_key_lexicon"]["configured"]
    assert int(status["routing_key_lexicon"]["bytes_at_rest"]) > 0
    assert status["exact_indexes"][0]["name"] == "service"

    _, after = client.call("POST", "/_aggregate", asked)
    assert after["coverage"]["used_rollups"]
    assert after["coverage"]["index_families_used"] == ["agg", "col"]
    assert after["coverage"]["indexed_segments"] == len(made)
    assert after["buckets"] == before["buckets"]
    _, keys_after = client.call("GET", "/_routing_keys?limit=3")
    assert keys_after["keys"] == keys_before["keys"] == ["u0", "u1", "u2"]
    assert keys_after["next_after"] == "u2"
    assert keys_after["timing"]["lexicon_runs_loaded"] == len(made)
    assert keys_after["coverage"]["indexed_segments"] == len(made)
    _, details = client.call("GET", "/_details")
    assert int(details["storage"]["companion_families"]["agg_bytes"]) > 0
    assert details["storage"]["object_storage"]["bundled_companion_object_count"] == len(made)


def count(found: dict[str, Any]) -> int:
    return sum(
        group["measures"]["n"]["count"] for bucket in found["buckets"] for group in bucket["groups"]
    )
