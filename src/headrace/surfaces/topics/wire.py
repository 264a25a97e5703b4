"""The JSON of the topics surface: every request and reply, and nothing about what they do."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from headrace.core.config import Discard, Durability, Kind, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    CLAIM_JITTER_MS_MAX,
    HEARTBEAT_MS_DEFAULT,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    PRIORITY_MAX,
    REDRIVE_DEFAULT,
    SEARCH_SIZE_DEFAULT,
    SEARCH_SIZE_MAX,
    SEARCH_TIMEOUT_MS,
    U64_MAX,
    WATCH_BYTES_DEFAULT,
)
from headrace.core.log import Log
from headrace.surfaces.topics.names import parse_topic

Count = Annotated[int, Meta(ge=0, description="u64")]
T = TypeVar("T", bound=msgspec.Struct)


def checked(request: T) -> T:
    """The request, if its numbers fit a u64 (msgspec has no bounds beyond an i64)."""
    for field in request.__struct_fields__:
        value = getattr(request, field)
        if type(value) is int and value > U64_MAX:
            raise Refused(Code.INVALID, f"{field} does not fit a u64", field=field)
    return request


class ConfigRequest(msgspec.Struct, kw_only=True):
    """How a topic behaves.

    Whatever is left out takes its default; an existing topic keeps its type.
    """

    type: Literal["log", "queue"] | UnsetType = UNSET
    ttl_ms: Count = 0
    cap_records: Count = 0
    cap_bytes: Count = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Literal["ephemeral", "memory", "disk", "fsync"] | UnsetType = UNSET
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Count = 120_000
    dedupe_node: bool = True
    lease_ms: Count = 30_000
    claim_jitter_ms: Count = 0
    max_deliveries: Count = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    def parse(self, topic: str, kind: Kind) -> LogConfig:
        """The config of this topic; `kind` is what it is when the request does not say."""
        checked(self)
        if self.dead_letter is not None:
            parse_topic(self.dead_letter)
            if self.dead_letter == topic:
                raise Refused(
                    Code.INVALID, "dead_letter must name another topic", field="dead_letter"
                )
        if self.durability is UNSET:
            durability = Durability.FSYNC if self.durable else Durability.DISK
        else:
            durability = Durability(self.durability)
        return LogConfig(
            kind=kind if self.type is UNSET else Kind(self.type),
            ttl_ms=self.ttl_ms,
            cap_records=self.cap_records,
            cap_bytes=self.cap_bytes,
            discard=Discard(self.discard),
            durability=durability,
            priority=_clamp(self.priority, -PRIORITY_MAX, PRIORITY_MAX),
            auto_priority=self.auto_priority,
            auto_create=self.auto_create,
            idempotency_window_ms=self.idempotency_window_ms,
            dedupe_node=self.dedupe_node,
            lease_ms=max(LEASE_MS_MIN, min(LEASE_MS_MAX, self.lease_ms)),
            claim_jitter_ms=min(CLAIM_JITTER_MS_MAX, self.claim_jitter_ms),
            max_deliveries=self.max_deliveries,
            dead_letter=self.dead_letter,
            leases_durable=self.leases_durable,
        )


def _clamp(value: int | None, low: int, high: int) -> int | None:
    return None if value is None else max(low, min(high, value))


class Config(msgspec.Struct, kw_only=True):
    """The whole config of a topic, as the server holds it."""

    type: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    durable: bool
    durability: str
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


def format_config(config: LogConfig) -> Config:
    return Config(
        type=config.kind.value,
        ttl_ms=config.ttl_ms,
        cap_records=config.cap_records,
        cap_bytes=config.cap_bytes,
        discard=config.discard.value,
        durable=config.synced,
        durability=config.durability.value,
        priority=config.priority,
        auto_priority=config.auto_priority,
        auto_create=config.auto_create,
        idempotency_window_ms=config.idempotency_window_ms,
        dedupe_node=config.dedupe_node,
        lease_ms=config.lease_ms,
        claim_jitter_ms=config.claim_jitter_ms,
        max_deliveries=config.max_deliveries,
        dead_letter=config.dead_letter,
        leases_durable=config.leases_durable,
    )


class RecordRequest(msgspec.Struct, gc=False):
    """One record to append. `data` and `meta` are kept as the JSON text they came as."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET
    group: str | None = None
    delay_ms: Count | None = None
    deliver_at: Count | None = None


class PlainRecordRequest(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record with nothing but data: the most common kind, and the cheapest to decode."""

    data: Raw


class _AppendOptions(msgspec.Struct, gc=False, kw_only=True):
    node: str | None = None
    idempotency_key: Annotated[str, Meta(max_length=IDEMPOTENCY_KEY_LENGTH_MAX)] | None = None
    create: bool | None = None
    config: ConfigRequest | None = None
    disable_backpressure: bool = False
    delay_ms: Count | None = None
    deliver_at: Count | None = None


class AppendRequest(_AppendOptions, gc=False, kw_only=True):
    """Records to append, all or none, and what to do when the topic is not there."""

    records: list[RecordRequest]


class PlainAppendRequest(_AppendOptions, gc=False, kw_only=True):
    """An append whose records have nothing but data."""

    records: list[PlainRecordRequest]


class DiffRequest(msgspec.Struct, gc=False, kw_only=True):
    """Where to read from and how much."""

    from_seq: Count = 0
    limit: Count = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Count = 0
    max_batch_bytes: Count = 0
    epoch: Count | None = None
    match: Any = None


class WatchTopic(msgspec.Struct, kw_only=True):
    """Where to start in a topic, and which of its records to get."""

    from_seq: Count = 0
    tail: bool = False
    epoch: Count | None = None
    match: Any = None


class FollowOptions(msgspec.Struct, kw_only=True):
    node: str | list[str] | None = None
    match: Any = None
    limit: Count = 0
    max_batch_bytes: Count = WATCH_BYTES_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"


class WatchRequest(FollowOptions, kw_only=True):
    """Topics to watch together; a name that ends in `*` stands for all that begin like it."""

    topics: dict[str, WatchTopic | None]
    heartbeat_ms: Count = HEARTBEAT_MS_DEFAULT
    cursor: str | None = None


class WatchPlace(msgspec.Struct, kw_only=True):
    """`epoch`: the instance of the topic; said with a cursor, another one is noticed."""

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: int


class WatchReply(msgspec.Struct, kw_only=True):
    """A session: open its stream with GET `stream_url`."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchPlace]
    prefixes: list[str] | UnsetType = UNSET


class Ping(msgspec.Struct, tag_field="op", tag="ping", kw_only=True):
    """Answered with `pong`. As everywhere, `request_id` comes back with the answer as it is."""

    request_id: Raw | UnsetType = UNSET


class Subscribe(FollowOptions, tag_field="op", tag="subscribe", kw_only=True):
    """Follow a topic, or several: `topics` is as in a watch."""

    request_id: Raw | UnsetType = UNSET
    topic: str | None = None
    topics: dict[str, WatchTopic | None] | None = None
    from_seq: Count = 0
    tail: bool = False
    epoch: Count | None = None
    lenient: bool = False


class Unsubscribe(msgspec.Struct, tag_field="op", tag="unsubscribe", kw_only=True):
    """Follow a topic no more; a prefix is named as it was."""

    request_id: Raw | UnsetType = UNSET
    topic: str


class Publish(AppendRequest, tag_field="op", tag="publish", gc=False, kw_only=True):
    """Append to a topic, as a POST would."""

    request_id: Raw | UnsetType = UNSET
    topic: str
    return_seqs: bool = True


class PlainPublish(PlainAppendRequest, tag_field="op", tag="publish", gc=False, kw_only=True):
    """A publication whose records have nothing but data."""

    request_id: Raw | UnsetType = UNSET
    topic: str
    return_seqs: bool = True


class DeleteRequest(msgspec.Struct, kw_only=True):
    """Which records go: all below a seq, all with a matching tag, or both conditions together."""

    before_seq: Count | None = None
    match: Any = None


class ClaimRequest(msgspec.Struct, gc=False, kw_only=True):
    """Who wants jobs, how many, and for how long."""

    node: str
    max: Count = 1
    lease_ms: Count | UnsetType = UNSET


class AckRequest(msgspec.Struct, gc=False, kw_only=True):
    """Which jobs a worker is done with; `lease_ids`, one for each, fence off stale workers."""

    node: str
    seqs: list[Count]
    lease_ids: list[str | None] | None = None


class NackRequest(AckRequest, gc=False, kw_only=True):
    """Which jobs a worker gives back, and when they may be claimed again."""

    delay_ms: Count = 0


class ExtendRequest(AckRequest, gc=False, kw_only=True):
    """Which jobs a worker keeps, for so long from now on."""

    lease_ms: Count


class RedriveRequest(msgspec.Struct, kw_only=True):
    """How many dead letters go back, oldest first; `to` one queue, or each where it came from."""

    limit: Count = REDRIVE_DEFAULT
    to: str | None = None


class RouterRequest(msgspec.Struct, kw_only=True):
    """Which records go where. Whatever is left out takes its default."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    from_seq: Count | None = None


class TopicReply(msgspec.Struct, kw_only=True):
    topic: str
    created: bool
    config: Config


class QueueCounters(msgspec.Struct, kw_only=True):
    ready: int
    in_flight: int
    dead_lettered: int


class StateReply(msgspec.Struct, kw_only=True):
    """Where a topic stands."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    epoch: int
    config: Config
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueCounters | UnsetType = UNSET


class TopicSummary(msgspec.Struct, kw_only=True):
    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class ListReply(msgspec.Struct, kw_only=True):
    topics: list[TopicSummary]
    next_cursor: str | UnsetType = UNSET


class DropReply(msgspec.Struct, kw_only=True):
    topic: str
    deleted: bool
    routers_removed: list[str]


class SearchReply(msgspec.Struct, kw_only=True):
    """How the topic's records can be searched; null: not at all."""

    topic: str
    search: msgspec.Raw | None


class FindRequest(msgspec.Struct, kw_only=True):
    """What to search for."""

    q: str
    size: Annotated[int, Meta(ge=1, le=SEARCH_SIZE_MAX)] = SEARCH_SIZE_DEFAULT
    sort: list[str] | None = None
    search_after: list[Any] | None = None
    timeout_ms: Annotated[int, Meta(ge=0)] = SEARCH_TIMEOUT_MS


class FoundTotal(msgspec.Struct, kw_only=True):
    value: int
    relation: Literal["eq", "gte"]


class FoundRecord(msgspec.Struct, kw_only=True):
    offset: int
    score: float
    sort: list[Any]
    fields: dict[str, Any]
    source: Any


class FoundReply(msgspec.Struct, kw_only=True):
    """What was found, and what was looked at for it."""

    topic: str
    snapshot_end_offset: int
    took_ms: int
    timed_out: bool
    timeout_ms: int
    coverage: dict[str, Any]
    total: FoundTotal
    hits: list[FoundRecord]
    next_search_after: list[Any] | None


class AggregateRequest(msgspec.Struct, kw_only=True, rename={"since": "from"}):
    """What to count and measure, and when."""

    rollup: str
    since: str | float
    to: str | float
    interval: str
    q: str | None = None
    group_by: list[str] | None = None
    measures: list[str] | None = None
    timeout_ms: Annotated[int, Meta(ge=0)] = SEARCH_TIMEOUT_MS


class AggregateGroup(msgspec.Struct, kw_only=True):
    key: dict[str, Any]
    measures: dict[str, dict[str, Any]]


class AggregateBucket(msgspec.Struct, kw_only=True):
    start: str
    end: str
    groups: list[AggregateGroup]


class AggregateReply(msgspec.Struct, kw_only=True, rename={"since": "from"}):
    """Measures by window and group, and what was looked at for them."""

    topic: str
    rollup: str
    since: str
    to: str
    interval: str
    coverage: dict[str, Any]
    buckets: list[AggregateBucket]


class SearchDropReply(msgspec.Struct, kw_only=True):
    topic: str
    deleted: bool


class AppendReply(msgspec.Struct, kw_only=True, gc=False):
    """The seqs the records were given."""

    topic: str
    first_seq: int
    last_seq: int
    seqs: list[int] | UnsetType = UNSET
    head_seq: int
    count: int
    created: bool
    deduped: bool


class Tombstone(msgspec.Struct, kw_only=True):
    """A range of records that was lost, and why."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class Record(msgspec.Struct, kw_only=True):
    """One record as read."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str | UnsetType = msgspec.field(name="$node", default=UNSET)
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    group: str | UnsetType = msgspec.field(name="$group", default=UNSET)
    data: Any
    meta: dict[str, Any] | UnsetType = UNSET


class Job(Record, kw_only=True):
    """One job under a lease."""

    lease_id: str
    deadline: int
    deliveries: int


class ClaimReply(msgspec.Struct, kw_only=True):
    """The jobs a worker got. They are rendered apart, from the bytes they were sent as."""

    topic: str
    claimed: list[Job]
    count: int
    ready: int


class AckReply(msgspec.Struct, kw_only=True, gc=False):
    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int


class NackReply(msgspec.Struct, kw_only=True, gc=False):
    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int


class ExtendReply(msgspec.Struct, kw_only=True, gc=False):
    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[int, int]


class RedriveReply(msgspec.Struct, kw_only=True):
    """How many went back to work, how many could not, and how many records there still are."""

    topic: str
    redriven: int
    skipped: int
    left: int


class DiffReply(msgspec.Struct, kw_only=True):
    """One page of a topic. The records are rendered apart, from the bytes they were sent as."""

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    epoch: int


class DeleteReply(msgspec.Struct, kw_only=True):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class RouterReply(msgspec.Struct, kw_only=True):
    """The router as it is now."""

    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str


class RouterStateReply(msgspec.Struct, kw_only=True):
    """Where a router stands."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str
    forwarded_total: int
    cursor_seq: int
    lag: int


class RouterSummary(msgspec.Struct, kw_only=True):
    router: str
    source: str
    dest: str
    guarantee: str
    forwarded_total: int


class RouterListReply(msgspec.Struct, kw_only=True):
    routers: list[RouterSummary]
    next_cursor: str | UnsetType = UNSET


class RouterDropReply(msgspec.Struct, kw_only=True):
    router: str
    deleted: bool


def open_object(value: msgspec.Struct) -> bytes:
    """A reply as JSON without its closing brace, for the performance block to follow."""
    return msgspec.json.encode(value)[:-1]


def head_of(log: Log, head: int) -> tuple[int, int]:
    """(earliest_seq, head_seq) of a log with this head."""
    return min(log.earliest, head + 1), head
