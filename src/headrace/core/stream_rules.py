"""Streams as a whole: creating, forking, writing and removing them, decided as groups of entries.

Each entry changes one log; what must come true together is one group.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core import state as core_state
from headrace.core.config import Durability, LogConfig
from headrace.core.entry import (
    Append,
    CountForks,
    Drop,
    Entry,
    Fork,
    NoteWrite,
    Open,
    Retire,
    SoftDelete,
)
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.owners import STREAMS
from headrace.core.record import Drafts, block
from headrace.core.state import State
from headrace.core.stream_state import (
    BYTES,
    Stream,
    Write,
    check_write,
    commit_time_ns,
    first_expiry_ms,
    same_type,
)

Normalise = Callable[[Drafts], Drafts]
"""Makes of drafts what a stream is to hold, or refuses them."""
CONFIG = LogConfig(durability=Durability.FSYNC)
"""What an acknowledged write of a stream is worth."""

_NS = 1_000_000


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who creates a stream wants it to be."""

    content_type: str | None = None
    """None: whatever it is, what its source is, else bytes."""
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    closed: bool = False
    source: str | None = None
    at: int | None = None
    """Fork behind this seq; None: behind the last."""
    sub: int = 0


def stream_of(log: Log) -> Stream:
    """The stream that this log is; refuses a log of another kind."""
    if log.stream is None:
        raise Refused(Code.LOG_INCOMPATIBLE, f'"{log.name}" is not a stream', name=log.name)
    return log.stream


def check_same(state: State, log: Log, spec: Spec) -> None:
    """Refuse unless the stream is what the spec says."""
    stream = stream_of(log)
    if stream.deleted:
        raise Refused(Code.CONFLICT, f'"{log.name}" was deleted, and forks still need its records')
    inherits = spec.source is not None and spec.ttl_ms is None and spec.expires_at_ms is None
    expiry = stream.expires_at_ms if stream.ttl_ms is None else None
    problems = (
        (
            "content type",
            spec.content_type is None or same_type(spec.content_type, stream.content_type),
        ),
        ("TTL", inherits or spec.ttl_ms == stream.ttl_ms),
        ("expiry", inherits or spec.expires_at_ms == expiry),
        ("closed state", spec.closed == stream.closed),
        ("source", _is_fork_of(state, stream, spec)),
    )
    for what, same in problems:
        if not same:
            raise Refused(Code.CONFLICT, f'"{log.name}" exists with another {what}')


def _is_fork_of(state: State, stream: Stream, spec: Spec) -> bool:
    fork = stream.fork
    if fork is None or spec.source is None:
        return fork is None and spec.source is None
    source = state.logs[fork.source]
    return (source.name, fork.asked, fork.sub) == (spec.source, spec.at, spec.sub)


def fork(source: Log, spec: Spec, upto: int) -> Fork:
    """A fork of this source that shares its records up to `upto`."""
    stream = stream_of(source)
    if stream.deleted:
        raise Refused(Code.CONFLICT, f'"{source.name}" was deleted')
    if spec.content_type is not None and not same_type(spec.content_type, stream.content_type):
        raise Refused(
            Code.CONFLICT, f'"{source.name}" holds {stream.content_type}, not {spec.content_type}'
        )
    epochs = [pair for pair in (stream.fork.epochs if stream.fork else ()) if pair[0] < upto]
    epochs.append((upto, stream.epoch_at(upto)))
    return Fork(source.id, upto, spec.at, spec.sub, epochs)


def create(
    state: State,
    name: str,
    spec: Spec,
    forked: Fork | None,
    drafts: Drafts | None,
    now_ns: int,
    owner: str = STREAMS,
    config: LogConfig = CONFIG,
    created_by: str = "",
) -> list[Entry]:
    """A new stream under a free name, with its first records."""
    now_ms = now_ns // _NS
    created = core_state.create(state, name, owner, config, now_ms, created_by)
    ttl_ms, expires_at_ms = spec.ttl_ms, spec.expires_at_ms
    content_type, epoch = spec.content_type or BYTES, state.next_epoch(name)
    last_ts_ms = last_ns = 0
    entries: list[Entry] = [created]
    if forked is not None:
        source = state.logs[forked.source]
        stream = stream_of(source)
        content_type = stream.content_type
        # The same offsets as the source up to the fork; behind it, none that was ever given out
        # under either name.
        epoch = max(epoch, stream.epoch + 1)
        last_ts_ms, last_ns = source.last_ts_ms, stream.last_ns
        if ttl_ms is None and expires_at_ms is None:
            ttl_ms = stream.ttl_ms
            expires_at_ms = stream.expires_at_ms if ttl_ms is None else None
        entries.append(CountForks(source.id, 1))
    opened = Open(
        created.log,
        content_type,
        epoch,
        now_ms,
        ttl_ms,
        first_expiry_ms(ttl_ms, expires_at_ms, now_ms),
        forked,
        last_ts_ms,
        last_ns,
    )
    entries.append(opened)
    if drafts is not None:
        first = forked.upto + 1 if forked else 1
        at_ns = commit_time_ns(last_ts_ms * _NS + last_ns, None, now_ns)
        entries.append(Append(created.log, block(drafts, first, at_ns // _NS, at_ns % _NS)))
    if spec.closed:
        entries.append(NoteWrite(created.log, None, None, close=True))
    return entries


def write(
    log: Log, drafts: Drafts | None, wanted: Write, now_ns: int, normalise: Normalise | None = None
) -> list[Entry] | None:
    """Append, close, or both; None when the same was accepted before.

    What was accepted before is not formed again: the stream may have another form by now.
    """
    stream = stream_of(log)
    advance = check_write(log.id, stream, wanted)
    if advance is None:
        return None
    entries: list[Entry] = []
    if drafts is not None:
        if normalise is not None:
            drafts = normalise(drafts)
        last_ns = log.last_ts_ms * _NS + stream.last_ns
        at_ns = commit_time_ns(last_ns, wanted.at_ns, now_ns)
        entries.append(Append(log.id, block(drafts, log.head + 1, at_ns // _NS, at_ns % _NS)))
    if not wanted.plain:
        entries.append(advance)
    return entries


def remove(state: State, log: Log) -> list[Entry]:
    """Delete a stream; sources that were deleted before go with their last fork.

    One that has forks is buried: its records stay as long as one of them needs them.
    """
    stream = stream_of(log)
    if stream.forks:
        return [SoftDelete(log.id)]
    entries: list[Entry] = []
    while True:
        entries += [Drop(log.id), Retire(log.name, stream.epoch)]
        if stream.fork is None:
            return entries
        log = state.logs[stream.fork.source]
        stream = stream_of(log)
        if not (stream.deleted and stream.forks == 1):
            return [*entries, CountForks(log.id, -1)]
