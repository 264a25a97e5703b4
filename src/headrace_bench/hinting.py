"""Consumers that are sent hints over gRPC: how long after an event was sent each of them hears."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any

import grpc

from headrace.formats import feed_notifications as messages
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Hints, Latencies
from headrace_bench.link import SILENCE_S_MAX
from headrace_bench.replies import HttpReply, format_excerpt

_READ_BYTES = 1 << 16
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection for each consumer


def hear(job: Hints) -> Latencies:
    """Send one event after the other, each when everybody has heard of the one before."""
    return Latencies(asyncio.run(_hear(job)))


async def _hear(job: Hints) -> list[float]:
    latencies_ms: list[float] = []
    async with AsyncExitStack() as stack:
        reader, writer = await asyncio.open_connection("127.0.0.1", job.port)
        stack.callback(writer.close)
        await _send(reader, writer, job.request)  # a tenant is there from its first event on
        calls = [await _subscribe(stack, job) for _ in range(job.consumers)]
        for number in range(job.warmup_events + job.events):
            began = perf_counter()
            waiting = [asyncio.create_task(_wait(call, began)) for call in calls]
            async with asyncio.timeout(SILENCE_S_MAX):
                await _send(reader, writer, job.request)
                found = await asyncio.gather(*waiting)
            if number >= job.warmup_events:
                latencies_ms += found
    return latencies_ms


async def _subscribe(stack: AsyncExitStack, job: Hints) -> Any:
    target = f"127.0.0.1:{job.grpc_port}"
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(target, options=_OPTIONS))
    call = channel.stream_stream(f"/{messages.SERVICE}/{messages.METHOD}")()
    wanted = messages.ClientMessage(subscribe=messages.Subscribe(tenant_id=job.tenant))
    await call.write(wanted.SerializeToString())
    await call.read()
    return call


async def _wait(call: Any, began: float) -> float:
    """Until a hint comes, in ms; a heartbeat is none."""
    while (data := await call.read()) is not grpc.aio.EOF:
        if messages.ServerMessage.FromString(data).WhichOneof("message") == "event_notification":
            return (perf_counter() - began) * 1e3
    raise BenchError("the server ended a stream of hints")


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    reply = HttpReply()
    writer.write(request)
    while data := await reader.read(_READ_BYTES):
        if reply.feed(data):
            break
    if not reply.succeeded():
        raise BenchError(f"an event was refused; {format_excerpt(reply)}")
