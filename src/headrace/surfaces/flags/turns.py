"""Work that takes long, one piece at a time: tenants have their turns one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.core.cap import Cap
from headrace.core.tenant_queue import TenantQueue


class Turns:
    """One has a turn at a time. A tenant that brings much waits for itself alone."""

    def __init__(self, total: Cap, per_tenant: Cap) -> None:
        self._waiting: TenantQueue[asyncio.Future[None]] = TenantQueue(total, per_tenant)
        self._is_taken = False

    @asynccontextmanager
    async def take(self, tenant: str) -> AsyncIterator[None]:
        """Have a turn when it is that of the tenant; refuses when too many wait."""
        if self._is_taken:
            await self._wait(tenant)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(tenant, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has come, and nobody is there to take it
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.take()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
