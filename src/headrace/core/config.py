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
    keep_per_key: int = 0
    """Only so many records of each key are kept, the newest; 0: all."""
    keys_max: int = 0
    """Only records of so many keys are kept, those with the newest records; 0: all."""
    unique_ids: bool = False
    """Whether its records have ids, each of which is stored once within `idempotency_window_ms`."""

    @property
    def trims(self) -> bool:
        """Whether records can be lost to retention, so that their sizes and ages must be known."""
        caps = self.cap_records or self.cap_bytes
        return bool(self.ttl_ms or (caps and self.discard is Discard.OLD))

    @property
    def keyed(self) -> bool:
        """Whether records are superseded by newer ones, so that their keys must be known."""
        return bool(self.keep_per_key or self.keys_max)

    @property
    def journaled(self) -> bool:
        return self.durability is not Durability.EPHEMERAL

    @property
    def synced(self) -> bool:
        return self.durability is Durability.FSYNC
