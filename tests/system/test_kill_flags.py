"""Manifests of a server that is killed while they come: a version and its contents are both there
or neither, what was acknowledged is there, and of many behind one version one has won.
"""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread

from conformance.archives import FORM_TYPE, make_form, pack_files, unpack_files
from headrace_bench.process import ServerProcess
from support.manifests import FLAG_FILE

from .launching import Servers, run_headrace, wait_until

TIMEOUT_S = 30.0
WRITERS = 3
FILES = 6
AVAILABLE = 3
ROUNDS = 3
UPLOADS_MIN = 20
"""Acknowledged in a round before the server is killed; others are under way then."""
SHARED = "shared"
Files = dict[str, bytes]


class Line:
    """One client."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def close(self) -> None:
        self._line.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        path = path if path.startswith("/v0") else f"/api/v1/tenants{path}"
        headers = {"Content_Type": "application/json", **headers}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._line.request(method, path, body, named)
        answer = self._line.getresponse()
        return answer.status, answer.read()

    def put(self, namespace: str, files: Files, if_version: int) -> tuple[int, bytes]:
        return self.ask(
            "PUT",
            f"/acme/namespaces/{namespace}/manifest",
            make_form("archive", pack_files(files)),
            Content_Type=FORM_TYPE,
            If_Version=str(if_version),
        )

    def get(self, namespace: str, path: str = "") -> bytes:
        status, body = self.ask("GET", f"/acme/namespaces/{namespace}/manifest{path}")
        assert status == 200, body
        return body


class Writer:
    """Uploads to a namespace of its own and, in competition with others, to one of all."""

    def __init__(self, number: int) -> None:
        self._rng = random.Random(number)
        self.own = f"own-{number}"
        self._number = number
        self._sent = 0
        self._files = {self.own: dict[str, bytes](), SHARED: {}}
        self.offered: dict[str, list[Files]] = {self.own: [], SHARED: []}
        self.acknowledged: dict[tuple[str, int], Files] = {}
        """(namespace, version) → what it is."""
        self.lost = 0
        self.refused: list[bytes] = []

    def live(self, port: int, ended: Event) -> None:
        """Until the server is gone."""
        with closing(Line(port)) as line:
            try:
                while not ended.is_set() and not self.refused:
                    self._upload(line, self._rng.choice((self.own, SHARED)))
            except (OSError, http.client.HTTPException):
                return

    def _upload(self, line: Line, namespace: str) -> None:
        self._sent += 1
        files = dict(self._files[namespace])
        for at in self._rng.sample(range(FILES), self._rng.randint(1, 3)):
            said = self._rng.choice(("the same for all", f"{self._number}.{self._sent}"))
            files[f"flags/f{at}.toml"] = FLAG_FILE.format(said=said).encode()
        self._files[namespace] = files
        listed = json.loads(line.get(namespace, "/versions?limit=1"))["versions"]
        current = listed[0]["version"] if listed else 0
        self.offered[namespace].append(files)
        status, body = line.put(namespace, files, current)
        if status == 200:
            self.acknowledged[namespace, json.loads(body)["version"]] = files
        elif status == 409 and namespace == SHARED:
            self.lost += 1
        else:
            self.refused.append(body)


def live_round(server: ServerProcess, writers: list[Writer]) -> None:
    """Upload for a while, and kill the server in the middle of it."""

    def acknowledged() -> int:
        return sum(len(writer.acknowledged) for writer in writers)

    ended, before = Event(), acknowledged()
    threads = [Thread(target=writer.live, args=(server.port, ended)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        wait_until(
            lambda: acknowledged() >= before + UPLOADS_MIN or any(w.refused for w in writers),
            "uploads to be acknowledged",
        )
        server.kill()
    finally:
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert not [refusal for writer in writers for refusal in writer.refused]


def rows_of(line: Line, namespace: str) -> Iterator[dict[str, str]]:
    """The files of each version, by digest, as its rows tell them."""
    listed = json.loads(line.get(namespace, "/versions"))["versions"]
    assert [each["version"] for each in listed] == list(range(len(listed), 0, -1))
    tree: dict[str, str] = {}
    for version in range(1, len(listed) + 1):
        row = json.loads(line.get(namespace, f"/versions/{version}"))["version"]
        for file in row["files"]:
            if file["op"] == "removed":
                del tree[file["path"]]
            else:
                tree[file["path"]] = file["sha256"]
        yield dict(tree)


def digests(files: Files) -> dict[str, str]:
    return {path: sha256(content).hexdigest() for path, content in files.items()}


def judge(line: Line, writers: list[Writer]) -> None:
    """What was acknowledged is there as that version, and the rest is something that was offered;
    every version that is available has all its contents.
    """
    for namespace in [SHARED, *(writer.own for writer in writers)]:
        versions = list(rows_of(line, namespace))
        offered = [
            digests(files) for writer in writers for files in writer.offered.get(namespace, ())
        ]
        won = [
            (version, files)
            for writer in writers
            for (name, version), files in writer.acknowledged.items()
            if name == namespace
        ]
        assert len({version for version, _ in won}) == len(won), "two had the same version"
        for version, files in won:
            assert versions[version - 1] == digests(files), f"{namespace}, version {version}"
        assert all(tree in offered for tree in versions)
        for version in range(max(1, len(versions) - AVAILABLE + 1), len(versions) + 1):
            path = f"/acme/namespaces/{namespace}/closure?version={version}&subscription=Kg"
            status, packed = line.ask("GET", path)
            assert status == 200, packed
            files = {name: text.encode() for name, text in unpack_files(packed).items()}
            assert digests(files) == versions[version - 1]


def test_a_killed_server_has_versions_with_their_contents(
    data_dir: Path, new_server: Servers
) -> None:
    # Small journal files: some of it is sealed, some is not, and snapshots are taken; few versions
    # are available: contents go all the time.
    server = new_server(
        HEADRACE_SEAL_BYTES="65536", FLAGS_RETENTION_VERSIONS=str(AVAILABLE), FLAGS_RETENTION_MS="0"
    ).start()
    writers = [Writer(number) for number in range(WRITERS)]
    with closing(Line(server.port)) as line:
        assert line.ask("POST", "", b'{"slug": "acme"}')[0] == 201
        for name in (SHARED, *(writer.own for writer in writers)):
            body = json.dumps({"slug": name}).encode()
            assert line.ask("POST", "/acme/namespaces", body)[0] == 201
    for _ in range(ROUNDS):
        live_round(server, writers)
        server.start()
        with closing(Line(server.port)) as line:
            judge(line, writers)
    assert any(writer.lost for writer in writers), "nobody competed"
    server.kill()
    checked = run_headrace("verify", "--data-dir", str(data_dir))
    assert checked.returncode == 0, checked.stdout
    server.start()
    with closing(Line(server.port)) as line:
        judge(line, writers)
        metrics = line.ask("GET", "/v0/metrics")[1]
        assert b"\nflags_contents " in metrics
        assert b"\nflags_contents 0\n" not in metrics
        for name in (SHARED, *(writer.own for writer in writers)):
            assert line.ask("DELETE", f"/acme/namespaces/{name}")[0] == 204
        assert b"\nflags_contents 0\n" in line.ask("GET", "/v0/metrics")[1]
    server.kill()
    checked = run_headrace("verify", "--data-dir", str(data_dir))
    assert checked.returncode == 0, checked.stdout
