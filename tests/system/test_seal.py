"""A small server has a history: after a while, and when somebody asks for it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from headrace import cli
from headrace.formats.manifest import decode_root
from headrace_bench.process import ServerProcess

from .launching import Servers, manifest_of, wait_until

KEYS = "root,reader:read,acme:admin:acme:"


def append(server: ServerProcess, topic: str, count: int) -> None:
    body = json.dumps({"records": [{"data": n} for n in range(count)]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer root"}
    request = urllib.request.Request(f"{server.url}/v0/topics/{topic}", body, headers)
    with urllib.request.urlopen(request) as reply:
        assert reply.status in (200, 201)


def sealed_rows(data_dir: Path) -> int:
    path = data_dir / f"objects/manifests/{manifest_of(data_dir):010d}.json"
    if not path.exists():
        return 0
    return sum(segment.rows for segment in decode_root(path.read_bytes(), "").segments)


def test_records_that_waited_are_sealed(new_server: Servers, tmp_path: Path) -> None:
    server = new_server(
        tmp_path / "small", TOPICS_API_KEYS=KEYS, HEADRACE_SEAL_MS="50", STREAMS_METRICS_MS="0"
    ).start()
    append(server, "orders", 3)
    wait_until(lambda: sealed_rows(tmp_path / "small") == 3, "three records in a segment")


def test_the_command_has_a_server_seal(
    new_server: Servers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = new_server(tmp_path / "data", TOPICS_API_KEYS=KEYS, STREAMS_METRICS_MS="0").start()

    def seal(*more: str, key: str = "root") -> tuple[int, str]:
        monkeypatch.setenv("HEADRACE_API_KEY", key)
        with pytest.raises(SystemExit) as ended:
            cli.main(["pipeline", "seal", *more])
        said = capsys.readouterr()
        assert (said.out + said.err).count("\n") == 1, "more than one line"
        return int(ended.value.code or 0), said.out + said.err

    append(server, "orders", 3)
    assert sealed_rows(tmp_path / "data") == 0
    status, said = seal("--url", server.url)
    assert (status, sealed_rows(tmp_path / "data")) == (0, 3), said
    assert "3 records sealed into 1 segment" in said
    status, said = seal("--url", server.url)
    assert status == 0
    assert "nothing waits" in said
    status, said = seal("--url", server.url, "--retire-journal")
    assert status == 0
    assert "the journal holds no record" in said
    for key in ("", "nobody", "reader", "acme"):
        status, said = seal("--url", server.url, key=key)
        assert (status, "HEADRACE_API_KEY" in said) == (2, True), said
    assert seal("--url", "somewhere")[0] == 2
    port = server.url.rpartition(":")[2]
    monkeypatch.setenv("TOPICS_PORT", port)
    assert server.stop() == 0
    status, said = seal()
    assert (status, f"127.0.0.1:{port}" in said, "start it" in said) == (2, True, True), said
