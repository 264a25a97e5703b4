"""What an EventSource must live through; the same for the one of Node and the one of a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from headrace_bench.process import ServerProcess

from .delivery_promise import CUTS, RECORDS, check, is_whole, write
from .flaky import FlakyLine
from .reports import Report, Reports

Follow = Callable[[str], AbstractContextManager[None]]
"""Runs a client that follows the topics at an address and reports what it hears."""


def watch_over_a_broken_line(server: ServerProcess, reports: Reports, follow: Follow) -> None:
    write(server.url, 1, RECORDS // 3)
    with (
        FlakyLine(lambda: server.port, [b"GET /v0/watch/"], CUTS) as line,
        follow(line.url),
    ):
        writer = threading.Thread(target=write, args=(server.url, RECORDS // 3 + 1, RECORDS))
        writer.start()
        taken = reports.wait(lambda taken: is_whole(_records(taken)), "every record")
        writer.join()
        assert line.cuts == len(CUTS)
    check(_records(taken))
    others = [report["kind"] for report in taken if report["kind"] != "record"]
    assert others == ["open", *["broken", "open"] * len(CUTS)], "one session, reconnected by itself"


def watch_a_killed_server(server: ServerProcess, reports: Reports, follow: Follow) -> None:
    write(server.url, 1, RECORDS // 2)
    with FlakyLine(lambda: server.port, [], ()) as line, follow(line.url):
        reports.wait(lambda taken: is_whole(_records(taken), RECORDS // 2), "the first half")
        server.kill()
        server.start()
        write(server.url, RECORDS // 2 + 1, RECORDS)
        taken = reports.wait(lambda taken: is_whole(_records(taken)), "every record")
    check(_records(taken))
    assert "closed" in [report["kind"] for report in taken], "the session is gone with the server"


def _records(reports: list[Report]) -> list[Report]:
    return [report for report in reports if report["kind"] == "record"]
