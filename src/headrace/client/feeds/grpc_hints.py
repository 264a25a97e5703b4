"""Hints over gRPC: one call. Imports the extra `grpc`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from headrace.formats import feed_notifications as messages

_PATH = f"/{messages.SERVICE}/{messages.METHOD}"
_OPTIONS = (("grpc.max_receive_message_length", 64 << 10), ("grpc.enable_retries", 0))


class GrpcHints:
    """A subscription to one tenant, from `follow` to `close`."""

    def __init__(
        self, target: str, tls: bytes | None, tenant: str, types: tuple[str, ...],
        credential: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._target = target
        self._tls = tls
        self._metadata = tuple(credential.items())
        self._subscribe = messages.Subscribe(tenant_id=tenant, resource_types=types)
        self._call: Any = None
        self.problem = ""
        """Why the call ended, if that was said."""

    async def follow(self) -> AsyncIterator[tuple[str, int]]:
        """What the server says, as (`confirmed`, number), (`hinted`, number) or (`alive`, 0); ends
        when the call does, however that is.
        """
        async with self._connect() as channel:
            self._call = channel.stream_stream(_PATH)(metadata=self._metadata)
            try:
                await self._send(messages.ClientMessage(subscribe=self._subscribe))
                while (data := await self._call.read()) is not grpc.aio.EOF:
                    yield _parse(data)
            except grpc.aio.AioRpcError as error:
                self.problem = f"{error.code().name}: {error.details()}"
            except (grpc.aio.UsageError, DecodeError):
                return
            finally:
                self._call.cancel()

    async def beat(self) -> None:
        """Say that we live; a call that has ended says so by itself."""
        try:
            await self._send(messages.ClientMessage(heartbeat=messages.Heartbeat()))
        except (grpc.aio.AioRpcError, grpc.aio.UsageError):
            pass

    async def _send(self, message: messages.ClientMessage) -> None:
        await self._call.write(message.SerializeToString())

    def _connect(self) -> Any:
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self._tls or None)
        return grpc.aio.secure_channel(self._target, credentials, options=_OPTIONS)


def _parse(data: bytes) -> tuple[str, int]:
    message = messages.ServerMessage.FromString(data)
    match message.WhichOneof("message"):
        case "subscription_confirmed":
            return "confirmed", message.subscription_confirmed.latest_sequence_number
        case "event_notification":
            return "hinted", message.event_notification.latest_sequence_number
        case _:
            return "alive", 0
