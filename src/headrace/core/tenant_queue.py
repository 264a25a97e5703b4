"""A queue that tenants share: each in turn, so that one who brings much keeps nobody waiting."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from headrace.core.cap import Cap

T = TypeVar("T")


class TenantQueue(Generic[T]):
    """What waits, by tenant. A tenant is served once before its next turn comes."""

    def __init__(self, total: Cap, per_tenant: Cap) -> None:
        self._total = total
        self._per_tenant = per_tenant
        self._count = 0
        self._waiting: dict[str, deque[T]] = {}
        """In the order of their turns."""

    def __len__(self) -> int:
        return self._count

    def put(self, tenant: str, item: T) -> None:
        """Have this wait behind what its tenant has brought; refuses when too much waits."""
        own = self._waiting.get(tenant, ())
        self._total.check(self._count)
        self._per_tenant.check(len(own))
        self._waiting.setdefault(tenant, deque()).append(item)
        self._count += 1

    def put_back(self, tenant: str, item: T) -> None:
        """Have what was taken wait again: before what else its tenant has brought, and behind all
        other tenants.
        """
        own = self._waiting.pop(tenant, None) or deque()
        own.appendleft(item)
        self._waiting[tenant] = own
        self._count += 1

    def take(self) -> T:
        """The next; there must be one."""
        tenant = next(iter(self._waiting))
        own = self._waiting.pop(tenant)
        item = own.popleft()
        if own:
            self._waiting[tenant] = own  # behind all others
        self._count -= 1
        return item
