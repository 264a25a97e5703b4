"""A line to the server that breaks where it is told to, in the middle of a frame if need be."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

PIECE_BYTES = 64 * 1024
CONNECT_S = 60.0


class FlakyLine:
    """Forwards TCP connections; the n-th that carries a stream is cut after so many bytes.

    A connection carries a stream once a request for one of `paths` went up; later ones than there
    are numbers are left alone. While the server is away, connections are closed at once.
    """

    def __init__(
        self, port_of_server: Callable[[], int], paths: Sequence[bytes], cut_after: Sequence[int]
    ) -> None:
        self._port_of_server = port_of_server
        self._paths = paths
        self._cut_after = list(cut_after)
        self._lock = threading.Lock()
        self.cuts = 0
        self._listener = _Listener(("127.0.0.1", 0), self._carry)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.close_all()
        self._listener.server_close()

    def _carry(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(
                ("127.0.0.1", self._port_of_server()), timeout=CONNECT_S
            )
        except OSError:
            return
        server.settimeout(None)
        carried = _Carried()
        up = threading.Thread(target=self._carry_up, args=(client, server, carried))
        up.start()
        try:
            self._carry_down(server, client, carried)
        finally:
            _end(client, server)
            up.join()
            server.close()

    def _carry_up(self, client: socket.socket, server: socket.socket, carried: _Carried) -> None:
        with suppress(OSError):
            while piece := client.recv(PIECE_BYTES):
                if carried.left is None and any(path in piece for path in self._paths):
                    carried.left = self._next_cut()
                server.sendall(piece)
        _end(client, server)

    def _carry_down(self, server: socket.socket, client: socket.socket, carried: _Carried) -> None:
        with suppress(OSError):
            while piece := server.recv(PIECE_BYTES):
                if carried.left is not None:
                    piece = piece[: carried.left]
                    carried.left -= len(piece)
                client.sendall(piece)
                if carried.left == 0:
                    self.cuts += 1
                    return

    def _next_cut(self) -> int | None:
        with self._lock:
            return self._cut_after.pop(0) if self._cut_after else None


class _Carried:
    """How many bytes a connection may still carry down; None without a bound."""

    def __init__(self) -> None:
        self.left: int | None = None


class _Listener(socketserver.ThreadingTCPServer):
    """Gives each connection to `carry`, in a thread that is waited for."""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], carry: Callable[[socket.socket], None]) -> None:
        super().__init__(address, socketserver.BaseRequestHandler)
        self._carry = carry
        self._open: set[socket.socket] = set()

    def finish_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        self._carry(request)
        self._open.discard(request)

    def close_all(self) -> None:
        for connection in list(self._open):
            _end(connection)


def _end(*connections: socket.socket) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
