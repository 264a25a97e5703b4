"""A small web server of the test itself: serves a page to a browser and takes its reports."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Report = dict[str, Any]

WAIT_S = 300.0


class Reports:
    """Files to be fetched, and everything that was POSTed, in the order it came."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, bytes]] = {}
        self._taken: list[Report] = []
        self._came = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, files: Mapping[str, str]) -> None:
        """Texts by path; the type follows from the ending."""
        for path, text in files.items():
            kind = "text/javascript" if path.endswith(".mjs") else "text/html"
            self.files[path] = (f"{kind}; charset=utf-8", text.encode())

    def wait(self, enough: Callable[[list[Report]], bool], what: str) -> list[Report]:
        """Everything reported, as soon as it is enough. Fails with what there is otherwise."""
        deadline = time.monotonic() + WAIT_S
        with self._came:
            while not enough(self._taken):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"waited in vain for {what}; got {self._taken[-20:]}")
                self._came.wait(left)
            return list(self._taken)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, report: Report) -> None:
        with self._came:
            self._taken.append(report)
            self._came.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        reports = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                kind, body = reports.files.get(self.path, ("text/plain", b""))
                self._answer(200 if self.path in reports.files else 404, kind, body)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                reports._take(json.loads(raw))
                self._answer(204, "text/plain", b"")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
