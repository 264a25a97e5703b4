"""What somebody must know who wants to read a log from the object store and from the server."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

Span = tuple[int, int]
"""First and last seq, inclusive."""


class LogPlan(msgspec.Struct, kw_only=True):
    """A log as a reader finds it."""

    log: str
    epoch: int
    owner: str
    media: str | None
    """What payloads are when they are not JSON."""
    head_seq: int
    earliest_seq: int
    floor_seq: int
    """The first seq that was not lost involuntarily."""
    count: int
    bytes: int
    sealed: list[Span] | UnsetType = UNSET
    """Live records that lie in segments of the object store, segment by segment."""
    deleted: list[Span] | UnsetType = UNSET
    """Seqs above the floor that users deleted."""
    lost: list[Span] | UnsetType = UNSET
    """Seqs above the floor that were lost otherwise."""
