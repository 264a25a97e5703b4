"""Consumers: who is sent hints, of which tenants, since when, and when it last said something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from headrace.core.errors import Refused
from headrace.delivery.endings import Ending, ShuttingDown


class ConsumedTenant(msgspec.Struct, frozen=True):
    """What a consumer wants of a tenant: these types of resources, or all."""

    resource_types: frozenset[str]
    since_ms: int


class Consumer:
    """One connected consumer."""

    __slots__ = ("connected_at_ms", "heard_at_ms", "id", "node", "principal_id", "tenants")

    def __init__(self, id: str, principal_id: str, node: str, now_ms: int) -> None:
        self.id = id
        self.principal_id = principal_id
        self.node = node
        """As it calls itself, if it does."""
        self.connected_at_ms = self.heard_at_ms = now_ms
        self.tenants: dict[str, ConsumedTenant] = {}


class ConsumerConnection(Protocol):
    """What a consumer is connected by."""

    @property
    def consumer(self) -> Consumer: ...

    def end(self, ending: Ending | Refused) -> None: ...


class Consumers:
    """All that are connected."""

    def __init__(self) -> None:
        self._connections: dict[ConsumerConnection, None] = {}
        self._by_tenant: dict[str, dict[ConsumerConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def of(self, tenant: str) -> Iterator[Consumer]:
        """Those of a tenant, oldest first."""
        return (each.consumer for each in self._by_tenant.get(tenant, ()))

    def add(self, connection: ConsumerConnection) -> None:
        self._connections[connection] = None

    def note(
        self, connection: ConsumerConnection, tenant: str, types: frozenset[str], now_ms: int
    ) -> None:
        """A consumer wants this of a tenant from now on."""
        connection.consumer.tenants[tenant] = ConsumedTenant(types, now_ms)
        self._by_tenant.setdefault(tenant, {})[connection] = None

    def forget(self, connection: ConsumerConnection, tenant: str) -> None:
        """A consumer wants nothing more of a tenant."""
        del connection.consumer.tenants[tenant]
        others = self._by_tenant[tenant]
        del others[connection]
        if not others:
            del self._by_tenant[tenant]

    def remove(self, connection: ConsumerConnection) -> None:
        """A consumer is gone; once more changes nothing."""
        self._connections.pop(connection, None)
        for tenant in tuple(connection.consumer.tenants):
            self.forget(connection, tenant)

    def shutdown(self) -> None:
        """The server is about to stop."""
        for connection in tuple(self._connections):
            connection.end(ShuttingDown())
