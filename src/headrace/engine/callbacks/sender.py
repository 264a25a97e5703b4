"""Calling receivers: one call of each at a time, in slots that slow ones cannot fill, until the
server stops.

What is decided for a call is on stable storage before it is made; what becomes of it is the
caller's to write down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from headrace.core.errors import Refused
from headrace.core.limits import WEBHOOK_SLOW_S
from headrace.engine.callbacks.delivery_slots import DeliverySlots
from headrace.engine.kernel import Kernel


class DeliveryFailed(Exception):
    """A receiver did not take what it was sent."""

    def __init__(
        self, problem: str, status: int | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(problem)
        self.status = status
        """What it answered, if it answered."""
        self.retry_after_ms = retry_after_ms
        """How long it wants to be left alone at least, if it said so."""


class ReceiverReply(msgspec.Struct, frozen=True):
    """What a receiver answered that took what it was sent."""

    status: int
    body: bytes = b""


class Receivers(Protocol):
    """Where calls go: over HTTP, or wherever tests have them go."""

    async def check(self, url: str) -> None:
        """Refuse a URL that must not be called."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverReply:
        """Send a body; raises DeliveryFailed unless it was taken, in time."""


class Receiver(Protocol):
    """Somebody who is called, one call at a time."""

    sending: bool
    """A call is under way, or waits for a slot."""
    slow: bool
    """It took long the last time, or failed."""

    @property
    def key(self) -> str:
        """Who made it, and has a share of the slots."""


class Callback(Protocol):
    """A call that is to be made, if there is still reason to when there is a slot."""

    @property
    def receiver(self) -> Receiver: ...

    async def begin(self) -> int | None:
        """Decide on the call; the position in the journal to wait for, or None for no call.

        With the slot in hand: no lease runs out while others are called.
        """

    async def call(self) -> None:
        """Make it; raises DeliveryFailed when it was not taken."""

    def succeeded(self) -> None: ...

    def failed(self, failure: DeliveryFailed) -> None: ...

    def put_off(self) -> None:
        """The server stops: whether the receiver took it or not, the next start calls again."""

    def ended(self) -> None:
        """There is no call any more; perhaps there is reason for the next."""


class CallbackSender:
    """Makes the calls of one engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._slots = DeliverySlots(kernel.caps.per_key.webhooks)
        self._tasks: set[asyncio.Task[None]] = set()
        kernel.observe_drain(self.drain)

    def start(self, callback: Callback) -> None:
        """Call when there is a slot, unless a call of the same receiver is under way."""
        if not callback.receiver.sending:
            callback.receiver.sending = True
            task = asyncio.create_task(self._send(callback))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, callback: Callback) -> None:
        receiver = callback.receiver
        try:
            async with self._slots.hold(receiver.key, slow=receiver.slow):
                position = await callback.begin()
                if position is not None:
                    await self._call(callback, position)
        except Refused:
            pass  # read-only: the next start goes on
        finally:
            receiver.sending = False
        # Not behind what nobody foresaw: it would come again at once.
        callback.ended()

    async def _call(self, callback: Callback, position: int) -> None:
        loop, receiver = asyncio.get_running_loop(), callback.receiver
        began = loop.time()
        try:
            await self._kernel.journal.wait_synced(position)
            began = loop.time()
            await callback.call()
        except DeliveryFailed as failure:
            receiver.slow = True
            callback.failed(failure)
            return
        except asyncio.CancelledError:
            callback.put_off()
            raise
        receiver.slow = loop.time() - began > WEBHOOK_SLOW_S
        callback.succeeded()

    @asynccontextmanager
    async def hold(self, receiver: Receiver) -> AsyncIterator[None]:
        """A slot for a call that somebody waits for."""
        async with self._slots.hold(receiver.key, slow=receiver.slow):
            yield

    def drain(self) -> None:
        """The server is about to stop: no receiver is waited for."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Wait until every call that was under way is written down as one to repeat."""
        self.drain()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class NoReceivers:
    """Nobody can be called here."""

    async def check(self, url: str) -> None:
        pass

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverReply:
        raise DeliveryFailed("nobody delivers webhooks here")
