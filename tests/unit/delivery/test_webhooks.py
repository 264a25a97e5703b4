"""Webhooks are called where that is safe, and what they answer is bounded."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import WEBHOOK_REPLY_BYTES_MAX
from headrace.delivery.webhooks import Webhooks
from headrace.engine.subscriptions import DeliveryFailed

GOOD = ["https://example.com/hook", "https://example.com:8443/", "https://8.8.8.8/x"]
LOCAL = ["http://localhost/x", "http://127.0.0.1:99/x", "http://127.0.0.77/"]
BAD = [
    "", "x", "https://", "ftp://example.com", "http://example.com", "http://8.8.8.8/",
    "https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.0.1/", "https://127.0.0.1/",
    "https://169.254.169.254/", "https://[::1]/", "https://[fe80::1]/", "https://[fd00::1]/",
    "https://[::ffff:127.0.0.1]/", "https://0.0.0.0/", "https://224.0.0.1/", "https://user@a.com/",
    "https://a.com:99999/", "http://127.0.1.1/", "http://localhost.example.com/",
    "https://a.com/ x", "https://a b.com/", "https://a.com/\u00fc", "https://a.com/\n",
    "https://a..com/", f"https://{'a' * 64}.com/", f"https://a.com/{'x' * 2048}",
]  # fmt: skip


@pytest.mark.parametrize("url", GOOD + LOCAL)
def test_urls_that_are_called(url: str) -> None:
    Webhooks(allow_local=True).check(url)


@pytest.mark.parametrize("url", BAD)
def test_urls_that_are_not(url: str) -> None:
    with pytest.raises(Refused) as refused:
        Webhooks(allow_local=True).check(url)
    assert refused.value.code is Code.URL_REJECTED


@pytest.mark.parametrize("url", LOCAL)
def test_this_machine_is_for_development(url: str) -> None:
    with pytest.raises(Refused):
        Webhooks(allow_local=False).check(url)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.delivery.webhooks.WEBHOOK_TIMEOUT_S", 120.0)


@contextmanager
def receiver(status: int, body: bytes) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    taken: list[tuple[str, bytes]] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            taken.append((self.headers["webhook-signature"], self.rfile.read(length)))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?a=b", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def post(url: str, *, allow_local: bool = True) -> bytes:
    webhooks = Webhooks(allow_local=allow_local)
    try:
        return asyncio.run(webhooks.post(url, b"{}", {"webhook-signature": "s"}))
    finally:
        webhooks.close()


def test_a_reply_comes_back() -> None:
    with receiver(200, b'{"done":true}') as (url, taken):
        assert post(url) == b'{"done":true}'
    assert taken == [("s", b"{}")]


@pytest.mark.parametrize("status", [302, 400, 500])
def test_anything_but_success_is_a_failure(status: int) -> None:
    with receiver(status, b"") as (url, _), pytest.raises(DeliveryFailed, match=str(status)):
        post(url)


def test_a_long_reply_is_cut() -> None:
    with receiver(200, b"x" * (WEBHOOK_REPLY_BYTES_MAX + 9)) as (url, _):
        assert len(post(url)) == WEBHOOK_REPLY_BYTES_MAX


def test_nobody_there_is_a_failure() -> None:
    with pytest.raises(DeliveryFailed):
        post("http://127.0.0.1:1/")


def test_a_name_that_leads_home_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(DeliveryFailed, match="not a public address"):
        post("https://example.com/")
