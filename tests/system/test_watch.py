"""Watching a real server: real sockets, load, broken connections, and the end of the process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from headrace_bench.process import ServerProcess

from .launching import Servers, wait_until
from .watching import Stream, append, ask, call, watch

pytestmark = pytest.mark.system

WATCHERS = 24
WRITERS = 4
BATCHES = 60
TOPICS = ("load:a", "load:b", "load:c")
TRIES = 5


@pytest.fixture
def server(new_server: Servers) -> ServerProcess:
    return new_server().start()


def gauge(port: int, name: str) -> int:
    status, metrics = call(port, "GET", "/v0/metrics", Accept="application/json")
    assert status == 200
    return int(metrics[name])


def test_every_watcher_gets_every_record_once_whatever_breaks(server: ServerProcess) -> None:
    """Watchers come and go under load; each resumes with the id it worked off last."""
    port = server.port
    for topic in TOPICS:
        ask(port, "PUT", f"/v0/topics/{topic}", {})
    sent: dict[str, int] = dict.fromkeys(TOPICS, 0)
    lock = threading.Lock()

    def write(seed: int) -> None:
        random = Random(seed)
        for _ in range(BATCHES):
            topic = random.choice(TOPICS)
            datas = [f"{seed}:{random.random()}"] * random.choice((1, 1, 7))
            append(port, topic, *datas)
            with lock:
                sent[topic] += len(datas)

    def follow(seed: int) -> dict[str, list[int]]:
        random = Random(seed)
        listed: dict[str, object] = {topic: {} for topic in TOPICS[: 1 + seed % 3]}
        topics = {"load:*": {}} if seed % 3 == 0 else listed
        path = watch(port, topics, limit=random.choice((1, 5, 100)))
        followed = TOPICS if seed % 3 == 0 else tuple(topics)
        seen: dict[str, list[int]] = {topic: [] for topic in followed}
        last_id: str | None = None
        while True:
            headers = {} if last_id is None else {"Last_Event_ID": last_id}
            with Stream(port, path, **headers) as stream:
                for event in stream:
                    if event.name == "record":
                        seqs = [record["$seq"] for record in event.data["records"]]
                        seen[event.data["topic"]] += seqs
                    last_id = event.id or last_id
                    if written.is_set() and all(len(seen[t]) >= sent[t] for t in followed):
                        return seen
                    if random.random() < 0.02:
                        stream.reset()
                        break

    written = threading.Event()
    with ThreadPoolExecutor(WATCHERS + WRITERS) as pool:
        watching = [pool.submit(follow, seed) for seed in range(WATCHERS)]
        for writing in [pool.submit(write, seed) for seed in range(WRITERS)]:
            writing.result()
        written.set()
        for topic in TOPICS:
            append(port, topic, "so that whoever has it all looks up once more")
        for result in watching:
            for topic, seqs in result.result().items():
                assert seqs == list(range(1, len(seqs) + 1))
                assert len(seqs) - sent[topic] in (0, 1)


def test_a_watcher_that_vanished_frees_its_place(new_server: Servers) -> None:
    server = new_server(TOPICS_MAX_SSE_CONNECTIONS="1").start()
    append(server.port, "t", 1)
    path = watch(server.port, {"t": {}})
    other = watch(server.port, {"t": {}})
    stream = Stream(server.port, path)
    stream.next("record")
    status, refusal = call(server.port, "GET", other)
    assert status == 429
    assert refusal["error"]["detail"] == {"limit": "max_sse_connections", "max": 1}
    stream.reset()
    wait_until(lambda: gauge(server.port, "topics_sse_connections") == 0, "the place")
    with Stream(server.port, other) as second:
        second.next("record")


def test_an_old_proxy_gets_no_chunks(server: ServerProcess) -> None:
    append(server.port, "t", {"a": 1})
    with Stream(server.port, watch(server.port, {"t": {}}), version="1.0") as stream:
        assert b"connection: close" in stream.head
        assert b"transfer-encoding" not in stream.head
        assert stream.next("record").data["records"][0]["data"] == {"a": 1}
        stream.next("caught-up")
        append(server.port, "t", 2)
        assert stream.next("record").data["records"][0]["data"] == 2


def test_after_a_crash_the_last_id_makes_a_new_session(server: ServerProcess) -> None:
    append(server.port, "t", *range(10))
    path = watch(server.port, {"t": {}}, limit=4)
    with Stream(server.port, path) as stream:
        stream.next("record")
        assert stream.next("record").data["to_seq"] == 8
        server.kill()
        assert stream.last_id is not None
    server.start()
    status, refusal = call(server.port, "GET", path)
    assert (status, refusal["error"]["code"]) == (404, "not_found")
    path = watch(server.port, {"t": {"from_seq": 0}}, cursor=stream.last_id)
    with Stream(server.port, path) as stream:
        assert [r["data"] for r in stream.next("record").data["records"]] == [8, 9]
        stream.next("caught-up")


def test_a_stop_reaches_everybody_who_watches(server: ServerProcess) -> None:
    append(server.port, "t", 1)
    streams = [Stream(server.port, watch(server.port, {"t": {}})) for _ in range(20)]
    for stream in streams:
        stream.next("record")
        stream.next("caught-up")
    assert server.stop() == 0
    for stream in streams:
        assert stream.next("error").data["code"] == 503
        assert stream.ends()
        stream.close()


def test_an_abandoned_session_gives_its_place_to_another(new_server: Servers) -> None:
    server = new_server(TOPICS_MAX_WATCH_SESSIONS="1", TOPICS_SESSION_TTL_MS="1000").start()
    append(server.port, "t", 1)
    body = {"topics": {"t": {}}}
    path, stream = watch_in_time(server.port, body)
    with stream:
        stream.next("record")
        status, refusal = call(server.port, "POST", "/v0/watch", body)
        assert status == 429
        assert refusal["error"]["detail"] == {"limit": "max_watch_sessions", "max": 1}
    wait_until(lambda: call(server.port, "POST", "/v0/watch", body)[0] == 200, "a free session")
    assert call(server.port, "GET", path)[0] == 404


def watch_in_time(port: int, body: dict[str, object]) -> tuple[str, Stream]:
    """A session and its stream; again if the machine was so slow that the session is over."""
    for _ in range(TRIES):
        path = ask(port, "POST", "/v0/watch", body)["stream_url"]
        with suppress(AssertionError):
            return path, Stream(port, path)
    raise AssertionError("every session was over before its stream was there")


def test_any_origin_may_be_let_in(new_server: Servers) -> None:
    server = new_server(TOPICS_CORS_ORIGINS="*").start()
    append(server.port, "t", 1)
    path = watch(server.port, {"t": {}})
    with Stream(server.port, path, Origin="https://a.example") as stream:
        assert b"access-control-allow-origin: *" in stream.head
        stream.next("record")
