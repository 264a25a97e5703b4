"""httpx-sse, a Python client of event streams, against a real server over a line that breaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from httpx_sse import ServerSentEvent, connect_sse

from headrace_bench.process import ServerProcess

from .delivery_promise import ANSWER_S, CUTS, HEADERS, RECORDS, TOPICS, check, is_whole, write
from .flaky import FlakyLine

pytestmark = pytest.mark.system

Frame = dict[str, Any]


def new_client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers=HEADERS, timeout=ANSWER_S, trust_env=False)


def new_session(client: httpx.Client, **more: Any) -> str:
    body = {"topics": {topic: {} for topic in TOPICS}, "limit": 2, **more}
    reply = client.post("/v0/watch", json=body).raise_for_status()
    return str(reply.json()["stream_url"])


def events(client: httpx.Client, path: str, last_id: str = "") -> Iterator[ServerSentEvent]:
    """The events of one stream until it breaks or ends."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with suppress(httpx.TransportError), connect_sse(client, "GET", path, headers=headers) as found:
        found.response.raise_for_status()
        yield from found.iter_sse()


def test_a_broken_line_loses_and_repeats_nothing(server: ServerProcess) -> None:
    frames: list[Frame] = []
    last_id = ""
    write(server.url, 1, RECORDS // 3)
    with FlakyLine(lambda: server.port, [b"GET /v0/watch/"], CUTS) as line:
        with new_client(line.url) as client:
            path = new_session(client)
            writer = threading.Thread(target=write, args=(server.url, RECORDS // 3 + 1, RECORDS))
            writer.start()
            while not is_whole(frames):
                for event in events(client, path, last_id):
                    if event.event == "record":
                        frames.append(json.loads(event.data))
                        last_id = event.id
                    if is_whole(frames):
                        break
            writer.join()
        assert line.cuts == len(CUTS)
    check(frames)


def test_a_killed_server_loses_and_repeats_nothing(server: ServerProcess) -> None:
    frames: list[Frame] = []
    write(server.url, 1, RECORDS // 2)
    with new_client(server.url) as client:
        last_id = ""
        for event in events(client, new_session(client)):
            if event.event == "record":
                frames.append(json.loads(event.data))
                last_id = event.id
            if len(frames) == RECORDS // 4:
                break
    server.kill()
    server.start()
    write(server.url, RECORDS // 2 + 1, RECORDS)
    with new_client(server.url) as client:
        for event in events(client, new_session(client, cursor=last_id)):
            if event.event == "record":
                frames.append(json.loads(event.data))
            if is_whole(frames):
                break
    check(frames)


def test_work_over_a_broken_line_is_all_done(server: ServerProcess) -> None:
    jobs = 60
    done: list[int] = []
    with new_client(server.url) as direct:
        direct.put("/v0/topics/jobs", json={"type": "queue"}).raise_for_status()
        records = [{"data": number} for number in range(jobs)]
        direct.post("/v0/topics/jobs", json={"records": records}).raise_for_status()
        path = "/v0/topics/jobs/work?node=w&max=4"
        with (
            FlakyLine(lambda: server.port, [b"GET /v0/topics/jobs/work"], CUTS) as line,
            new_client(line.url) as client,
        ):
            while len(done) < jobs:
                for event in events(client, path):
                    if event.event != "job":
                        continue
                    job = json.loads(event.data)
                    body = {"node": "w", "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]]}
                    reply = direct.post("/v0/topics/jobs/ack", json=body).raise_for_status()
                    done += [job["data"]] * reply.json()["acked"]
                    if len(done) == jobs:
                        break
            assert line.cuts == len(CUTS)
        assert sorted(done) == list(range(jobs))
        queue = direct.get("/v0/topics/jobs").raise_for_status().json()
    assert (queue["count"], queue["queue"]["in_flight"]) == (0, 0)
