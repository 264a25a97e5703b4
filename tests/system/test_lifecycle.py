"""How a server starts, refuses to start, and stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from .kill_history import Clock
from .launching import Servers, is_read_by_server, run_headrace, serve_to_the_end, wait_until
from .topics_wire import Connection, read_pages

pytestmark = pytest.mark.system

DEADLINE_S = 120.0
DRAIN_LIMIT_S = 10.0
POLL_S = 30
TRIES = 3


def append(port: int, topic: str, *data: object, durability: str = "fsync") -> None:
    body = {"records": [{"data": value} for value in data], "config": {"durability": durability}}
    with Connection(port) as connection:
        connection.ask("POST", f"/v0/topics/{topic}", body)


def read_data(port: int, topic: str) -> list[object]:
    with Connection(port) as connection:
        pages = read_pages(connection, Clock(), topic)
    return [json.loads(seen.payload.data) for page in pages for seen in page.records]


# --- one process a directory ---


def test_a_second_process_on_the_same_data_refuses_to_start(
    new_server: Servers, data_dir: Path
) -> None:
    server = new_server().start()
    refused = serve_to_the_end(data_dir)
    assert refused.returncode != 0
    assert str(data_dir) in refused.stdout
    assert "Traceback" not in refused.stdout
    append(server.port, "still", "works")


def test_a_killed_process_leaves_no_lock_behind(new_server: Servers) -> None:
    server = new_server().start()
    server.kill()
    server.start()
    assert server.stop() == 0


# --- stopping ---


class LongPoll(threading.Thread):
    """One diff that waits for a record nobody writes."""

    def __init__(self, port: int, topic: str, after: int) -> None:
        super().__init__()
        self.status = 0
        self.body: Any = None
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        self._http.request("GET", "/v0/health")
        self._http.getresponse().read()
        body = json.dumps({"from_seq": after, "wait_ms": POLL_S * 1000})
        headers = {"Content-Type": "application/json"}
        self._http.request("POST", f"/v0/topics/{topic}/diff", body, headers)
        assert self._http.sock is not None
        sock = self._http.sock
        wait_until(lambda: is_read_by_server(sock), "the server to read a request")

    def run(self) -> None:
        with closing(self._http):
            response = self._http.getresponse()
            self.status = response.status
            self.body = json.loads(response.read())


def test_a_stop_answers_long_polls_and_keeps_the_data(new_server: Servers) -> None:
    server = new_server().start()
    for durability in ("fsync", "disk", "memory"):
        append(server.port, durability, 1, 2, 3, durability=durability)
    polls = [LongPoll(server.port, "disk", after=3) for _ in range(5)]
    for poll in polls:
        poll.start()
    began = time.monotonic()
    status = server.stop()
    took = time.monotonic() - began
    for poll in polls:
        poll.join()
    assert status == 0, server.output()
    assert took < POLL_S - 3, "only when the polls were over"
    for poll in polls:
        if poll.status == 200:
            assert (poll.body["records"], poll.body["next_from_seq"]) == ([], 3)
        else:
            assert (poll.status, poll.body["error"]["code"]) == (503, "shutting_down")
    assert "Traceback" not in server.output(), server.output()
    server.start()
    for durability in ("fsync", "disk", "memory"):
        assert read_data(server.port, durability) == [1, 2, 3]


def test_a_stop_without_any_client_is_quick_and_clean(new_server: Servers) -> None:
    """One of several tries is enough: whoever waits for nobody does so every time."""
    server = new_server()
    took = []
    for _ in range(TRIES):
        server.start()
        began = time.monotonic()
        assert server.stop() == 0, server.output()
        took.append(time.monotonic() - began)
        assert "Traceback" not in server.output(), server.output()
        if took[-1] < DRAIN_LIMIT_S:
            return
    pytest.fail(f"as if there were somebody to wait for: {took}")


def test_a_stop_waits_for_no_webhook(new_server: Servers) -> None:
    """The receiver sends a byte now and then, for ever."""
    called, over = threading.Event(), threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            called.set()
            while not over.wait(0.2):
                connection.sendall(b".")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=drip, args=(listener,), daemon=True)
        receiver.start()
        server = new_server(HEADRACE_WEBHOOK_HOSTS="127.0.0.1").start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with Connection(server.port) as connection:
            wanted = {"type": "webhook", "pattern": "a", "webhook": {"url": url}}
            connection.ask("PUT", "/ds/v1/stream/__ds/subscriptions/s", wanted)
            assert connection.call("PUT", "/ds/v1/stream/a", b"[1]")[0] == 201
        assert called.wait(DEADLINE_S)
        assert server.stop() == 0
        assert "Traceback" not in server.output()
        over.set()
        receiver.join()


def test_an_interrupt_stops_like_a_termination(new_server: Servers) -> None:
    server = new_server().start()
    append(server.port, "t", 1, durability="disk")
    os.kill(server.pid, signal.SIGINT)
    pid = server.pid
    wait_until(lambda: is_zombie(pid), "the server to end")
    assert server.stop() in (0, 130), server.output()
    assert "Traceback" not in server.output(), server.output()
    server.start()
    assert read_data(server.port, "t") == [1]


def is_zombie(pid: int) -> bool:
    """Whether a child has ended and waits for its parent to notice."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


# --- readiness ---


def test_the_port_answers_while_the_journal_is_replayed(new_server: Servers) -> None:
    """A quick machine may be ready at once; what it says on the way must have the right shape."""
    server = new_server().start()
    records = [{"data": {"n": n, "pad": "x" * 200}, "tag": f"t{n}"} for n in range(2000)]
    topics = [f"replayed-{number}" for number in range(25)]
    with Connection(server.port) as connection:
        for topic in topics:
            connection.ask("POST", f"/v0/topics/{topic}", {"records": records})
    server.kill()
    server.start(wait_ready=False)
    progress = watch_recovery(server.port)
    assert progress == sorted(progress)
    for topic in topics[::8]:
        assert len(read_data(server.port, topic)) == 2000


def watch_recovery(port: int) -> list[float]:
    """Ask for readiness until it is given; check each answer and return what was told meanwhile."""
    progress = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        status, headers, body = get(port, "/v0/ready")
        assert get(port, "/v0/health")[0] == 200
        if status == 200:
            assert body["status"] == "ready"
            assert body["wal_replay_complete"] is True
            return progress
        assert status == 503
        assert "Retry-After" in headers
        assert body["error"]["code"] == "not_ready"
        progress.append(body["error"]["detail"]["replay_progress"])
        assert 0.0 <= progress[-1] <= 1.0
        check_refused_while_recovering(port)
    raise AssertionError(f"not ready: {progress[-5:]}")


def check_refused_while_recovering(port: int) -> None:
    """A request that comes too early gets 503, never an answer from half of the data."""
    status, _, body = get(port, "/v0/topics/replayed-0")
    if status == 503:
        assert body["error"]["code"] == "not_ready"
    else:
        assert (status, body["head_seq"]) == (200, 2000)


def get(port: int, path: str) -> tuple[int, Any, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read())


def test_probes_answer_at_the_root_too(new_server: Servers) -> None:
    server = new_server().start()
    for path in ("/v0/health", "/healthz"):
        status, _, body = get(server.port, path)
        assert (status, body["status"]) == (200, "ok")
    for path in ("/v0/ready", "/readyz"):
        status, _, body = get(server.port, path)
        assert (status, body["status"]) == (200, "ready")


# --- where it listens ---


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_public_address_without_keys_is_refused(host: str, data_dir: Path) -> None:
    refused = serve_to_the_end(data_dir, TOPICS_HOST=host)
    assert refused.returncode != 0
    assert "HEADRACE_API_KEYS" in refused.stdout
    assert "HEADRACE_ALLOW_INSECURE_NO_AUTH" in refused.stdout
    assert "Traceback" not in refused.stdout
    assert not data_dir.exists(), "a refused start left something behind"


def test_a_public_address_with_keys_starts(new_server: Servers) -> None:
    server = new_server(TOPICS_HOST="0.0.0.0", TOPICS_API_KEYS="secret-of-ops").start()
    status, _, body = get(server.port, "/v0/topics")
    assert (status, body["error"]["code"]) == (401, "unauthorized")
    assert "secret-of-ops" not in server.output()
    assert server.stop() == 0


def test_a_public_address_without_keys_starts_when_asked_to(new_server: Servers) -> None:
    server = new_server(TOPICS_HOST="0.0.0.0", TOPICS_ALLOW_INSECURE_NO_AUTH="1").start()
    assert get(server.port, "/v0/topics")[0] == 200


def test_a_taken_port_is_named(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = serve_to_the_end(data_dir, TOPICS_PORT=port)
    assert refused.returncode != 0
    assert port in refused.stdout
    assert "Traceback" not in refused.stdout


def test_the_port_file_tells_the_port(new_server: Servers, data_dir: Path) -> None:
    """The way tests and supervisors learn a port that the system chose."""
    server = new_server().start()
    port_file = data_dir.parent / f"{data_dir.name}.port"
    assert port_file.read_text() == f"{server.port}\n"
    assert get(server.port, "/v0/ready")[0] == 200


# --- settings ---


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOPICS_PORT", "banana"),
        ("TOPICS_PORT", "70000"),
        ("TOPICS_MAX_BATCH_RECORDS", "-1"),
        ("TOPICS_MAX_BODY_BYTES", "many"),
        ("TOPICS_API_KEYS", "key:fly"),
        ("TOPICS_API_KEYS", ","),
        ("HEADRACE_SEAL_BYTES", "0"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str, data_dir: Path) -> None:
    refused = serve_to_the_end(data_dir, **{name: value})
    assert refused.returncode != 0
    assert name in refused.stdout
    assert "Traceback" not in refused.stdout
    assert not data_dir.exists(), "a refused start left something behind"


def test_every_wrong_setting_is_named_at_once(data_dir: Path) -> None:
    refused = serve_to_the_end(data_dir, TOPICS_PORT="x", TOPICS_MAX_TOPICS="y")
    assert "TOPICS_PORT" in refused.stdout
    assert "TOPICS_MAX_TOPICS" in refused.stdout


def test_a_data_directory_that_is_a_file_is_named(data_dir: Path) -> None:
    data_dir.write_text("not a directory")
    refused = serve_to_the_end(data_dir)
    assert refused.returncode != 0
    assert str(data_dir) in refused.stdout
    assert "Traceback" not in refused.stdout
    assert data_dir.read_text() == "not a directory"


def test_a_folder_that_cannot_be_used_is_told_in_one_line(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "journal").write_text("not a directory")
    refused = serve_to_the_end(data_dir)
    assert refused.returncode == 2
    assert "journal" in refused.stdout.splitlines()[-1]
    assert "choose another HEADRACE_DATA_DIR" in refused.stdout.splitlines()[-1]
    assert "Traceback" not in refused.stdout


def test_an_unknown_command_shows_what_there_is() -> None:
    refused = run_headrace("fly")
    assert refused.returncode != 0
    for command in ("serve", "inspect", "verify", "pipeline", "bench"):
        assert command in refused.stdout
