"""A log as a stream: who may write what next, when it ends, how long it lives, what it came from.

Producers, closing and `Stream-Seq` are decided together with the records they belong to, and become
true together with them.
"""

from __future__ import annotations

import msgspec

from headrace.core.cap import Cap
from headrace.core.entry import (
    CountForks,
    ExtendTtl,
    Fork,
    NoteWrite,
    Open,
    Register,
    SetProfile,
    SoftDelete,
)
from headrace.core.errors import Code, Refused
from headrace.core.limits import PRODUCERS_MAX, TOUCH_MS_MIN, TOUCH_SHARE

JSON = "application/json"
BYTES = "application/octet-stream"
_PRODUCERS = Cap("producers", PRODUCERS_MAX)
"""Who wrote to one stream and is remembered."""

Producers = dict[str, tuple[int, int]]
"""producer → (epoch, highest seq accepted in it)"""


class Stream(msgspec.Struct, gc=False, array_like=True):
    """State of a stream beside that of its log."""

    content_type: str
    epoch: int
    """How many streams of the name there were before, as far as anybody remembers."""
    created_at_ms: int
    ttl_ms: int | None = None
    """It lives as long as it is used at least this often."""
    expires_at_ms: int | None = None
    """When it ends, unless it is used before (with a TTL) or whatever happens (without)."""
    closed: bool = False
    closed_by: tuple[str, int, int] | None = None
    seq: str | None = None
    """The highest Stream-Seq."""
    producers: Producers | None = None
    fork: Fork | None = None
    forks: int = 0
    deleted: bool = False
    """Deleted, but its records are still needed by forks."""
    last_ns: int = 0
    """Nanoseconds inside the millisecond of the log's last commit time."""
    registry: bytes | None = None
    """What its records are, by version, and how older ones become newer ones: JSON."""
    profile: bytes | None = None
    """What it is for, as JSON; nothing for a stream like any other."""

    @property
    def is_json(self) -> bool:
        return media_type(self.content_type) == JSON

    def epoch_at(self, seq: int) -> int:
        """The epoch of the offset behind this record: a fork has the offsets of its source."""
        inherited = self.fork.epochs if self.fork is not None else ()
        return next((epoch for last, epoch in inherited if seq <= last), self.epoch)


class Producer(msgspec.Struct, frozen=True, gc=False):
    """Who writes, in which life, and which of its writes this is."""

    id: str
    epoch: int
    seq: int

    @property
    def triple(self) -> tuple[str, int, int]:
        return self.id, self.epoch, self.seq


class Write(msgspec.Struct, frozen=True, gc=False):
    """What a writer asks for beside the records."""

    content_type: str | None = None
    """None when there are no records."""
    producer: Producer | None = None
    seq: str | None = None
    close: bool = False
    at_ns: int | None = None
    """When it happened, as far as the writer knows."""

    @property
    def plain(self) -> bool:
        return self.producer is None and self.seq is None and not self.close


def media_type(content_type: str) -> str:
    """The type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def media_of(stream: Stream | None) -> str | None:
    """What the payloads of a log are; None for JSON, as in every log that is no stream."""
    return None if stream is None or stream.is_json else stream.content_type


def same_type(one: str, other: str) -> bool:
    return one == other or media_type(one) == media_type(other)


# --- writing --------------------------------------------------------------------------------------


def check_write(log: int, stream: Stream, write: Write) -> NoteWrite | None:
    """What the write changes beside the records; None when it repeats one that was accepted.

    Refuses in this order: a producer that was fenced off, a closed stream, another content type, a
    producer out of step, a `Stream-Seq` that does not rise.
    """
    producer = write.producer
    known = stream.producers.get(producer.id) if producer and stream.producers else None
    if producer and known and producer.epoch < known[0]:
        raise Refused(
            Code.PRODUCER_FENCED,
            f"producer {producer.id!r} goes on in epoch {known[0]}",
            epoch=known[0],
        )
    if stream.closed:
        _check_closed(stream, write)
        return None
    kind = write.content_type
    if kind is not None and (stream.registry is not None or kind != stream.content_type):
        _check_type(stream, kind)
    if producer and not _is_next(stream, producer, known):
        return None
    if write.seq is not None and stream.seq is not None and write.seq <= stream.seq:
        raise Refused(
            Code.CONFLICT,
            f"Stream-Seq must rise: {write.seq!r} is not above {stream.seq!r}",
            stream_seq=stream.seq,
        )
    return NoteWrite(log, producer.triple if producer else None, write.seq, write.close)


def _check_type(stream: Stream, content_type: str) -> None:
    if stream.registry is not None and media_type(content_type) != JSON:
        raise not_json()
    if not same_type(content_type, stream.content_type):
        raise Refused(Code.CONFLICT, f"the stream holds {stream.content_type}, not {content_type}")


def not_json() -> Refused:
    """What a registry tells of are JSON documents."""
    return Refused(Code.INVALID, "stream requires JSON")


def _check_closed(stream: Stream, write: Write) -> None:
    """On a closed stream only what closed it may be said again."""
    if write.producer is None:
        repeated = write.close and write.content_type is None
    else:
        repeated = write.producer.triple == stream.closed_by
    if not repeated:
        raise Refused(Code.CLOSED, "the stream is closed")


def _is_next(stream: Stream, producer: Producer, known: tuple[int, int] | None) -> bool:
    """Whether this write is new; False when it was accepted before."""
    epoch, last = known if known is not None else (-1, -1)
    if producer.epoch > epoch:
        if producer.seq != 0:
            raise Refused(Code.INVALID, "the first Producer-Seq of an epoch is 0")
        if known is None:
            _PRODUCERS.check(len(stream.producers or ()))
        return True
    if producer.seq > last + 1:
        raise Refused(
            Code.PRODUCER_GAP,
            f"Producer-Seq {producer.seq} came where {last + 1} was due",
            expected=last + 1,
            received=producer.seq,
        )
    return producer.seq == last + 1


def commit_time_ns(last_ns: int, asked_ns: int | None, now_ns: int) -> int:
    """When a write counts as made: as asked, but not before the last one nor ahead of the clock."""
    wanted = now_ns if asked_ns is None else min(asked_ns, now_ns)
    return max(wanted, last_ns)


# --- living ---------------------------------------------------------------------------------------


def is_expired(expires_at_ms: int | None, now_ms: int) -> bool:
    return expires_at_ms is not None and now_ms >= expires_at_ms


def first_expiry_ms(ttl_ms: int | None, expires_at_ms: int | None, now_ms: int) -> int | None:
    return expires_at_ms if ttl_ms is None else now_ms + ttl_ms


def touch(log: int, stream: Stream, now_ms: int) -> ExtendTtl | None:
    """Write down that the stream was used, if what is written down would let it end too early.

    More is written down than was asked for, so that not every use needs a note: after a restart a
    stream may live that much longer, never shorter.
    """
    ttl_ms = stream.ttl_ms
    if ttl_ms is None or stream.expires_at_ms is None or now_ms + ttl_ms <= stream.expires_at_ms:
        return None
    return ExtendTtl(log, now_ms + ttl_ms + max(TOUCH_MS_MIN, ttl_ms // TOUCH_SHARE))


# --- the one way to change it ---------------------------------------------------------------------


def opened(entry: Open) -> Stream:
    return Stream(
        entry.content_type,
        entry.epoch,
        entry.at_ms,
        entry.ttl_ms,
        entry.expires_at_ms,
        fork=entry.fork,
        last_ns=entry.last_ns,
    )


def apply(
    stream: Stream, entry: NoteWrite | ExtendTtl | CountForks | SoftDelete | Register | SetProfile
) -> None:
    match entry:
        case NoteWrite():
            if entry.producer is not None:
                producer, epoch, seq = entry.producer
                if stream.producers is None:
                    stream.producers = {}
                stream.producers[producer] = (epoch, seq)
            if entry.seq is not None:
                stream.seq = entry.seq
            if entry.close:
                stream.closed = True
                stream.closed_by = entry.producer
        case ExtendTtl():
            stream.expires_at_ms = entry.expires_at_ms
        case CountForks():
            stream.forks += entry.forks
        case SoftDelete():
            stream.deleted = True
        case Register():
            stream.registry = entry.registry
        case SetProfile():
            stream.profile = entry.profile
