"""What a reader of a feed gets: pages of events, gaps, and a refusal that stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class FeedResource(msgspec.Struct, frozen=True, rename="camel"):
    """What an event is about, and its ancestors."""

    resource_type: str
    resource_id: str
    parent_refs: Mapping[str, str] = {}


class FeedEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An event."""

    id: str
    """The same for the same event, however often it comes."""
    type: str
    tenant_id: str
    timestamp: str
    sequence_number: int
    resource_ref: FeedResource
    actor: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None


class FeedPage(msgspec.Struct, frozen=True):
    """Events in order, at least one. Behind `cursor` it goes on: keep that once all is done."""

    events: tuple[FeedEvent, ...]
    cursor: int


class FeedGap(msgspec.Struct, frozen=True):
    """The events behind `after` and before `earliest` are gone: the reader came too late."""

    after: int
    earliest: int

    @property
    def cursor(self) -> int:
        """Where it goes on."""
        return self.earliest - 1


class FeedRefused(Exception):
    """The server says no, and will again: the credential, the tenant or a filter is wrong."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
