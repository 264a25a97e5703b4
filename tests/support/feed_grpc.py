"""A real client of gRPC for hints of feeds, and a server that has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc

from headrace.formats import feed_notifications as messages
from headrace_bench.process import ServerProcess

ANSWER_S = 30.0
"""More than enough for an answer: who waits longer has waited in vain."""
PATH = f"/{messages.SERVICE}/{messages.METHOD}"


@contextmanager
def grpc_server(folder: Path, **env: str) -> Iterator[tuple[ServerProcess, str]]:
    """A server, and where its gRPC is."""
    port_file = folder / "grpc-port"
    settings = {"FEEDS_GRPC_PORT": "0", "FEEDS_GRPC_PORT_FILE": str(port_file)}
    with ServerProcess(folder / "data", env=settings | env) as server:
        yield server, f"127.0.0.1:{int(port_file.read_text())}"


def event(resource_type: str) -> dict[str, Any]:
    ref = {"resourceType": resource_type, "resourceId": "1"}
    return {"type": f"{resource_type}.updated", "resourceRef": ref}


class Peer:
    """One call, from its first message to its status."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, **message: Any) -> None:
        await self.send_bytes(messages.ClientMessage(**message).SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        await self._call.write(data)

    async def subscribe(self, tenant: str, *types: str) -> messages.SubscriptionConfirmed:
        await self.send(subscribe=messages.Subscribe(tenant_id=tenant, resource_types=types))
        return (await self.read()).subscription_confirmed

    async def read(self) -> messages.ServerMessage:
        async with asyncio.timeout(ANSWER_S):
            found = await self._call.read()
        assert found is not grpc.aio.EOF
        return messages.ServerMessage.FromString(found)

    async def hint(self) -> tuple[str, int, list[str]]:
        message = await self.read()
        assert message.WhichOneof("message") == "event_notification", message
        found = message.event_notification
        return found.tenant_id, found.latest_sequence_number, list(found.affected_resource_types)

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """How the server ends this; what it says before that is passed over."""
        async with asyncio.timeout(ANSWER_S):
            try:
                while await self._call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError:
                pass
            return await self._call.code(), await self._call.details()

    async def finish(self) -> None:
        """Say that nothing more will be said."""
        await self._call.done_writing()

    def cancel(self) -> None:
        self._call.cancel()


class Peers:
    """Calls over one connection."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def call(self, **metadata: str) -> Peer:
        named = [(name.replace("_", "-"), value) for name, value in metadata.items()]
        return Peer(self.channel.stream_stream(PATH)(metadata=named))


@asynccontextmanager
async def connected(target: str) -> AsyncIterator[Peers]:
    async with grpc.aio.insecure_channel(target) as channel:
        yield Peers(channel)
