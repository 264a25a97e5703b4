"""The JSON of the streams surface."""

from __future__ import annotations

import msgspec

from headrace.engine.live import Live
from headrace.engine.streams import Streams
from headrace.surfaces.streams.fields import format_time
from headrace.surfaces.streams.positions import content_type_of, epoch_of

GENERIC = "generic"


class StreamSummary(msgspec.Struct, kw_only=True):
    """A stream in a listing. Positions count records from 0, as text."""

    name: str
    content_type: str
    created_at: str
    expires_at: str | None
    epoch: int
    next_offset: str
    sealed_through: str
    uploaded_through: str
    closed: bool
    profile: str = GENERIC


def summarise(streams: Streams, live: Live) -> StreamSummary:
    log = live.log
    stream = log.stream
    assert stream is not None
    ends_at_ms = streams.ends_at_ms(log)
    sealed = str(min(log.sealed_last, live.visible) - 1)
    return StreamSummary(
        name=log.name,
        content_type=content_type_of(log),
        created_at=format_time(stream.created_at_ms),
        expires_at=None if ends_at_ms is None else format_time(ends_at_ms),
        epoch=epoch_of(log),
        next_offset=str(live.visible),
        sealed_through=sealed,
        uploaded_through=sealed,
        closed=streams.is_closed(live),
    )
