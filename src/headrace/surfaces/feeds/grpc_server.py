"""The gRPC server: hints for consumers, health and reflection, on the one event loop.

Imports the extra `grpc`: to be imported only where a port is set. What a consumer wants and is told
is `HintStream`'s; here are bytes, metadata and statuses.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    CLOSE_S,
    FEED_COMMAND_BYTES_MAX,
    FEED_CONSUMER_RPCS_MAX,
    FEED_IDLE_CONNECTION_MS,
    NODE_ID_LENGTH_MAX,
    SLOW_CONSUMER_S,
)
from headrace.core.names import has_controls
from headrace.delivery.endings import Expired, SlowConsumer, describe
from headrace.formats import feed_notifications as messages
from headrace.surfaces.feeds.consumers import Consumers
from headrace.surfaces.feeds.errors import REFUSALS
from headrace.surfaces.feeds.hint_stream import (
    HintEnding,
    HintStream,
    ServerBeat,
    Silent,
    TenantConfirmed,
    TenantHinted,
    Word,
)
from headrace.web.calls import Gate, identify_key
from headrace.web.credential_store import unknown_key
from headrace.web.credentials import Principal

# The server starts its processes without a fork; the library need not watch for one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a port to share
    ("grpc.max_receive_message_length", FEED_COMMAND_BYTES_MAX),
    ("grpc.max_concurrent_streams", FEED_CONSUMER_RPCS_MAX),
    # Connections cannot be counted here; those on which nothing is called need not be kept.
    ("grpc.max_connection_idle_ms", FEED_IDLE_CONNECTION_MS),
)
_STATUSES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.RESOURCE_EXHAUSTED,  # the peer did not take what was sent
    409: grpc.StatusCode.ABORTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""What a status of HTTP is called here; others are internal."""


class PortTaken(Exception):
    """The port cannot be listened on; the library has written why."""


class GrpcServer:
    """One port, from `start` to `stop`."""

    def __init__(self, gate: Gate, consumers: Consumers) -> None:
        self._gate = gate
        self._consumers = consumers
        self._health = health.aio.HealthServicer()
        self._server: Any = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        self._server = server = grpc.aio.server(options=_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(messages.SERVICE, {messages.METHOD: handler}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (messages.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        await self._tell_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        address = f"[{host}]" if ":" in host else host
        try:
            bound: int = server.add_insecure_port(f"{address}:{port}")
        except RuntimeError:
            raise PortTaken from None
        await server.start()
        return bound

    async def open(self) -> None:
        """The engine is there."""
        await self._tell_health(health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        """End what is open, and listen no more; what does not end in time is cut off."""
        await self._health.enter_graceful_shutdown()
        self._consumers.shutdown()
        await self._server.stop(CLOSE_S)

    async def _tell_health(self, status: int) -> None:
        for name in ("", messages.SERVICE):
            await self._health.set(name, status)

    # --- one call ---------------------------------------------------------------------------------

    async def _serve(self, _: object, context: Any) -> None:
        """A consumer, until it is gone or the server ends its stream."""
        try:
            ending: HintEnding = await self._follow(context)
        except Refused as refused:
            ending = refused
        if isinstance(ending, Refused):
            ending = await self._gate.settle_refusal(ending)
        await context.abort(*_status_of(ending))

    async def _follow(self, context: Any) -> HintEnding:
        gate = self._gate
        hub = gate.hub
        said: dict[str, str] = {
            name: value
            for name, value in reversed(context.invocation_metadata())
            if isinstance(value, str)
        }
        principal = self._identify(said)
        connection = _Connection(context)
        slot = gate.streams.take(principal)
        stream = HintStream(hub, self._consumers, principal, _node_in(said), connection.wake)
        leave = gate.live.join(principal.id, stream, slot.free)
        stream.open()
        try:
            return await connection.run(stream)
        finally:
            stream.close()
            leave()

    def _identify(self, said: dict[str, str]) -> Principal:
        credentials = self._gate.credentials
        principal = identify_key(self._gate, said.get("authorization"), said.get("x-api-key"))
        if credentials.is_gone(principal.id):
            raise unknown_key()
        return principal


class _Connection:
    """The two ways of one call."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._woken = asyncio.Event()
        self._has_room = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stream: HintStream) -> HintEnding:
        """Read and write until the stream has ended."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(stream))
            await self._write(stream)
            reading.cancel()
        assert stream.ending is not None
        return stream.ending

    async def _read(self, stream: HintStream) -> None:
        """Take in what the consumer says. Who says that it is done goes on to hear: its silence
        has the same end as that of others.
        """
        while stream.ending is None:
            data = await self._context.read()
            if data is grpc.aio.EOF:
                return
            stream.hear()
            try:
                _receive(stream, data)
            except Refused as refused:
                stream.end(refused)
            while stream.is_full and stream.ending is None:
                self._has_room.clear()
                await self._has_room.wait()

    async def _write(self, stream: HintStream) -> None:
        """Send what there is until the stream has ended, and all that it had to say is sent."""
        while True:
            words = stream.take()
            self._has_room.set()
            # What is left to say at the end is worth no long wait.
            patience_s = SLOW_CONSUMER_S if stream.ending is None else CLOSE_S
            try:
                async with asyncio.timeout(patience_s):
                    for word in words:
                        await self._context.write(_encode(word))
            except TimeoutError:
                stream.end(SlowConsumer())
                return
            if stream.ending is not None and not words:
                return
            if not words:
                await self._woken.wait()
            self._woken.clear()


def _receive(stream: HintStream, data: bytes) -> None:
    try:
        message = messages.ClientMessage.FromString(data)
    except DecodeError:
        raise Refused(Code.INVALID, "this is no ClientMessage") from None
    match message.WhichOneof("message"):
        case "subscribe":
            wanted = message.subscribe
            stream.subscribe(wanted.tenant_id, wanted.resource_types)
        case "unsubscribe":
            stream.unsubscribe(message.unsubscribe.tenant_id)
        case "heartbeat":
            pass
        case _:
            said = "a message is a subscribe, a heartbeat or an unsubscribe"
            raise Refused(Code.INVALID, said)


def _encode(word: Word) -> bytes:
    match word:
        case TenantConfirmed(tenant=tenant, latest=latest):
            confirmed = messages.SubscriptionConfirmed(
                tenant_id=tenant, latest_sequence_number=latest
            )
            message = messages.ServerMessage(subscription_confirmed=confirmed)
        case TenantHinted(tenant=tenant, hint=hint):
            notification = messages.EventNotification(
                tenant_id=tenant,
                latest_sequence_number=hint.latest,
                affected_resource_types=sorted(hint.resource_types),
            )
            message = messages.ServerMessage(event_notification=notification)
        case ServerBeat():
            message = messages.ServerMessage(server_heartbeat=messages.ServerHeartbeat())
    encoded: bytes = message.SerializeToString()
    return encoded


def _status_of(ending: HintEnding) -> tuple[grpc.StatusCode, str]:
    match ending:
        case Refused():
            status = REFUSALS[ending.code].status
            return _STATUSES.get(status, grpc.StatusCode.INTERNAL), ending.message
        case Silent():
            return grpc.StatusCode.DEADLINE_EXCEEDED, "the client was silent for too long"
        case Expired():
            return grpc.StatusCode.UNAUTHENTICATED, "the credential that opened this has expired"
        case _:
            said = describe(ending) or (500, "the stream is over")
            return _STATUSES.get(said[0], grpc.StatusCode.INTERNAL), said[1]


def _node_in(said: dict[str, str]) -> str:
    """How a consumer calls itself, if it does."""
    node = said.get("x-ep-node-id", "")
    if len(node) > NODE_ID_LENGTH_MAX or has_controls(node):
        raise Refused(Code.INVALID, f"a node is called by at most {NODE_ID_LENGTH_MAX} characters")
    return node
