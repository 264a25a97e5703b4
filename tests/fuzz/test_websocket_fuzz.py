"""Whatever comes on a WebSocket: no failure, the same messages however it is cut, no leftovers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from websockets.frames import Frame
from websockets.protocol import CLIENT, OPEN
from websockets.protocol import Protocol as Peer

from headrace.core.limits import CLOSE_S
from headrace.delivery.websocket import Socket
from support.plumbing import NoLogs, Pipe
from support.virtual import VirtualLoop

from .rawframes import make_frames
from .rawhttp import cut

BYTES_MAX = 2000
HEAD_BYTES_MAX = 14
SEEDS = range(1, 5)
STREAMS = 60


class Ear(Socket):
    """Keeps what it hears."""

    __slots__ = ("heard", "pipe")

    def __init__(self) -> None:
        super().__init__(NoLogs(), 15.0, BYTES_MAX)
        self.heard: list[bytes | int] = []
        self.pipe = Pipe()
        self.pipe.protocol = self
        self.attach(self.pipe, b"", lambda: None, lambda: None)

    def message(self, text: bytes) -> None:
        self.heard.append(text)

    def refuse_binary(self) -> None:
        self.heard.append(-1)

    def refuse_large(self, bytes_max: int) -> None:
        self.heard.append(bytes_max)


async def hear(pieces: list[bytes]) -> tuple[Any, ...]:
    """What a socket makes of these bytes, and what the peer gets for it."""
    ear = Ear()
    for piece in pieces:
        ear.data_received(piece)
        while ear._behind:  # noqa: ASYNC110  (it takes turns)
            await asyncio.sleep(0)
        assert len(ear._buffer) < HEAD_BYTES_MAX + 125
        assert len(ear._message) <= BYTES_MAX
    ended = ear.closed
    if not ended:
        ear.connection_lost(None)
    else:
        await asyncio.sleep(2 * CLOSE_S)
        assert ear.pipe.closing
    assert not ear._buffer
    assert not ear._message
    peer = Peer(CLIENT, state=OPEN, max_size=None)
    peer.receive_data(ear.pipe.take())
    frames = [event for event in peer.events_received() if isinstance(event, Frame)]
    return ear.heard, ended, [(frame.opcode, frame.data) for frame in frames]


def fuzz(seed: int, streams: int) -> None:
    random, loop = Random(seed), VirtualLoop()

    async def story() -> None:
        for number in range(streams):
            raw = make_frames(random)
            whole = await hear([raw])
            again = await hear(cut(random, raw))
            assert whole == again, f"stream {number}: {raw!r}"

    try:
        loop.run(story())
        assert not loop.complaints
    finally:
        loop.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_nearly_frames(seed: int) -> None:
    fuzz(seed, STREAMS)


@pytest.mark.soak
def test_nearly_frames_for_long(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        fuzz(seed, STREAMS)
