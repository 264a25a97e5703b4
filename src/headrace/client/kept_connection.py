"""One connection for one request after another, kept as long as the server keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from headrace.client.http_address import Connect, HttpAddress
from headrace.http_response import MalformedResponse, ResponseParser

_READ_BYTES = 64 << 10


class ClientReply(msgspec.Struct, frozen=True):
    """A whole reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeptConnection:
    """Asks one server; one request at a time."""

    def __init__(self, server: HttpAddress, connect: Connect, user_agent: str) -> None:
        self._server = server
        self._connect = connect
        self._user_agent = user_agent
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, target: str, headers: Mapping[str, str], bytes_max: int) -> ClientReply:
        """The reply to a request that may be made twice: a server may close a kept connection in
        the moment it is used. OSError or MalformedResponse when there is none.
        """
        request = self._format(target, headers)
        if self._open is not None:
            try:
                return await self._exchange(request, bytes_max)
            except (_HungUp, ConnectionError):
                pass
        self._open = await self._connect()
        return await self._exchange(request, bytes_max)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].transport.abort()
            self._open = None

    async def _exchange(self, request: bytes, bytes_max: int) -> ClientReply:
        assert self._open is not None
        reader, writer = self._open
        parser, body, reusable = ResponseParser(), bytearray(), False
        try:
            writer.write(request)
            while not parser.is_complete:
                data = await reader.read(_READ_BYTES)
                if not data:
                    raise _HungUp("the connection was closed before the end of the reply")
                body += parser.feed(data)
                if len(body) > bytes_max:
                    raise MalformedResponse(f"the reply has more than {bytes_max} bytes")
            reusable = parser.is_reusable
        finally:
            if not reusable:
                self.close()
        return ClientReply(parser.status, parser.headers, bytes(body))

    def _format(self, target: str, headers: Mapping[str, str]) -> bytes:
        lines = [
            f"GET {target} HTTP/1.1",
            f"host: {self._server.authority}",
            "accept-encoding: identity",
            f"user-agent: {self._user_agent}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("ascii")


class _HungUp(MalformedResponse):
    """The server ended the connection."""
