"""A bucket that nobody can be known to is refused at once, with what is missing."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

pytest.importorskip("obstore")
from headrace.storage.objects import NoCredentials
from headrace.storage.s3 import S3Objects, require_credentials

NOBODY = {"AWS_METADATA_ENDPOINT": "http://127.0.0.1:1"}
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"),
        ({"AWS_ACCESS_KEY_ID": "k"}, "no credentials, AWS_SECRET_ACCESS_KEY is not set"),
        ({"AWS_SECRET_ACCESS_KEY": "s"}, "no credentials, AWS_ACCESS_KEY_ID is not set"),
    ],
)
def test_what_is_missing_is_named(environ: dict[str, str], missing: str) -> None:
    with pytest.raises(NoCredentials, match=missing):
        require_credentials("s3://bucket", NOBODY | environ)


@pytest.mark.parametrize(
    "environ",
    [KEYS, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}, {"AWS_SKIP_SIGNATURE": "true"}],
    ids=lambda environ: next(iter(environ)),
)
def test_there_are_other_ways(environ: dict[str, str]) -> None:
    require_credentials("s3://bucket", NOBODY | environ)


def test_a_machine_with_a_role_needs_no_keys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        require_credentials("s3://bucket", {"AWS_METADATA_ENDPOINT": endpoint})


class _Refusing(BaseHTTPRequestHandler):
    """Answers as a proxy does, or a machine without a role."""

    def do_PUT(self) -> None:
        self.send_error(403)

    do_GET = do_PUT  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_machine_that_is_refused_a_role_needs_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(NoCredentials, match="KEY are not set, and this machine is given no"):
            S3Objects("bucket").list("manifests")
        server.shutdown()
