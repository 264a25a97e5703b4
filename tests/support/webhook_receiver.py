"""A receiver of webhooks over HTTP, for servers that are processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, ClassVar


class WebhookReceiver(ThreadingHTTPServer):
    """Takes deliveries; answers while `open` is set, and holds them otherwise."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.open = Event()
        self.open.set()
        self.deliveries: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: WebhookReceiver
    protocol_version = "HTTP/1.1"
    log_format: ClassVar[str] = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.deliveries.append((dict(self.headers), body))
        self.server.open.wait(60)
        try:
            self.send_response(204)
            self.end_headers()
        except OSError:
            pass  # whoever sent it is gone

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    thread = Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.open.set()
        receiver.shutdown()
        thread.join()
        receiver.server_close()
