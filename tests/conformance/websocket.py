"""A WebSocket as a client sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from .channels import Ended, Frame, Late
from .exchange import TIMEOUT_S, Answer, NoAnswer, Request

CLOSE_S = 2.0


class WebSocket:
    """Messages are JSON texts; anything else comes as `{"text"}` or `{"binary"}`."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def say(self, message: str | bytes) -> None:
        try:
            self._connection.send(message)
        except ConnectionClosed:
            pass  # how it closed is told by the next frame that is taken

    def take(self, timeout_s: float) -> Frame:
        try:
            message = self._connection.recv(timeout=timeout_s)
        except TimeoutError as late:
            raise Late from late
        except ConnectionClosed as closed:
            raise Ended(str(closed.rcvd.code) if closed.rcvd else "cut") from closed
        if isinstance(message, bytes):
            return {"binary": message.hex()}
        try:
            found = json.loads(message)
        except ValueError:
            return {"text": message}
        return found if isinstance(found, dict) else {"text": message}

    def close(self) -> None:
        self._connection.close()


def open_socket(
    port: int, request: Request, subprotocols: Sequence[str]
) -> tuple[Answer, WebSocket | None]:
    """Ask for an upgrade; a refusal is an answer as any other."""
    started = time.perf_counter()
    try:
        connection = connect(
            f"ws://127.0.0.1:{port}{request.target}",
            additional_headers=request.headers,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            compression=None,
            proxy=None,
            open_timeout=TIMEOUT_S,
            close_timeout=CLOSE_S,
            ping_interval=None,
            max_size=None,
        )
    except InvalidStatus as refused:
        return _answer(request, refused.response, started), None
    except (OSError, InvalidHandshake, InvalidMessage) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    assert connection.response is not None
    return _answer(request, connection.response, started), WebSocket(connection)


def _answer(request: Request, response: Response, started: float) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    took_ms = (time.perf_counter() - started) * 1000
    body = bytes(response.body or b"")
    return Answer(request.target, request.method, response.status_code, headers, body, took_ms)
