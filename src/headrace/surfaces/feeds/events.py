"""What goes out: pages of events, and events of a stream. What is stored is sent as it is."""

from __future__ import annotations

from headrace.core.read import Page
from headrace.delivery.events import Event, Lost, PlainView, Records
from headrace.delivery.sse import chunk, event
from headrace.surfaces.feeds.errors import cursor_expired, encode_error
from headrace.surfaces.feeds.filters import EventSelector

HEARTBEAT = b": heartbeat\n\n"
_ERROR, _UNTYPED = b"error", b"message"


def join_events(page: Page) -> bytes:
    """The envelopes of a page, as items of an array."""
    return b",".join([piece.block.data_at(at) for piece in page.slices for at in piece.picks])


def encode_page(page: Page, cursor: int, has_more: bool) -> list[bytes]:
    """A page with the cursor behind it, in pieces."""
    more = b"true" if has_more else b"false"
    return [
        b'{"events":[',
        join_events(page),
        b'],"cursor":{"sequenceNumber":%d,"hasMore":%b}}' % (cursor, more),
    ]


class FeedView(PlainView, frozen=True, cache_hash=True):
    """Events as they come: equal views share bytes."""

    selector: EventSelector
    chunked: bool

    def encode(self, name: str, told: Event, position: int) -> bytes:
        match told:
            case Records(page=page):
                frames = _encode_events(page)
            case Lost(earliest=earliest):
                # Retention went past a reader who did not keep up.
                frames = event(_ERROR, encode_error(cursor_expired(earliest)))
            case _:
                return b""
        return chunk(frames) if self.chunked else frames


def _encode_events(page: Page) -> bytes:
    found: list[bytes] = []
    for piece in page.slices:
        block = piece.block
        for at in piece.picks:
            type = block.tags[at] if block.tags else None
            name = _UNTYPED if type is None else type.encode()
            found.append(event(name, block.data_at(at), b"%d" % block.seq_at(at)))
    return b"".join(found)
