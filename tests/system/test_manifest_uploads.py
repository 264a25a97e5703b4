"""Uploads to a real server: hostile ones, one changed file of many, a process that is killed."""

from __future__ import annotations

import gzip
import io
import os
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from headrace_bench.process import ServerProcess

pytestmark = pytest.mark.system

PATIENCE_S = 60.0
NAMESPACE = "/api/v1/tenants/acme/namespaces/billing"
FLAG = b"""
schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
on = true
off = false
[flag.environments._]
variant = "off"
"""
SEGMENT = b"""
schema_version = "0.1"
[segment.predicate]
attribute = "plan"
op = "eq"
value = "pro"
"""


class Client:
    """Somebody who uploads to the namespace."""

    def __init__(self, server: ServerProcess) -> None:
        self._http = httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def make_namespace(self) -> None:
        self.post("/api/v1/tenants", {"slug": "acme"}).raise_for_status()
        self.post("/api/v1/tenants/acme/namespaces", {"slug": "billing"}).raise_for_status()

    def put(self, archive: bytes) -> httpx.Response:
        return self._http.put(f"{NAMESPACE}/manifest", files={"archive": archive})

    def lint(self, archive: bytes) -> httpx.Response:
        return self._http.post(f"{NAMESPACE}/manifest/lint", files={"archive": archive})

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path)

    def post(self, path: str, body: object) -> httpx.Response:
        return self._http.post(path, json=body)

    def count(self, metric: str) -> int:
        reply = self._http.get("/v0/metrics", headers={"Accept": "application/json"})
        return int(reply.raise_for_status().json()[metric])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("manifests") / "data") as server:
        with Client(server) as client:
            client.make_namespace()
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server) as client:
        yield client


def pack(fill: Callable[[tarfile.TarFile], None]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        fill(archive)
    return raw.getvalue()


def add(archive: tarfile.TarFile, path: str, content: bytes = b"") -> None:
    member = tarfile.TarInfo(path)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def one(path: str) -> bytes:
    return pack(lambda archive: add(archive, path, FLAG))


def special(kind: bytes) -> bytes:
    member = tarfile.TarInfo("flags/a.toml")
    member.type, member.linkname = kind, "/etc/passwd"
    return pack(lambda archive: archive.addfile(member))


def crowd(archive: tarfile.TarFile) -> None:
    for number in range(20_001):
        add(archive, f"f{number}")


def files(**contents: bytes) -> bytes:
    def fill(archive: tarfile.TarFile) -> None:
        for key, content in contents.items():
            add(archive, f"flags/{key.replace('_', '-')}.toml", content)

    return pack(fill)


def bomb(archive: tarfile.TarFile) -> None:
    for number in range(70):
        add(archive, f"zeroes{number}", bytes(1 << 20))


def liar() -> bytes:
    """A header that promises far more than there is."""
    member = tarfile.TarInfo("flags/a.toml")
    member.size = 8 << 30
    return gzip.compress(member.tobuf() + bytes(1024))


def duplicates(archive: tarfile.TarFile) -> None:
    add(archive, "flags/a.toml", FLAG)
    add(archive, "./flags/a.toml", FLAG)


HOSTILE: dict[str, tuple[Callable[[], bytes], int, str | None]] = {
    "a bomb": (lambda: pack(bomb), 413, "too_large"),
    "one that promises more than it has": (liar, 413, "too_large"),
    "a bomb in a bomb": (
        lambda: gzip.compress(gzip.compress(bytes(1 << 26))), 400, "malformed",
    ),
    "too many members": (lambda: pack(crowd), 413, "too_many_members"),
    "a way out": (lambda: one("../../flags/a.toml"), 400, "unsafe_path"),
    "an absolute path": (lambda: one("/flags/a.toml"), 400, "unsafe_path"),
    "a directory around it": (lambda: one("billing/flags/a.toml"), 400, "misplaced"),
    "a way out and back": (lambda: one("flags/../flags/a.toml"), 400, "unsafe_path"),
    "the same file twice": (lambda: pack(duplicates), 400, "duplicate_path"),
    "a device": (lambda: special(tarfile.CHRTYPE), 400, "special_file"),
    "a fifo": (lambda: special(tarfile.FIFOTYPE), 400, "special_file"),
    "a symbolic link": (lambda: special(tarfile.SYMTYPE), 422, None),
    "a hard link": (lambda: special(tarfile.LNKTYPE), 422, None),
    "no tar": (lambda: gzip.compress(b"no tar" * 1000), 400, "malformed"),
    "half of one": (lambda: files(a=FLAG)[:-20], 400, "truncated"),
}  # fmt: skip
"""What to upload, and the status and the reason of the refusal; without one it is lint's."""
CODES = {400: "invalid_request", 413: "payload_too_large", 422: "manifest_lint_failed"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_and_hurt_nobody(client: Client, name: str) -> None:
    make, status, reason = HOSTILE[name]
    archive = make()
    version = current(client)
    starts = client.count("flags_manifest_process_starts_total")
    reply = client.put(archive)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert (error["code"], error["details"].get("reason")) == (CODES[status], reason)
    if reason is None:
        assert [each["code"] for each in error["details"]["lint"]["errors"]] == ["E018"]
    linted = client.lint(archive)
    assert linted.status_code == (200 if reason is None else status)
    assert current(client) == version
    assert client.put(files(good=FLAG)).json()["version"] == version + 1
    assert client.count("flags_manifest_process_failures_total") == 0
    assert client.count("flags_manifest_process_starts_total") == max(starts, 1)


def current(client: Client) -> int:
    listed = client.get(f"{NAMESPACE}/manifest/versions?limit=1").json()["versions"]
    return listed[0]["version"] if listed else 0


def test_toml_that_nobody_can_parse_in_time_is_a_lint_error(client: Client) -> None:
    deep = b'schema_version = "0.1"\nx = ' + b"[" * 10_000 + b"]" * 10_000
    wide = b'schema_version = "0.1"\n' + b".".join([b"a"] * 50_000) + b" = 1"
    reply = client.put(files(deep=deep, wide=wide, long=b"#" * 300_000))
    assert reply.status_code == 422
    errors = reply.json()["error"]["details"]["lint"]["errors"]
    assert [(each["code"], each["path"]) for each in errors] == [
        ("H001", "flags/deep.toml"),
        ("H001", "flags/long.toml"),
        ("H001", "flags/wide.toml"),
    ]


def test_of_1200_files_of_which_one_changed_one_is_parsed(client: Client) -> None:
    contents = {f"flags/f{number}.toml": FLAG + b"# %d" % number for number in range(1000)}
    contents |= {f"segments/s{number}.toml": SEGMENT for number in range(200)}

    def fill(archive: tarfile.TarFile) -> None:
        for path, content in contents.items():
            add(archive, path, content)

    def upload() -> tuple[int, int]:
        checked = client.count("flags_manifest_files_checked_total")
        parsed = client.count("flags_manifest_files_parsed_total")
        reply = client.put(pack(fill))
        assert (reply.json()["flag_count"], reply.json()["segment_count"]) == (1000, 200)
        return (
            client.count("flags_manifest_files_checked_total") - checked,
            client.count("flags_manifest_files_parsed_total") - parsed,
        )

    assert upload() == (1200, 1200)
    contents["flags/f7.toml"] = FLAG + b"# changed"
    assert upload() == (1200, 1)
    assert upload() == (1200, 0)
    changed = client.get(f"{NAMESPACE}/manifest/versions/{current(client) - 1}").json()["version"]
    assert [each["path"] for each in changed["files"]] == ["flags/f7.toml"]


def test_a_process_that_is_killed_costs_nobody_an_upload(
    server: ServerProcess, client: Client
) -> None:
    """Whenever it is killed, what it was at is begun anew; only a second time is refused."""
    version, stop = current(client), threading.Event()
    answers: list[int] = []

    def upload() -> None:
        with Client(server) as uploader:
            while not stop.is_set():
                answers.append(uploader.put(files(a=FLAG + b"# %d" % len(answers))).status_code)

    threads = [threading.Thread(target=upload) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    kills = 0
    while kills < 5:
        assert time.monotonic() < deadline
        kills += kill_worker(server)
        seen = len(answers)
        while len(answers) < seen + 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert answers.count(200) + answers.count(503) == len(answers)
    assert answers.count(503) <= kills
    assert current(client) == version + answers.count(200)
    assert client.put(files(a=FLAG)).status_code == 200


def kill_worker(server: ServerProcess) -> bool:
    """Kill the manifest process of a server, if it has one."""
    pid = worker_of(server)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pid is not None


def worker_of(server: ServerProcess) -> int | None:
    """The manifest process of a server."""
    for line in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split():
        with suppress(OSError):
            if b"manifest_worker" in Path(f"/proc/{line}/cmdline").read_bytes():
                return int(line)
    return None


def test_the_process_ends_with_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with Client(server) as client:
            client.make_namespace()
            assert worker_of(server) is None  # there is none before the first upload
            assert client.put(files(a=FLAG)).status_code == 200
        worker = worker_of(server)
        server.kill()
        wait_until_gone(worker)
        server.start()
        with Client(server) as client:
            evaluated = client.post(f"{NAMESPACE}/evaluate", {"flag": "a"})
            assert evaluated.json()["value"] is False  # parsed anew, by a new process
        worker = worker_of(server)
        server.stop()
        wait_until_gone(worker)


def wait_until_gone(pid: int | None) -> None:
    assert pid is not None
    deadline = time.monotonic() + PATIENCE_S
    with suppress(FileNotFoundError):
        while b") Z" not in Path(f"/proc/{pid}/stat").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)
