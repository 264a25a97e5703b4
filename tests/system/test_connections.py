"""Connections that want nothing take nothing away: not from the journal, not from others."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from headrace.web.descriptors import room_for_connections
from headrace_bench.process import ServerProcess

from .launching import wait_until

pytestmark = pytest.mark.system

SOFT, HARD = 128, 256
CLIENTS = 400
DONE = (200, 201)
TIMEOUT_S = 120.0


class FewFiles(ServerProcess):
    """A server that may not open many files."""

    def _launch(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        limits = f'ulimit -S -n {SOFT}; ulimit -H -n {HARD}; exec "$@"'
        super()._launch(["sh", "-c", limits, "sh", *command], environ)


def append(client: http.client.HTTPConnection, size: int) -> int:
    record = json.dumps({"records": [{"data": "x" * size}]})
    client.request("POST", "/v0/topics/t", record, {"content-type": "application/json"})
    response = client.getresponse()
    response.read()
    return response.status


def is_closed(client: socket.socket) -> bool:
    """Whether the server has ended this connection, with a word or without."""
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_silent_clients_leave_room_for_the_journal(tmp_path: Path) -> None:
    env = {"HEADRACE_SEAL_BYTES": "64KiB", "HEADRACE_HEAD_TIMEOUT_MS": "3600000"}
    room = room_for_connections(HARD)
    with FewFiles(tmp_path / "data", env=env) as server, ExitStack() as stack:
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == [str(HARD)] * 2
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        early = stack.enter_context(closing(connection))
        assert append(early, 10) in DONE
        clients = []
        for at in range(CLIENTS):
            address = ("127.0.0.1", server.port)
            clients.append(stack.enter_context(socket.create_connection(address, TIMEOUT_S)))
            if at % 2:
                clients[-1].sendall(b"GET / HTTP/1.1\r\nhost")
        kept = len(clients)

        def count() -> int:
            nonlocal kept
            kept = sum(not is_closed(client) for client in clients)
            return kept

        wait_until(lambda: count() < room, "clients to be turned away")
        assert kept >= room // 2
        files = sorted((tmp_path / "data").glob("journal/*"))
        for _ in range(20):
            assert append(early, 32 << 10) in DONE
        assert sorted((tmp_path / "data").glob("journal/*")) != files, "the journal went on"
        for client in clients:
            client.close()

        def is_let_in() -> bool:
            late = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
            with closing(late):
                try:
                    return append(late, 10) in DONE
                except (OSError, http.client.HTTPException):
                    return False

        wait_until(is_let_in, "room for somebody new")
        assert "Traceback" not in server.output()
