"""A real S3 server for tests: SeaweedFS, one process, on free ports."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEY, SECRET = "headrace", "headrace-secret"
_IDENTITY = {
    "name": "tests",
    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
}
_START_S = 120.0
_STARTS_MAX = 3
_PARTS = ("master", "volume", "filer", "s3")


def find() -> str | None:
    """The program, if it is installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def _ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@contextmanager
def serve(program: str, root: Path) -> Iterator[dict[str, str]]:
    """Run a server in this folder; gives the environment that its clients need."""
    config = root / "s3.json"
    config.write_text(json.dumps({"identities": [_IDENTITY]}))
    process, endpoint = _start(program, root, config)
    try:
        yield {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
        }
    finally:
        _end(process)


def _start(program: str, root: Path, config: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server that answers; again with other ports if somebody was quicker to take one."""
    for attempt in range(1, _STARTS_MAX + 1):
        store = root / f"store{attempt}"
        store.mkdir()
        ports = _ports(2 * len(_PARTS))
        given = [
            f"-{name}.port{grpc}={ports[2 * at + bool(grpc)]}"
            for at, name in enumerate(_PARTS)
            for grpc in ("", ".grpc")
        ]
        command = [
            program, "server", "-ip=127.0.0.1", f"-dir={store}", "-filer", "-s3",
            "-volume.max=8", "-master.volumeSizeLimitMB=64", f"-s3.config={config}",
            "-s3.port.iceberg=0", "-s3.port.lance=0", *given,
        ]  # fmt: skip
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=root)
        endpoint = f"http://127.0.0.1:{ports[6]}"
        try:
            _wait(process, endpoint, root)
        except BaseException as problem:
            _end(process)
            if attempt == _STARTS_MAX or not isinstance(problem, AssertionError):
                raise
        else:
            return process, endpoint
    raise AssertionError("unreachable")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # asked to end, it takes its time, and nobody reads here again
    process.wait()


def _wait(process: subprocess.Popen[bytes], endpoint: str, root: Path) -> None:
    """Until a write succeeds, which takes a little longer than answering."""
    deadline = time.monotonic() + _START_S
    while True:
        assert process.poll() is None, (root / "log").read_text()[-2000:]
        assert time.monotonic() < deadline, (root / "log").read_text()[-2000:]
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # it answers, and wants to know who asks
        except OSError:
            time.sleep(0.1)


def make_bucket(name: str, environ: dict[str, str]) -> None:
    """A new bucket, with a request signed by pyarrow's own client."""
    from pyarrow import fs

    there = fs.S3FileSystem(
        access_key=environ["AWS_ACCESS_KEY_ID"],
        secret_key=environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=environ["AWS_ENDPOINT_URL"],
        region=environ["AWS_REGION"],
        allow_bucket_creation=True,
    )
    deadline = time.monotonic() + _START_S
    while True:
        try:
            there.create_dir(name)
            with there.open_output_stream(f"{name}/ready") as file:
                file.write(b"ready")
            there.delete_file(f"{name}/ready")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
