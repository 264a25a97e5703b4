"""Between a connection and its transport: one write for each step, and when to read on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.flow_control import FlowControl

if TYPE_CHECKING:
    from headrace.web.protocol import Protocol


class OneWrite:
    """A transport that gathers writes until the current step ends."""

    __slots__ = ("_chunks", "_loop", "_released", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._chunks: list[bytes] = []
        self._released = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._chunks:
            self._loop.call_soon(self._flush)
        self._chunks.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._chunks:
            chunks, self._chunks = self._chunks, []
            if not self._released:
                self._transport.writelines(chunks)

    def release(self) -> asyncio.Transport:
        """The transport itself, with all that was gathered on its way; what is written to us from
        here on is dropped.
        """
        self._flush()
        self._released = True
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class ReadFlow(FlowControl):
    """Whether the application keeps up; what came and is not parsed yet comes before more."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        super().__init__(transport)
        self.protocol: Protocol | None = protocol

    def resume_reading(self) -> None:
        protocol = self.protocol
        if self.read_paused and protocol is not None and not protocol.pipeline:
            self.read_paused = False
            protocol.read_on()
