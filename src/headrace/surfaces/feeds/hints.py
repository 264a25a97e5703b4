"""Hints: that a tenant has events up to a number, and about what. Never the events themselves."""

from __future__ import annotations

import msgspec

from headrace.core.read import Page
from headrace.delivery.events import Event, Lost, PlainView, Records
from headrace.surfaces.feeds.filters import EventSelector
from headrace.surfaces.feeds.names import resource_type_of
from headrace.surfaces.feeds.wire import ResourceType


class FeedHint(msgspec.Struct, frozen=True, array_like=True):
    """The number of the last event of a tenant, and what events since the last hint are about."""

    latest: int
    resource_types: frozenset[str]

    def joined(self, later: FeedHint) -> FeedHint:
        """One hint instead of two."""
        types = self.resource_types | later.resource_types
        return FeedHint(max(self.latest, later.latest), types)


_hint = msgspec.msgpack.Decoder(FeedHint)


def decode_hint(data: bytes) -> FeedHint:
    """A hint of a view."""
    return _hint.decode(data)


class HintView(PlainView, frozen=True, cache_hash=True):
    """What is told of a page of events: equal views share it."""

    selector: EventSelector

    def encode(self, name: str, told: Event, position: int) -> bytes:
        match told:
            case Records(page=page):
                hint = FeedHint(page.head, _resource_types(page))
            case Lost(head=head):  # about what is not known any more
                types = self.selector.wanted.resource_types or frozenset(ResourceType)
                hint = FeedHint(head, types)
            case _:
                return b""
        return msgspec.msgpack.encode(hint)


def _resource_types(page: Page) -> frozenset[str]:
    found: set[str] = set()
    for piece in page.slices:
        keys = piece.block.keys
        if keys is not None:
            found.update(resource_type_of(key) for at in piece.picks if (key := keys[at]))
    return frozenset(found)
