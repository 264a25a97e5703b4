"""Streams of bytes that are nearly WebSocket frames."""

from __future__ import annotations

import struct
from random import Random

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
PUBLISH = b'{"op":"publish","topic":"t","records":[{"data":1}]}'
SUBSCRIBE = b'{"op":"subscribe","topic":"t"}'
TEXTS = (
    b"", b"a", b'{"op":"ping"}', "ü€𝄞".encode(), PUBLISH, SUBSCRIBE, b"x" * 126, b"y" * 3000,
    b"\xff", b"[" * 300,
)  # fmt: skip


def make_frames(random: Random) -> bytes:
    """What one peer says: messages in parts, control frames between, now and then a slip."""
    raw = b"".join(_message(random) for _ in range(random.randint(1, 6)))
    if random.random() < 0.4:
        at = random.randrange(len(raw) + 1)
        raw = raw[:at] + random.randbytes(random.randint(0, 3)) + raw[at + random.randint(0, 3) :]
    if random.random() < 0.2:
        raw += _frame(random, CLOSE, random.choice((b"", b"\x03\xe8", b"\x03", b"\x0f\xa0bye")))
    return raw


def _message(random: Random) -> bytes:
    text = random.choice(TEXTS)
    parts = random.choice((1, 1, 1, 2, 5, 300))
    raw, opcode = b"", random.choice((TEXT, TEXT, TEXT, BINARY))
    for at in range(parts):
        size = random.choice((0, 1, len(text)))
        piece, text = (text, b"") if at == parts - 1 else (text[:size], text[size:])
        raw += _frame(random, opcode if at == 0 else CONT, piece, last=at == parts - 1)
        if random.random() < 0.1:
            raw += _frame(
                random, random.choice((PING, PONG)), random.randbytes(random.choice((0, 5, 125)))
            )
    return raw


def _frame(random: Random, opcode: int, payload: bytes, *, last: bool = True) -> bytes:
    size = len(payload)
    if random.random() < 0.005:
        size = random.choice((126, 70_000, 2**40, 2**63))  # announced, and more than there is
    if random.random() < 0.005:
        opcode = random.randrange(16)
    head = bytes([(0x80 if last else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += b"\xfe" + struct.pack(">H", size)
    else:
        head += b"\xff" + struct.pack(">Q", size)
    mask = random.randbytes(4)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
