"""How a log behaves: kind, retention, durability, priority, queue tuning.

A value, never changed in place.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Kind(Enum):
    LOG = "log"
    QUEUE = "queue"


class Discard(Enum):
    OLD = "old"
    REJECT = "reject"


class Durability(Enum):
    """Where a write lands before it is acknowledged; docs/GUARANTEES.md has the promises."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class LogConfig(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The whole behaviour of one log."""

    kind: Kind = Kind.LOG
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    durability: Durability = Durability.DISK
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @property
    def trims(self) -> bool:
        """Whether records can be lost to retention, so that their sizes and ages must be known."""
        caps = self.cap_records or self.cap_bytes
        return bool(self.ttl_ms or (caps and self.discard is Discard.OLD))

    @property
    def journaled(self) -> bool:
        return self.durability is not Durability.EPHEMERAL

    @property
    def synced(self) -> bool:
        return self.durability is Durability.FSYNC
