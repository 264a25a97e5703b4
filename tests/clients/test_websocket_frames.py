"""The WebSocket protocol byte for byte: what no polite client would send, and what it must get."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

pytestmark = pytest.mark.system

MASK = b"\x01\x02\x03\x04"
BODY_BYTES_MAX = 10_000
ANSWER_S = 120.0
HANDSHAKE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

Frame = tuple[int, bytes]


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    last: bool = True,
    reserved: int = 0,
    masked: bool = True,
    announced: int | None = None,
) -> bytes:
    """A frame as a client sends it, or as none should."""
    length = len(payload) if announced is None else announced
    head = bytes([(0x80 if last else 0) | reserved << 4 | opcode])
    mask_bit = 0x80 if masked else 0
    if length < 126:
        head += bytes([mask_bit | length])
    elif length < 1 << 16:
        head += bytes([mask_bit | 126]) + struct.pack(">H", length)
    else:
        head += bytes([mask_bit | 127]) + struct.pack(">Q", length)
    if not masked:
        return head + payload
    return head + MASK + bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason)


SAY_PING = frame(TEXT, b'{"op": "ping"}')


class Wire:
    """One connection, read frame by frame."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(HANDSHAKE)
        assert self._file.readline().startswith(b"HTTP/1.1 101 ")
        while self._file.readline() != b"\r\n":
            pass

    def send(self, raw: bytes) -> None:
        self._socket.sendall(raw)

    def take(self) -> Frame | None:
        """The next frame, or None at the end."""
        try:
            head = self._file.read(2)
        except ConnectionResetError:
            return None
        if len(head) < 2:
            return None
        length = head[1]
        assert length < 128, "a server does not mask"
        if length == 126:
            (length,) = struct.unpack(">H", self._file.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._file.read(8))
        return head[0] & 0x0F, self._file.read(length)

    def ending(self) -> int | None:
        """The code of the close frame after any errors; None if the connection just ended."""
        while (found := self.take()) is not None:
            opcode, payload = found
            if opcode == CLOSE:
                assert self.take() is None, "nothing follows a close"
                return int.from_bytes(payload[:2], "big") if payload else 1005
            assert b'"op":"error"' in payload, f"expected errors and an end, got {payload!r}"
        return None

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("frames")
    env = {"TOPICS_MAX_BODY_BYTES": str(BODY_BYTES_MAX)}
    with ServerProcess(folder / "data", env=env) as server:
        yield server
        assert "Traceback" not in server.output()


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[Wire]:
    wire = Wire(server.port)
    yield wire
    wire.close()


@pytest.mark.parametrize(
    ("raw", "answers"),
    [
        (SAY_PING, [(TEXT, b'{"op":"pong"}')]),
        (frame(PING, b"hello"), [(PONG, b"hello")]),
        (frame(PING), [(PONG, b"")]),
        (frame(PONG, b"unasked") + SAY_PING, [(TEXT, b'{"op":"pong"}')]),
        (
            frame(TEXT, b'{"op": ', last=False) + frame(PING, b"p") + frame(CONTINUED, b'"ping"}'),
            [(PONG, b"p"), (TEXT, b'{"op":"pong"}')],
        ),
        (
            frame(TEXT, b"", last=False)
            + frame(CONTINUED, b"", last=False)
            + frame(CONTINUED, b'{"op": "ping"}'),
            [(TEXT, b'{"op":"pong"}')],
        ),
        (
            frame(TEXT, b'{"op": "ping", "request_id": "\xc3', last=False)
            + frame(CONTINUED, b'\xa9"}'),
            [(TEXT, '{"op":"pong","request_id":"é"}'.encode())],
        ),
        (closing(1000, b"bye"), [(CLOSE, struct.pack(">H", 1000))]),
        (frame(CLOSE), [(CLOSE, b"")]),
    ],
    ids=[
        "a command",
        "a ping",
        "an empty ping",
        "a pong nobody asked for",
        "a ping between fragments",
        "empty fragments",
        "a letter split over fragments",
        "a close",
        "a close without a code",
    ],
)
def test_what_the_protocol_allows(wire: Wire, raw: bytes, answers: list[Frame]) -> None:
    wire.send(raw)
    for opcode, payload in answers:
        found = wire.take()
        assert found is not None
        assert found[0] == opcode
        assert found[1].startswith(payload)


@pytest.mark.parametrize(
    ("raw", "codes"),
    [
        (frame(TEXT, b'{"op": "ping"}', masked=False), {1002}),
        (frame(TEXT, b'{"op": "ping"}', reserved=4), {1002}),
        (frame(3, b"x"), {1002}),
        (frame(11, b"x"), {1002}),
        (frame(PING, b"x" * 126), {1002}),
        (frame(PING, b"x", last=False), {1002}),
        (frame(CONTINUED, b"x"), {1002}),
        (frame(TEXT, b'{"op": ', last=False) + frame(TEXT, b'"ping"}'), {1002}),
        (frame(CLOSE, b"x"), {1002}),
        (closing(1005), {1002}),
        (closing(999), {1002}),
        (closing(1000, b"\xff"), {1007}),
        (frame(TEXT, b'{"op": "\xff"}'), {1007}),
        (
            frame(TEXT, b'{"op": "publish", "topic": "t", "records": [{"data": "\xff"}]}'),
            {1007},
        ),
        (frame(TEXT, b"\xc3", last=False) + frame(CONTINUED, b"("), {1007}),
        (frame(TEXT, b"x", announced=(1 << 63) + 1), {1002, 1009}),
    ],
    ids=[
        "not masked",
        "a reserved bit",
        "an unknown opcode",
        "an unknown control opcode",
        "a long ping",
        "a fragmented ping",
        "a continuation of nothing",
        "a message in the middle of another",
        "a close with half a code",
        "a close with a code nobody sends",
        "a close with no code at all",
        "a close with no text",
        "no utf-8",
        "no utf-8 in a record",
        "no utf-8 in fragments",
        "a length beyond all lengths",
    ],
)
def test_what_the_protocol_forbids(wire: Wire, raw: bytes, codes: set[int]) -> None:
    wire.send(raw)
    assert wire.ending() in codes


@pytest.mark.parametrize(
    "raw",
    [
        frame(TEXT, b"x" * (BODY_BYTES_MAX + 1)),
        frame(TEXT, b"x" * 6000, last=False) + frame(CONTINUED, b"x" * 6000),
        frame(TEXT, b"x" * 20_000, last=False) + frame(CONTINUED, b"x"),
        frame(BINARY, b"x"),
    ],
    ids=["one frame", "together", "a part", "not a text"],
)
def test_what_is_refused_leaves_the_socket_open(wire: Wire, raw: bytes) -> None:
    wire.send(raw + SAY_PING)
    refusal, answer = wire.take(), wire.take()
    assert refusal is not None
    assert b'"op":"error"' in refusal[1]
    assert answer is not None
    assert answer[1].startswith(b'{"op":"pong"')
