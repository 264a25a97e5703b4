"""The JSON of trackers and webhooks: every request and reply, and nothing about what they do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.core.limits import (
    TRACKER_PAGE_DEFAULT,
    TRACKER_PAGE_MAX,
    WEBHOOK_BATCH_RECORDS_DEFAULT,
    WEBHOOK_BATCH_RECORDS_MAX,
    WEBHOOK_DELAY_MS_MAX,
    WEBHOOK_REPLAY_DEFAULT,
)
from headrace.surfaces.topics.wire import Count, Record, Tombstone


class TrackerRequest(msgspec.Struct, kw_only=True):
    """Which topic or stream of JSON to read, and from where; `start_from` counts once."""

    source: str
    start_from: Literal["earliest", "latest"] = "earliest"


class PollRequest(msgspec.Struct, kw_only=True):
    """Who polls, what it is done with, and how much it takes.

    `ack_seq` is `next_ack_seq` of the poll before; `fence` that of the lease it thinks it has.
    """

    node: str
    ack_seq: Count | None = None
    fence: Count | None = None
    limit: Annotated[int, Meta(ge=1, le=TRACKER_PAGE_MAX)] = TRACKER_PAGE_DEFAULT


class TrackerState(msgspec.Struct, kw_only=True):
    """Where a tracker stands.

    `lag`: how many seqs the source is ahead of `cursor_seq`, up to which all is acknowledged; null
    once the source is deleted. `node` is null while nobody holds it.
    """

    tracker: str
    source: str
    source_deleted: bool
    cursor_seq: int
    given_seq: int
    lag: int | None
    node: str | None
    lease_until: int | None
    fence: int
    created_at: int


class TrackerReply(TrackerState, kw_only=True):
    created: bool


class TrackerListReply(msgspec.Struct, kw_only=True):
    trackers: list[TrackerState]
    next_cursor: str | UnsetType = UNSET


class TrackerDropReply(msgspec.Struct, kw_only=True):
    tracker: str
    deleted: bool


class PollReply(msgspec.Struct, kw_only=True):
    """Records to handle. They are rendered apart, from the bytes they were sent as.

    Whoever has handled all of them acknowledges `next_ack_seq`.
    """

    tracker: str
    records: list[Record]
    cursor_seq: int
    next_ack_seq: int
    has_more: bool
    fence: int
    lease_until: int


class WebhookBatching(msgspec.Struct, kw_only=True):
    """How many records go together, and how long the first of them waits for others."""

    max_records: Annotated[int, Meta(ge=1, le=WEBHOOK_BATCH_RECORDS_MAX)] = (
        WEBHOOK_BATCH_RECORDS_DEFAULT
    )
    delay_ms: Annotated[int, Meta(ge=0, le=WEBHOOK_DELAY_MS_MAX)] = 0


class WebhookRequest(msgspec.Struct, kw_only=True):
    """Where to send which records. Whatever is left out takes its default, but for the secret.

    Without a secret a new webhook gets one, and another keeps its own. One that is replaced signs
    for 24 hours more, beside the new one.
    """

    source: str
    url: str
    secret: str | None = None
    filter: Any = None
    batch: WebhookBatching = msgspec.field(default_factory=WebhookBatching)
    status: Literal["active", "paused"] = "active"
    start_from: Literal["earliest", "latest"] = "latest"


class WebhookUnderWay(msgspec.Struct, kw_only=True):
    """The batch that is being sent: its records end at `to_seq`."""

    delivery_id: str
    to_seq: int
    failures: int
    retry_at: int | None


class WebhookState(msgspec.Struct, kw_only=True):
    """Where a webhook stands.

    `lag`: how many seqs the source is ahead of `cursor_seq`, up to which all is delivered; null
    once the source is deleted. `failing_since`: when attempts began to fail, if the last one did.
    """

    webhook: str
    source: str
    source_deleted: bool
    url: str
    filter: list[str] | None
    batch: WebhookBatching
    status: Literal["active", "paused", "failing", "disabled"]
    cursor_seq: int
    lag: int | None
    delivery: WebhookUnderWay | None
    failing_since: int | None
    last_error: str | None
    last_delivered_at: int | None
    dead_letters: int
    old_secret_until: int | None
    created_at: int


class WebhookReply(WebhookState, kw_only=True):
    """`secret` is there once: when the server has drawn it."""

    created: bool
    secret: str | UnsetType = UNSET


class WebhookListReply(msgspec.Struct, kw_only=True):
    webhooks: list[WebhookState]
    next_cursor: str | UnsetType = UNSET


class WebhookDropReply(msgspec.Struct, kw_only=True):
    webhook: str
    deleted: bool


class WebhookTestReply(msgspec.Struct, kw_only=True):
    """Whether the receiver took a test, and what was wrong if it did not."""

    webhook: str
    delivery_id: str
    delivered: bool
    status: int | None
    problem: str | None
    took_ms: int


class WebhookAttempt(msgspec.Struct, kw_only=True):
    """One attempt; `status` is what the receiver answered, if it answered."""

    delivery_id: str
    at: int
    attempt: int
    from_seq: int
    to_seq: int
    records: int
    delivered: bool
    status: int | None
    problem: str | None
    took_ms: int


class WebhookAttemptsReply(msgspec.Struct, kw_only=True):
    """The newest first."""

    webhook: str
    deliveries: list[WebhookAttempt]


class WebhookDeadLetter(msgspec.Struct, kw_only=True):
    """A batch that was given up, as it was sent: `body` is that of the delivery."""

    number: int
    delivery_id: str
    at: int
    attempts: int
    from_seq: int
    to_seq: int
    records: int
    problem: str
    body: msgspec.Raw


class DeadLettersReply(msgspec.Struct, kw_only=True):
    """The oldest first; `after` of the next page is the last `number` of this one."""

    webhook: str
    dead_letters: list[WebhookDeadLetter]
    has_more: bool


class ReplayRequest(msgspec.Struct, kw_only=True):
    """How many dead letters to send again, the oldest first."""

    limit: Annotated[int, Meta(ge=1)] = WEBHOOK_REPLAY_DEFAULT


class ReplayReply(msgspec.Struct, kw_only=True):
    """How many were taken and are gone, and how many are left. One that is not taken ends it."""

    webhook: str
    delivered: int
    left: int
    status: int | None
    problem: str | None


class WebhookPayload(msgspec.Struct, kw_only=True):
    """What a receiver gets: records in order, and a loss before them, if there was one.

    `next_from_seq` is where a diff of the source goes on. A test has no records.
    """

    webhook: str
    source: str
    delivery_id: str
    records: list[Record]
    next_from_seq: int
    tombstone: Tombstone | None
    test: bool
