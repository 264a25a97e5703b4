"""Topics are cheap: their number shows in neither the number of files nor what a restart loses.

`HEADRACE_MANY_TOPICS=100000` runs it at the size the product promises.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .kill_history import Clock, Payload
from .launching import Servers
from .topics_wire import Connection, format_write, read_pages

pytestmark = pytest.mark.system

TOPICS = int(os.environ.get("HEADRACE_MANY_TOPICS", "2000"))
RECORDS = 10
FILES_MAX = 50
SEAL_BYTES = TOPICS * 128
"""A few segments, whatever the number of topics."""
WRITERS = 4


def test_many_small_topics_survive_a_restart(new_server: Servers, data_dir: Path) -> None:
    server = new_server(HEADRACE_SEAL_BYTES=str(SEAL_BYTES), TOPICS_MAX_TOPICS="0").start()
    fill(server.port)
    server.kill()
    server.start()
    check(server.port, data_dir)
    assert server.stop() == 0
    server.start()
    check(server.port, data_dir)


def fill(port: int) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(target=fill_some, args=(port, range(first, TOPICS, WRITERS), statuses))
        for first in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == TOPICS
    assert set(statuses) == {201}


def fill_some(port: int, numbers: range, statuses: list[int]) -> None:
    with Connection(port) as connection:
        for number in numbers:
            body = format_write(payloads_of(number))
            status, _ = connection.call("POST", f"/v0/topics/{name(number)}", body)
            statuses.append(status)


def check(port: int, data_dir: Path) -> None:
    with Connection(port) as connection:
        check_topics(connection)
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    assert len(files) < FILES_MAX, files


def check_topics(connection: Connection) -> None:
    listed = {entry["topic"]: entry for entry in list_all(connection)}
    assert len(listed) == TOPICS
    wrong = [
        entry
        for entry in listed.values()
        if (entry["head_seq"], entry["earliest_seq"], entry["count"]) != (RECORDS, 1, RECORDS)
    ]
    assert wrong == []
    for number in range(0, TOPICS, max(1, TOPICS // 50)):
        pages = read_pages(connection, Clock(), name(number))
        found = tuple(seen.payload for page in pages for seen in page.records)
        assert found == payloads_of(number)


def list_all(connection: Connection) -> Iterator[dict[str, Any]]:
    cursor = ""
    while True:
        page = connection.ask("GET", f"/v0/topics?page_size=1000{cursor}")
        yield from page["topics"]
        if "next_cursor" not in page:
            return
        cursor = f"&cursor={page['next_cursor']}"


def name(number: int) -> str:
    return f"many:{number:06d}"


def payloads_of(number: int) -> tuple[Payload, ...]:
    return tuple(Payload(b'{"topic":%d,"n":%d}' % (number, n)) for n in range(RECORDS))
