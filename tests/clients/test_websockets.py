"""The `websockets` library against a real server: its reconnects, pings, fragments, compression."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

from headrace_bench.process import ServerProcess

from .delivery_promise import ANSWER_S, CUTS, HEADERS, RECORDS, TOPICS, check, is_whole, write
from .flaky import FlakyLine

pytestmark = pytest.mark.system

Frame = dict[str, Any]


def dial(url: str, **more: Any) -> connect:
    address = f"{url.replace('http', 'ws')}/v0/ws"
    return connect(
        address,
        additional_headers=HEADERS,
        proxy=None,
        open_timeout=ANSWER_S,
        ping_timeout=ANSWER_S,
        **more,
    )


async def hear(socket: ClientConnection) -> Frame:
    frame = json.loads(await asyncio.wait_for(socket.recv(), ANSWER_S))
    assert isinstance(frame, dict)
    return frame


async def follow(url: str) -> list[Frame]:
    """Subscribe anew behind the last seq of each topic whenever the connection is lost."""
    frames: list[Frame] = []
    reached = dict.fromkeys(TOPICS, 0)
    async for socket in dial(url):
        topics = {topic: {"from_seq": seq} for topic, seq in reached.items()}
        try:
            await socket.send(json.dumps({"op": "subscribe", "topics": topics, "limit": 2}))
            while not is_whole(frames):
                frame = await hear(socket)
                if frame["op"] == "record":
                    frames.append(frame)
                    reached[frame["topic"]] = frame["to_seq"]
        except ConnectionClosed:
            continue
        await socket.close()
        return frames
    raise AssertionError("connect() tries for ever")


def test_a_broken_line_loses_and_repeats_nothing(server: ServerProcess) -> None:
    write(server.url, 1, RECORDS // 3)
    with FlakyLine(lambda: server.port, [b"GET /v0/ws"], CUTS) as line:
        writer = threading.Thread(target=write, args=(server.url, RECORDS // 3 + 1, RECORDS))
        writer.start()
        frames = asyncio.run(follow(line.url))
        writer.join()
        assert line.cuts == len(CUTS)
    check(frames)


async def publish_until_acknowledged(url: str, count: int) -> list[list[int]]:
    """Publish one by one; what was not acknowledged is sent again with the same key."""
    acknowledged: list[list[int]] = []
    async for socket in dial(url):
        try:
            while len(acknowledged) < count:
                number = len(acknowledged) + 1
                command = {
                    "op": "publish",
                    "topic": TOPICS[0],
                    "idempotency_key": f"k{number}",
                    "records": [{"data": number}],
                }
                await socket.send(json.dumps(command))
                ack = await hear(socket)
                assert ack["op"] == "ack", ack
                acknowledged.append(ack["seqs"])
        except ConnectionClosed:
            continue
        await socket.close()
        break
    return acknowledged


def test_a_key_makes_a_publication_happen_once(server: ServerProcess) -> None:
    with FlakyLine(lambda: server.port, [b"GET /v0/ws"], (900, 1900, 3100)) as line:
        acknowledged = asyncio.run(publish_until_acknowledged(line.url, 40))
        assert line.cuts == 3
    assert acknowledged == [[number] for number in range(1, 41)]


def test_a_killed_server_loses_and_repeats_nothing(server: ServerProcess) -> None:
    async def follow_and_kill(line: FlakyLine) -> list[Frame]:
        task = asyncio.create_task(follow(line.url))
        await asyncio.to_thread(write, server.url, 1, RECORDS // 2)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(write, server.url, RECORDS // 2 + 1, RECORDS)
        return await task

    with FlakyLine(lambda: server.port, [], ()) as line:
        check(asyncio.run(follow_and_kill(line)))


@pytest.mark.parametrize("compression", ["deflate", None])
def test_the_protocol_underneath(server: ServerProcess, compression: str | None) -> None:
    async def talk() -> None:
        async with dial(server.url, compression=compression, max_size=None) as socket:
            await asyncio.wait_for(await socket.ping(b"anybody"), ANSWER_S)
            command = {"op": "publish", "topic": "big", "records": [{"data": "x" * 300_000}]}
            text = json.dumps(command)
            # As one message in many fragments.
            await socket.send(text[start : start + 1000] for start in range(0, len(text), 1000))
            assert (await hear(socket))["op"] == "ack"
            await socket.send(json.dumps({"op": "subscribe", "topic": "big"}))
            frames = [await hear(socket) for _ in range(3)]
            assert [frame["op"] for frame in frames] == ["subscribed", "record", "caught_up"]
            assert frames[1]["records"][0]["data"] == "x" * 300_000
            await socket.close()
            with pytest.raises(ConnectionClosedOK):
                await socket.recv()
            assert socket.close_code == 1000

    asyncio.run(talk())
