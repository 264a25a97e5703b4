"""What the engine journals: an entry says what was decided; applying it needs only the state.

Every entry is self-contained: counts and floors are decided once and written down, so that replay
never has to look at a clock, a size or an index again.
"""

from __future__ import annotations

import re
from enum import Enum
from json import dumps
from typing import ClassVar, get_args

import msgspec

from headrace.core import ranges
from headrace.core.config import LogConfig
from headrace.core.copies import Copying
from headrace.core.inbound_route import Rule
from headrace.core.record import Block
from headrace.core.token import Token


class Journaled(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is said of each kind of entry, here and nowhere else; `core.apply` makes it true."""

    KIND: ClassVar[int]
    """The number in its frames: for ever."""
    CONTROL: ClassVar[bool] = False
    """Whether it changes what there is and how it is configured: who tells of that waits."""

    @classmethod
    def title(cls) -> str:
        """What people call such entries: `SoftDelete` is a soft-delete."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def describe(self) -> str:
        """What it says, in one line."""
        raise NotImplementedError


class Trim(Journaled, frozen=True):
    """Records below the floors are gone: `floor_cap` for capacity, `floor_ttl` for age."""

    KIND = 6
    log: int
    floor_cap: int
    floor_ttl: int
    count: int
    size_bytes: int

    def describe(self) -> str:
        floors = (("capacity", self.floor_cap), ("age", self.floor_ttl))
        moved = " and ".join(f"{floor} for {why}" for why, floor in floors if floor)
        return f"floor {moved}: {self.count} records of {self.size_bytes} bytes go"


class Create(Journaled, frozen=True):
    """A log exists. Its id is never given to another and serves as the epoch of this instance."""

    KIND = 1
    CONTROL = True
    log: int
    name: str
    owner: str
    config: LogConfig
    at_ms: int
    reserved: int
    created_by: str = ""
    """Id of the key that made it, for the caps of each key."""

    def describe(self) -> str:
        config = self.config
        return f"log {self.log} of {self.owner}, {config.kind.value}, {config.durability.value}"


class Configure(Journaled, frozen=True):
    """The log behaves as `config` says from here on.

    `head` covers seqs that were never journaled.
    """

    KIND = 2
    CONTROL = True
    log: int
    config: LogConfig
    head: int

    def describe(self) -> str:
        return f"{msgspec.json.encode(self.config).decode()}, head {self.head}"


class Drop(Journaled, frozen=True):
    """The log and all its records are gone."""

    KIND = 3
    CONTROL = True
    log: int

    def describe(self) -> str:
        return "the log and all its records are gone"


class Append(Journaled, frozen=True):
    """A block of records, the key that makes its retry harmless, and what it pushed out."""

    KIND = 4
    log: int
    block: Block
    key: str | None = None
    trim: Trim | None = None

    def describe(self) -> str:
        block = self.block
        key = f", key {dumps(self.key, ensure_ascii=False)}" if self.key else ""
        trim = f"; {self.trim.describe()}" if self.trim else ""
        return f"seqs {block.first} to {block.last}, {block.size_bytes} bytes{key}{trim}"


class Delete(Journaled, frozen=True):
    """These seqs are gone for good, by the user's wish: deleted, acked or moved elsewhere."""

    KIND = 5
    log: int
    ranges: list[int]
    count: int
    size_bytes: int
    dead_lettered: int = 0
    """How many of them failed too often and were moved to where dead letters go."""

    def describe(self) -> str:
        dead = f", {self.dead_lettered} as dead letters" if self.dead_lettered else ""
        what = f"{self.count} records of {self.size_bytes} bytes{dead}"
        return f"{what}: {_seqs(self.ranges)}"


class Reserve(Journaled, frozen=True):
    """Seqs up to `upto` may have been acknowledged, whatever a crash leaves in the journal."""

    KIND = 7
    log: int
    upto: int

    def describe(self) -> str:
        return f"seqs up to {self.upto} may be given out"


class LoseAtRestart(Journaled, frozen=True):
    """A restart took these seqs: each range becomes a gap, and the head is at least `head`.

    `left_bytes` is the size of what is left, whatever replay had counted: records that were never
    journaled leave no trace but in snapshots, and not in every one.
    """

    KIND = 8
    log: int
    ranges: list[int]
    head: int
    left_bytes: int

    def describe(self) -> str:
        left = f"{self.left_bytes} bytes are left; head {self.head}"
        return f"a restart took {_seqs(self.ranges)}; {left}"


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


class Open(Journaled, frozen=True):
    """A log that was just created is a stream. A fork takes over the source's last time."""

    KIND = 19
    CONTROL = True
    log: int
    content_type: str
    epoch: int
    at_ms: int
    ttl_ms: int | None
    expires_at_ms: int | None
    fork: Fork | None = None
    last_ts_ms: int = 0
    last_ns: int = 0

    def describe(self) -> str:
        fork = self.fork
        origin = f", a fork of log {fork.source} behind seq {fork.upto}" if fork else ""
        return f"a stream of {self.content_type}, epoch {self.epoch}{origin}"


class NoteWrite(Journaled, frozen=True):
    """What a write changed of a stream beside its records; grouped with the append, if any."""

    KIND = 20
    log: int
    producer: tuple[str, int, int] | None
    """(id, epoch, seq) of the write."""
    seq: str | None
    close: bool = False

    def describe(self) -> str:
        said: list[str] = []
        if self.producer is not None:
            producer, epoch, seq = self.producer
            said.append(f"write {seq} of producer {producer!r} in epoch {epoch}")
        if self.seq is not None:
            said.append(f"Stream-Seq {self.seq!r}")
        if self.close:
            said.append("closed")
        return "; ".join(said)


class ExtendTtl(Journaled, frozen=True):
    """A stream was used: it lives at least until then."""

    KIND = 21
    log: int
    expires_at_ms: int

    def describe(self) -> str:
        return f"lives until {self.expires_at_ms} at least"


class CountForks(Journaled, frozen=True):
    """So many more streams are forks of this one; less when it is below zero."""

    KIND = 22
    log: int
    forks: int

    def describe(self) -> str:
        return f"{self.forks:+d} forks"


class SoftDelete(Journaled, frozen=True):
    """A stream was deleted, and its records stay for its forks."""

    KIND = 23
    CONTROL = True
    log: int

    def describe(self) -> str:
        return "deleted; its records stay for its forks"


class Retire(Journaled, frozen=True):
    """A stream of this name and epoch is gone; the next of the name gets a higher epoch.

    Grouped with the drop. Of no log, so that it counts even where the snapshot has forgotten it.
    """

    KIND = 24
    name: str
    epoch: int
    log: int = 0

    def describe(self) -> str:
        return f"the stream {self.name!r} of epoch {self.epoch} is gone"


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


class Follow(Journaled, frozen=True):
    """A subscription begins, or knows these streams from here on and those no more.

    Grouped with the append that a stream is first followed for: nothing of it can be missed.
    """

    KIND = 25
    CONTROL = True
    log: int
    links: list[tuple[str, bool, int, int]] = []
    """(stream, whether it was asked for by name, epoch and seq of what is done)."""
    gone: list[str] = []
    following: Following | None = None

    def describe(self) -> str:
        what = f"{self.following.kind} subscription; " if self.following else ""
        return f"{what}{len(self.links)} streams are followed, {len(self.gone)} no more"


class Dispatch(Journaled, frozen=True):
    """Where the work of a subscription stands: who was woken for it, and what is done."""

    KIND = 26
    CONTROL = True
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

    def describe(self) -> str:
        held = f", held by {self.holder!r}" if self.holder else ""
        return f"generation {self.generation}, wake {self.wake or 'none'}{held}"


class Start(Journaled, frozen=True):
    """A process began to write here, under this boot of the operating system."""

    KIND = 9
    log: int
    boot_id: str

    def describe(self) -> str:
        return f"a server started, boot {self.boot_id or 'unknown'}"


class Stop(Journaled, frozen=True):
    """The process stopped in good order; nothing was in flight."""

    KIND = 10
    log: int = 0

    def describe(self) -> str:
        return "the server stopped in good order"


class Claim(Journaled, frozen=True):
    """These jobs, ascending, are under a lease of `node` until the deadline.

    The first has this fence, the next the one above it, and so on.
    """

    KIND = 12
    log: int
    node: str
    at_ms: int
    deadline_ms: int
    fence: int
    seqs: list[int]

    def describe(self) -> str:
        until = f"until {self.deadline_ms}, fences from {self.fence:x}"
        return f"{_jobs(self.seqs)} to {dumps(self.node, ensure_ascii=False)} {until}"


class Release(Journaled, frozen=True):
    """The leases of these jobs ended without an ack.

    They can be claimed again, from `ready_at_ms` on if that is not 0.
    """

    KIND = 13
    log: int
    seqs: list[int]
    ready_at_ms: int

    def describe(self) -> str:
        when = f"from {self.ready_at_ms} on" if self.ready_at_ms else "at once"
        return f"{_jobs(self.seqs)} can be claimed again {when}"


class Extend(Journaled, frozen=True):
    """The leases of these jobs have a new deadline."""

    KIND = 14
    log: int
    seqs: list[int]
    deadline_ms: int

    def describe(self) -> str:
        return f"{_jobs(self.seqs)} are held until {self.deadline_ms}"


class Delay(Journaled, frozen=True):
    """These new jobs cannot be claimed before `ready_at_ms`."""

    KIND = 15
    log: int
    ranges: list[int]
    ready_at_ms: int

    def describe(self) -> str:
        return f"{_seqs(self.ranges)} cannot be claimed before {self.ready_at_ms}"


class Route(Journaled, frozen=True):
    """A router brings records of `source` here, those behind `cursor`; its rule may be new."""

    KIND = 16
    CONTROL = True
    log: int
    router: str
    source: int
    rule: Rule
    cursor: int
    forwarded: int = 0
    created_by: str = ""

    def describe(self) -> str:
        return f"router {self.router} from log {self.source}, behind seq {self.cursor}"


class Unroute(Journaled, frozen=True):
    """This router brings nothing more; what it brought stays."""

    KIND = 17
    CONTROL = True
    log: int
    router: str

    def describe(self) -> str:
        return f"router {self.router} ends"


class Forward(Journaled, frozen=True):
    """A router has come to `upto` in its source.

    The seqs from `first` on go to `holes` records that the source lost before they were copied, and
    then to `count` copies. With `copying`, no append says what is in the copies: they are made from
    the source's records `picks`, which stand in the same journal file.
    """

    KIND = 18
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

    def describe(self) -> str:
        said = f"router {self.router} came to seq {self.upto} of log {self.source}"
        if self.holes:
            said += f"; seqs {self.first} to {self.first + self.holes - 1} are holes"
        if self.count:
            first = self.first + self.holes
            said += f"; copies at {first} to {first + self.count - 1}"
        if self.copying is not None:
            said += f" of its {_seqs(self.picks)}"
        return f"{said}; {self.trim.describe()}" if self.trim else said


class Plan(Journaled, frozen=True):
    """How the records of this log can be searched from here on: JSON; None for not at all."""

    KIND = 27
    CONTROL = True
    log: int
    search: bytes | None

    def describe(self) -> str:
        return f"search {self.search.decode()}" if self.search else "search ends"


class Register(Journaled, frozen=True):
    """What the records of this stream are from here on: its registry of schemas, as JSON."""

    KIND = 29
    CONTROL = True
    log: int
    registry: bytes | None

    def describe(self) -> str:
        return f"registry {self.registry.decode()}" if self.registry else "registry ends"


class SetProfile(Journaled, frozen=True):
    """The stream has this profile from here on, as JSON; None for that which every stream has."""

    KIND = 30
    CONTROL = True
    log: int
    profile: bytes | None

    def describe(self) -> str:
        return f"profile {self.profile.decode()}" if self.profile else "profile ends"


class Arrive(Journaled, frozen=True):
    """The log has everything up to this chunk of this batch of a transaction.

    Grouped with the append of the chunk: a crash keeps both or neither.
    """

    KIND = 28
    log: int
    transaction: str
    batch: int
    chunk: int

    def describe(self) -> str:
        where = f"chunk {self.chunk} of batch {self.batch}"
        return f"transaction {self.transaction} came to {where}"


class Issue(Journaled, frozen=True):
    """A token opens something from here on. Of no log, as its end is."""

    KIND = 31
    token: Token
    log: int = 0

    def describe(self) -> str:
        return f"token {self.token.id} {dumps(self.token.label, ensure_ascii=False)} is issued"


class Revoke(Journaled, frozen=True):
    """A token opens nothing any more."""

    KIND = 32
    id: str
    log: int = 0

    def describe(self) -> str:
        return f"token {self.id} is revoked"


class Refer(Journaled, frozen=True):
    """Versions in the log `by` name contents of this log, or name them no more.

    Grouped with the contents that come and the version that names them, with the deletion of those
    that nobody names any more, or with the drop of `by`. Digests are SHA-256s, joined.
    """

    KIND = 33
    log: int
    by: int
    held_from: int
    """From this version on, `by` has all it names; 0 when it names nothing any more."""
    first: int = 0
    added: bytes = b""
    """Contents that are new: their records have the seqs from `first` on."""
    sizes: list[int] = []
    """What each of these records counts for."""
    taken: bytes = b""
    """One reference more for each, some of them perhaps several times."""
    released: bytes = b""
    """One reference less; a content without any is gone."""

    def describe(self) -> str:
        taken, released = (len(part) // 32 for part in (self.taken, self.released))
        new = f", {len(self.sizes)} of them new" if self.sizes else ""
        held = f"held from version {self.held_from} on" if self.held_from else "nothing is held"
        return f"log {self.by} names {taken} contents{new}, and {released} no more; {held}"


class SetTracker(Journaled, frozen=True):
    """A tracker reads this log from here on, behind `cursor`; nobody holds it."""

    KIND = 34
    CONTROL = True
    log: int
    source: int
    source_name: str
    cursor: int

    def describe(self) -> str:
        return f"a tracker of log {self.source} behind seq {self.cursor}"


class NotePoll(Journaled, frozen=True):
    """A tracker was polled: who holds it until when, what is done, and what was handed out."""

    KIND = 35
    log: int
    node: str
    lease_until_ms: int
    fence: int
    cursor: int
    given: int

    def describe(self) -> str:
        held = f"held by {dumps(self.node, ensure_ascii=False)} until {self.lease_until_ms}"
        return f"done up to seq {self.cursor}, given up to {self.given}, {held}, fence {self.fence}"


class WebhookStatus(Enum):
    """Whether a webhook is called."""

    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    """All retries of a batch were used up; it is among the dead letters."""
    DISABLED = "disabled"
    """The receiver said that it is gone."""


class Destination(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a webhook sends what, and how much at a time."""

    url: str
    filter: bytes
    """Which records, as the surface that made it says that; empty: all."""
    batch_records: int
    batch_delay_ms: int
    """How long the first record of a batch waits for others."""


class WebhookSecrets(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What deliveries are signed with. Nothing that is printed tells it."""

    current: str
    previous: str = ""
    previous_until_ms: int = 0
    """Until then the previous one signs, too."""

    def __repr__(self) -> str:
        return "<secrets>"

    def valid(self, now_ms: int) -> tuple[str, ...]:
        """Those to sign with, the newest first."""
        if self.previous and now_ms < self.previous_until_ms:
            return self.current, self.previous
        return (self.current,)


class DeliveryBatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Records that are sent together: those a webhook wants, behind its cursor up to `upto`."""

    id: str
    """Of the delivery, whatever becomes of it: every attempt has the same."""
    upto: int
    at_ms: int


class SetWebhook(Journaled, frozen=True):
    """A webhook begins behind `cursor` of a log, or is like this from here on.

    One that reads the same log as before goes on where it was.
    """

    KIND = 36
    CONTROL = True
    log: int
    source: int
    source_name: str
    cursor: int
    destination: Destination
    secrets: WebhookSecrets
    status: WebhookStatus

    def describe(self) -> str:
        return f"a webhook of log {self.source} behind seq {self.cursor}, {self.status.value}"


class NoteDelivery(Journaled, frozen=True):
    """Where a webhook stands: what is delivered, what is under way, and how that goes."""

    KIND = 37
    log: int
    cursor: int
    batch: DeliveryBatch | None
    status: WebhookStatus
    failures: int = 0
    retry_at_ms: int = 0
    failing_since_ms: int = 0
    delivered_at_ms: int = 0
    last_error: str = ""

    def describe(self) -> str:
        batch = f", {self.batch.id} up to seq {self.batch.upto}" if self.batch else ""
        failed = f", {self.failures} failures" if self.failures else ""
        return f"delivered up to seq {self.cursor}{batch}{failed}, {self.status.value}"


Entry = (
    Create
    | Configure
    | Drop
    | Append
    | Delete
    | Trim
    | Reserve
    | LoseAtRestart
    | Start
    | Stop
    | Open
    | NoteWrite
    | ExtendTtl
    | CountForks
    | SoftDelete
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
    | SetProfile
    | Issue
    | Revoke
    | Refer
    | SetTracker
    | NotePoll
    | SetWebhook
    | NoteDelivery
)
KINDS: dict[int, type[Entry]] = {kind.KIND: kind for kind in get_args(Entry)}


def _jobs(seqs: list[int]) -> str:
    return _seqs(ranges.from_seqs(seqs))


def _seqs(held: ranges.Ranges) -> str:
    shown = ", ".join(f"{first} to {last}" for first, last in list(ranges.pairs(held))[:3])
    more = f" and {len(held) // 2 - 3} ranges more" if len(held) > 6 else ""
    return f"seqs {shown}{more}"
