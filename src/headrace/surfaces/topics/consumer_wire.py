"""The JSON of trackers: every request and reply, and nothing about what they do."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.core.limits import TRACKER_PAGE_DEFAULT, TRACKER_PAGE_MAX
from headrace.surfaces.topics.wire import Count, Record


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
