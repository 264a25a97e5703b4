"""What the engine journals: an entry says what was decided; applying it needs only the state.

Every entry is self-contained: counts and floors are decided once and written down, so that replay
never has to look at a clock, a size or an index again.
"""

from __future__ import annotations

import msgspec

from headrace.core.config import LogConfig
from headrace.core.copies import Copying
from headrace.core.inlet import Rule
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
    created_by: str = ""
    """Id of the key that made it, for the caps of each key."""


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
    """These seqs are gone for good, by the user's wish: deleted, acked or moved elsewhere."""

    log: int
    ranges: list[int]
    count: int
    size_bytes: int
    dead_lettered: int = 0
    """How many of them failed too often and were moved to where dead letters go."""


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


class Fork(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a stream begins that goes on from another: records up to `upto` are the source's."""

    source: int
    upto: int
    asked: int | None
    """The seq that was asked for; None when it was left to the source's tail."""
    sub: int
    """What was asked for beyond it: messages, or bytes of the next record."""
    epochs: list[tuple[int, int]] = []
    """(last seq, epoch): in which epochs the offsets of the shared records were given out."""


class Open(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A log that was just created is a stream. A fork takes over the source's last time."""

    log: int
    content_type: str
    epoch: int
    at_ms: int
    ttl_ms: int | None
    expires_at_ms: int | None
    fork: Fork | None = None
    last_ts_ms: int = 0
    last_ns: int = 0


class Advance(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a write changed of a stream beside its records; grouped with the append, if any."""

    log: int
    producer: tuple[str, int, int] | None
    """(id, epoch, seq) of the write."""
    seq: str | None
    close: bool = False


class Touch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stream was used: it lives at least until then."""

    log: int
    expires_at_ms: int


class Hold(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """So many more streams are forks of this one; less when it is below zero."""

    log: int
    forks: int


class Bury(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stream was deleted, and its records stay for its forks."""

    log: int


class Retire(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stream of this name and epoch is gone; the next of the name gets a higher epoch.

    Grouped with the drop. Of no log, so that it counts even where the snapshot has forgotten it.
    """

    name: str
    epoch: int
    log: int = 0


class Following(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a subscription is for: which streams wake whom, and how."""

    kind: str
    """`webhook` or `pull-wake`."""
    pattern: str | None
    streams: list[str]
    url: str | None
    wake_stream: str | None
    lease_ms: int
    description: str | None
    base_url: str
    """Where its own paths are, as who made it sees us."""
    at_ms: int


class Follow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A subscription begins, or knows these streams from here on and those no more.

    Grouped with the append that a stream is first followed for: nothing of it can be missed.
    """

    log: int
    links: list[tuple[str, bool, int, int]] = []
    """(stream, whether it was asked for by name, epoch and seq of what is done)."""
    gone: list[str] = []
    following: Following | None = None


class Dispatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where the work of a subscription stands: who was woken for it, and what is done."""

    log: int
    generation: int
    wake: str | None
    """Names the wake that is out; None when there is none."""
    holder: str | None = None
    lease_until_ms: int = 0
    failures: int = 0
    retry_at_ms: int = 0
    acks: list[tuple[str, int, int]] = []
    """(stream, epoch, seq): everything up to there is done."""


class Start(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A process began to write here, under this boot of the operating system."""

    log: int
    boot_id: str


class Stop(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The process stopped in good order; nothing was in flight."""

    log: int = 0


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """These jobs, ascending, are under a lease of `node` until the deadline.

    The first has this fence, the next the one above it, and so on.
    """

    log: int
    node: str
    at_ms: int
    deadline_ms: int
    fence: int
    seqs: list[int]


class Release(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The leases of these jobs ended without an ack.

    They can be claimed again, from `ready_at_ms` on if that is not 0.
    """

    log: int
    seqs: list[int]
    ready_at_ms: int


class Extend(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The leases of these jobs have a new deadline."""

    log: int
    seqs: list[int]
    deadline_ms: int


class Delay(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """These new jobs cannot be claimed before `ready_at_ms`."""

    log: int
    ranges: list[int]
    ready_at_ms: int


class Route(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A router brings records of `source` here, those behind `cursor`; its rule may be new."""

    log: int
    router: str
    source: int
    rule: Rule
    cursor: int
    forwarded: int = 0
    created_by: str = ""


class Unroute(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """This router brings nothing more; what it brought stays."""

    log: int
    router: str


class Forward(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A router has come to `upto` in its source.

    The seqs from `first` on go to `holes` records that the source lost before they were copied, and
    then to `count` copies. With `copying`, no append says what is in the copies: they are made from
    the source's records `picks`, which stand in the same journal file.
    """

    log: int
    router: str
    source: int
    upto: int
    first: int
    holes: int
    count: int
    path: list[int]
    """The logs the copies have been through, the source last."""
    picks: list[int]
    """Which records were copied, as ranges; nothing when nobody needs to know."""
    ts_ms: int = 0
    copying: Copying | None = None
    trim: Trim | None = None


class Plan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How the records of this log can be searched from here on: JSON; None for not at all."""

    log: int
    search: bytes | None


class Register(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the records of this stream are from here on: its registry of schemas, as JSON."""

    log: int
    registry: bytes | None


class Adopt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The stream has this profile from here on, as JSON; None for that which every stream has."""

    log: int
    profile: bytes | None


class Arrive(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The log has everything up to this chunk of this batch of a transaction.

    Grouped with the append of the chunk: a crash keeps both or neither.
    """

    log: int
    transaction: str
    batch: int
    chunk: int


Entry = (
    Create
    | Configure
    | Drop
    | Append
    | Delete
    | Trim
    | Reserve
    | Lose
    | Start
    | Stop
    | Open
    | Advance
    | Touch
    | Hold
    | Bury
    | Retire
    | Follow
    | Dispatch
    | Claim
    | Release
    | Extend
    | Delay
    | Route
    | Unroute
    | Forward
    | Plan
    | Arrive
    | Register
    | Adopt
)
