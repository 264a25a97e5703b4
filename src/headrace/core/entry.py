"""What the engine journals: an entry says what was decided; applying it needs only the state.

Every entry is self-contained: counts and floors are decided once and written down, so that replay
never has to look at a clock, a size or an index again.
"""

from __future__ import annotations

import msgspec

from headrace.core.config import LogConfig
from headrace.core.record import Block


class Trim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Records below the floors are gone: `floor_cap` for capacity, `floor_ttl` for age."""

    log: int
    floor_cap: int
    floor_ttl: int
    count: int
    size_bytes: int


class Create(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A log exists. Its id is never given to another and serves as the epoch of this instance."""

    log: int
    name: str
    owner: str
    config: LogConfig
    at_ms: int
    reserved: int


class Configure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The log behaves as `config` says from here on.

    `head` covers seqs that were never journaled.
    """

    log: int
    config: LogConfig
    head: int


class Drop(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The log and all its records are gone."""

    log: int


class Append(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A block of records, the key that makes its retry harmless, and what it pushed out."""

    log: int
    block: Block
    key: str | None = None
    trim: Trim | None = None


class Delete(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """These seqs are gone for good, by the user's wish."""

    log: int
    ranges: list[int]
    count: int
    size_bytes: int


class Reserve(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Seqs up to `upto` may have been acknowledged, whatever a crash leaves in the journal."""

    log: int
    upto: int


class Lose(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A restart took these seqs: each range becomes a gap, and the head is at least `head`.

    `left_bytes` is the size of what is left, whatever replay had counted: records that were never
    journaled leave no trace but in snapshots, and not in every one.
    """

    log: int
    ranges: list[int]
    head: int
    left_bytes: int


class Start(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A process began to write here, under this boot of the operating system."""

    log: int
    boot_id: str


class Stop(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The process stopped in good order; nothing was in flight."""

    log: int = 0


Entry = Create | Configure | Drop | Append | Delete | Trim | Reserve | Lose | Start | Stop
