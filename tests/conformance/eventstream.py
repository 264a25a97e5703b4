"""An event stream as a client sees it: every line of it, nothing interpreted away."""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

from .channels import Ended, Frame, Late
from .exchange import TIMEOUT_S, Answer, NoAnswer, Request, answer_of, send

LINE_BYTES_MAX = 32 << 20


class EventStream:
    """Reads from the socket only when asked, so a stream nobody looks at is a slow reader."""

    def __init__(self, wire: socket.socket, response: http.client.HTTPResponse) -> None:
        self._wire = wire
        self._response = response
        self._frames = self._parse()

    def take(self, timeout_s: float) -> Frame:
        self._wire.settimeout(max(timeout_s, 0.001))
        try:
            return next(self._frames)
        except TimeoutError as late:
            raise Late from late
        except StopIteration:
            raise Ended("end") from None
        except (OSError, http.client.HTTPException) as cut:
            raise Ended(f"cut: {type(cut).__name__}") from cut

    def close(self) -> None:
        self._response.close()
        self._wire.close()

    def _parse(self) -> Iterator[Frame]:
        event: Frame = {}
        lines: list[str] = []
        while raw := self._response.readline(LINE_BYTES_MAX):
            line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "" if not line:
                    if event or lines:
                        yield _dispatch(event, lines)
                    event, lines = {}, []
                case "":
                    yield _comment(value)
                case "retry":
                    yield {"retry": int(value) if value.isdigit() else value}
                case "data":
                    lines.append(value)
                case "event" | "id":
                    event[name] = value
                case _:
                    yield {"unknown": line}


def open_stream(port: int, request: Request) -> tuple[Answer, EventStream | None]:
    """Send the request; an answer that is no event stream is read whole, as any other."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        wire = connection.sock  # the connection forgets it when the answer says `close`
        response = send(connection, request)
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if response.status == http.HTTPStatus.OK and kind == "text/event-stream":
            return answer_of(request, response, b""), EventStream(wire, response)
        answer = answer_of(request, response, response.read())
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    connection.close()
    return answer, None


def _comment(text: str) -> Frame:
    word, _, number = text.partition(" ")
    return {"comment": word, "at": int(number)} if number.isdigit() else {"comment": text}


def _dispatch(event: Frame, lines: list[str]) -> Frame:
    frame = dict(event)
    if "id" in event:
        frame |= {"id_text": event["id"], "id": _decode_id(event["id"])}
    if lines:
        frame["data"] = _json_or_text("\n".join(lines))
    return frame


def _decode_id(text: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        return text


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
