"""Streams in operation: creating, writing, closing, forking and removing them, and their end.

Streams are logs; what is here is what makes them streams. As everywhere, a write decides, applies
and enqueues without an await in between; an answer that tells of a change waits until that change
is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from headrace.core import stream_rules
from headrace.core.entry import Append, Arrive, Entry, Fork
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.owners import STREAMS, SYSTEM, SYSTEM_PREFIX, check_name, reserved
from headrace.core.record import Drafts, concat, draft
from headrace.core.stream_rules import CONFIG, Normalise, Spec, stream_of
from headrace.core.stream_state import JSON, Write, media_of, same_type
from headrace.core.supersession import Admitted
from headrace.engine.flow.shared_timeout import SharedTimeout
from headrace.engine.kernel import Kernel
from headrace.engine.logs.append_batch import AppendBatch, TurnBatches
from headrace.engine.logs.commit_barrier import CommitBarrier
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.active_subscriptions import ActiveSubscriptions
from headrace.engine.streams.expiry import StreamExpiry
from headrace.engine.streams.ingest_rules import StreamIngest
from headrace.storage.journal import ignore

APPEND_TIMEOUT_S = 3.0


class StreamWritten(msgspec.Struct, frozen=True, gc=False):
    """What became of a write."""

    live: OpenLog
    last: int
    """The last seq of the stream behind it."""
    repeated: bool = False
    """The same was accepted before."""


class Streams:
    """All streams of an engine."""

    def __init__(
        self,
        kernel: Kernel,
        fetcher: Fetcher,
        expiry: StreamExpiry,
        ingest: StreamIngest,
        subscriptions: ActiveSubscriptions,
        barrier: CommitBarrier,
        append_timeout_s: float,
    ) -> None:
        self.expiry = expiry
        self._kernel = kernel
        self._fetcher = fetcher
        self._ingest = ingest
        self._subscriptions = subscriptions
        self._barrier = barrier
        self.shared_timeout = SharedTimeout(append_timeout_s, _timed_out)
        """How long a writer waits for its turn, and for its write to be durable."""
        self.batches = TurnBatches(kernel.journal, self._write_batch)
        self._on_shown: list[Callable[[OpenLog], None]] = []

    def observe_shown(self, observer: Callable[[OpenLog], None]) -> None:
        """Have this called whenever records of a stream became visible."""
        self._on_shown.append(observer)

    # --- finding ---------------------------------------------------------------------------------

    def find(self, name: str) -> OpenLog:
        """A log that can be read as a stream now."""
        log = self._kernel.state.by_name.get(name)
        if log is None:
            raise _not_found(name)
        live = self._kernel.open_logs[log.id]
        stream = log.stream
        if stream is not None:
            if stream.deleted:
                raise _gone(name)
            if self.expiry.ends_at_ms(log) is not None and self.expiry.has_ended(live):
                refusal = _gone(name) if stream.forks else _not_found(name)
                if self._kernel.journal.failure is None:
                    self.expiry.remove(live)
                raise refusal
        return live

    def own(self, name: str) -> OpenLog:
        """A stream, and not a log of another surface."""
        live = self.find(name)
        stream_of(live.log)
        if live.log.owner == SYSTEM:
            raise reserved(name)
        return live

    async def settle(self, name: str) -> None:
        """Wait until whatever an answer may have told of this stream is durable."""
        kernel = self._kernel
        log = kernel.state.by_name.get(name)
        if log is None:
            await kernel.settle_control()
        else:
            await kernel.settle(kernel.open_logs[log.id])

    def is_closed(self, live: OpenLog) -> bool:
        """Whether readers may know that nothing more will come."""
        stream = live.log.stream
        return (
            stream is not None
            and stream.closed
            and self._kernel.journal.synced >= live.config_position
        )

    def is_over(self, live: OpenLog) -> bool:
        """Whether somebody who waits for more waits in vain."""
        stream = live.log.stream
        return self.is_closed(live) or (stream is not None and stream.deleted)

    # --- creating --------------------------------------------------------------------------------

    async def create(
        self, name: str, spec: Spec, drafts: Drafts | None, created_by: str = ""
    ) -> tuple[OpenLog, bool]:
        """Create the stream, or find it to be as wanted; says whether it is new."""
        kernel = self._kernel
        if name not in kernel.state.by_name or name.startswith(SYSTEM_PREFIX):
            check_name(name, STREAMS)
        await self._enter(name)
        if known := self._existing(name, spec):
            await kernel.journal.wait_synced(known.config_position)
            return known, False
        forked = prepared = None
        sent = drafts
        if spec.source is not None:
            prefix = await self._read_prefix(spec)
            prepared = await self._prepare_fork(spec, drafts)
            if known := self._existing(name, spec):  # somebody was faster
                await kernel.journal.wait_synced(known.config_position)
                return known, False
            forked, drafts = self._fork(spec, prefix, drafts)
        kernel.caps.check_logs(kernel.state, STREAMS, created_by)
        source = None if forked is None else kernel.state.logs[forked.source]
        if source is not None and drafts is not None:
            if prepared is not None and prepared[0] is source and drafts is sent:
                drafts = prepared[1](drafts)
            else:
                drafts = self._ingest.normalise(source, drafts)
        now_ns = kernel.clock.now_ns()
        entries = stream_rules.create(
            kernel.state, name, spec, forked, drafts, now_ns, created_by=created_by
        )
        if source is not None and forked is not None:
            entries += self._ingest.inherit(source, entries[0].log, forked.upto)
        for entry in entries:
            if isinstance(entry, Append):
                kernel.caps.check_total(kernel.state, Admitted(entry))
        entries += self._subscriptions.follow_new(name, entries)
        entries += self._subscriptions.unheard(name)
        position = kernel.commit(entries, sync=True, together=True)
        live = kernel.open_logs[kernel.state.by_name[name].id]
        await self._store(position, live)
        return live, True

    def _existing(self, name: str, spec: Spec) -> OpenLog | None:
        """The stream of this name, which must be as wanted; None when there is none."""
        log = self._kernel.state.by_name.get(name)
        if log is None:
            return None
        live = self._kernel.open_logs[log.id]
        if log.stream is not None and not log.stream.deleted and self.expiry.has_ended(live):
            self.expiry.remove(live)
            return self._existing(name, spec)
        stream_rules.check_same(self._kernel.state, log, spec)
        return live

    def _source(self, spec: Spec) -> tuple[OpenLog, int]:
        """What a fork is to come from, and the seq behind which it begins."""
        assert spec.source is not None
        try:
            source = self.own(spec.source)
        except Refused as refused:
            if refused.code is Code.GONE:
                raise Refused(Code.CONFLICT, refused.message) from None
            raise
        at = source.visible if spec.at is None else spec.at
        if at > source.visible:
            raise Refused(Code.INVALID, "the fork offset is beyond the end of the source")
        return source, at

    async def _read_prefix(self, spec: Spec) -> bytes:
        """The record that the sub-offset of a fork of bytes lies in; nothing for other forks."""
        source, at = self._source(spec)
        if not spec.sub or stream_of(source.log).is_json or at == source.visible:
            return b""
        slices = await self._fetcher.fetch(source, [at + 1])
        return slices[0].block.data_at(slices[0].picks[0]) if slices else b""

    async def _prepare_fork(
        self, spec: Spec, drafts: Drafts | None
    ) -> tuple[Log, Normalise] | None:
        """The source of a fork, and the form of a large first append, by and by."""
        source, _ = self._source(spec)
        if drafts is None or self._normalise(source.log) is None:
            return None
        if not self._ingest.is_much(source.log, drafts):
            return None
        return source.log, await self._ingest.prepare(source.log, drafts)

    def _fork(self, spec: Spec, prefix: bytes, drafts: Drafts | None) -> tuple[Fork, Drafts | None]:
        """Where the fork begins, and its first records.

        A sub-offset counts messages, which have offsets of their own; or bytes, and then the fork
        begins with a copy of a part of the next record.
        """
        source, at = self._source(spec)
        stream = stream_of(source.log)
        if spec.sub and stream.is_json:
            if at + spec.sub > source.visible:
                raise Refused(Code.INVALID, "the sub-offset is beyond the end of the source")
            at += spec.sub
        elif spec.sub > len(prefix):
            raise Refused(Code.INVALID, "the sub-offset is beyond the end of the next append")
        elif spec.sub and spec.sub == len(prefix):
            at += 1
        elif spec.sub:
            rest = [drafts.data] if drafts is not None else []
            drafts = draft([prefix[: spec.sub], *rest])
            drafts.media = stream.content_type
        return stream_rules.fork(source.log, spec, at), drafts

    # --- writing ---------------------------------------------------------------------------------

    async def write(self, name: str, drafts: Drafts | None, wanted: Write) -> StreamWritten:
        """Append, close, or both, all or none."""
        kernel = self._kernel
        if not kernel.admission.open:
            await self._enter(name)
        kernel.check_open()
        live = self.own(name)
        normalise = self._normalise(live.log)
        if normalise is not None and drafts is not None and self._ingest.is_much(live.log, drafts):
            normalise = await self._ingest.prepare(live.log, drafts)
            kernel.check_open()
            if self.own(name) is not live:
                return await self.write(name, drafts, wanted)
        if wanted.close and self._barrier.comes_to(live.log.id):
            await self._barrier.let_pass(live.log.id)
            return await self.write(name, drafts, wanted)
        is_plain = normalise is None and drafts is not None and _is_plain(live.log, drafts, wanted)
        if is_plain and drafts is not None and self.batches.takes(live, drafts):
            first = await self.shared_timeout.watch(self.batches.join(live, drafts))
            return StreamWritten(live, first + drafts.count - 1)
        self.batches.flush(live)
        position = self._write(live, drafts, wanted, normalise)
        if position is None:
            await kernel.journal.wait_synced(live.config_position)
            return StreamWritten(live, live.visible, repeated=True)
        last = live.log.head
        show = partial(self._show, live, last)
        await self.shared_timeout.watch(kernel.journal.wait_synced(position, show))
        return StreamWritten(live, last)

    def _write(
        self, live: OpenLog, drafts: Drafts | None, wanted: Write, normalise: Normalise | None
    ) -> int | None:
        """Decide and journal a write; None when the same was accepted before."""
        kernel = self._kernel
        entries = stream_rules.write(live.log, drafts, wanted, kernel.clock.now_ns(), normalise)
        self.expiry.use(live)
        if entries is None:
            return None
        if drafts is not None:
            append = entries[0]
            assert isinstance(append, Append)
            kernel.caps.check_total(kernel.state, Admitted(append))
            entries += self._subscriptions.follow(live.log)
        control = None if wanted.plain else live
        return kernel.commit(entries, sync=True, together=True, control=control)

    def _write_batch(self, batch: AppendBatch) -> None:
        """Append what came in one turn, or refuse; the stream may be another one by now."""
        kernel, live = self._kernel, batch.live
        kernel.check_open()
        if self.own(live.log.name) is not live:
            raise _not_found(live.log.name)
        first, wanted = live.log.head + 1, Write(stream_of(live.log).content_type)
        position = self._write(live, concat(batch.drafts), wanted, self._normalise(live.log))
        assert position is not None, "only a producer says something twice"
        batch.first, last = first, live.log.head

        def show() -> None:
            self._show(live, last)
            batch.commit()

        kernel.journal.wait_synced(position, show).add_done_callback(batch.note_failure)

    def _normalise(self, log: Log) -> Normalise | None:
        """What is appended to the stream goes through this; None for a stream that takes all."""
        stream = log.stream
        if stream is None or (stream.registry is None and stream.profile is None):
            return None
        return partial(self._ingest.normalise, log)

    async def _enter(self, name: str) -> None:
        """Wait for a turn to write; nothing has happened when there is none in time."""
        kernel = self._kernel
        if not kernel.admission.open:
            try:
                async with asyncio.timeout(self.shared_timeout.limit_s):
                    await kernel.wait_admitted(name, CONFIG)
            except TimeoutError:
                raise kernel.admission.overloaded() from None
        kernel.check_open()

    async def _store(self, position: int, live: OpenLog) -> None:
        """Wait until a write is durable, and readers see it."""
        show = partial(self._show, live, live.log.head)
        await self.shared_timeout.watch(self._kernel.journal.wait_synced(position, show))

    def _show(self, live: OpenLog, last: int) -> None:
        """A write is durable: readers see it."""
        live.show(last)
        for observer in self._on_shown:
            observer(live)

    def append_own(self, live: OpenLog, data: bytes, more: Sequence[Entry]) -> bool:
        """Append a JSON message of our own, together with other entries; False when it is refused.

        For streams that tell of other streams.
        """
        kernel = self._kernel
        wanted = Write(JSON)
        try:
            normalise = self._normalise(live.log)
            entries = stream_rules.write(
                live.log, draft([data]), wanted, kernel.clock.now_ns(), normalise
            )
        except Refused:
            return False
        assert entries is not None
        self.expiry.use(live)
        entries += [*self._subscriptions.follow(live.log), *more]
        position = kernel.commit(entries, sync=True, together=True)
        shown = kernel.journal.wait_synced(position, partial(self._show, live, live.log.head))
        ignore(shown)
        return True

    async def prepare(self, log: Log, drafts: Drafts) -> Normalise | None:
        """What is appended to the stream goes through this; most of the work is done already."""
        normalise = self._normalise(log)
        return normalise if normalise is None else await self._ingest.prepare(log, drafts)

    async def append_chunk(
        self, live: OpenLog, drafts: Drafts, notes: Sequence[Arrive], normalise: Normalise | None
    ) -> None:
        """Append a chunk of a transaction, together with the note that it is there."""
        kernel = self._kernel
        content_type = stream_of(live.log).content_type
        wanted = Write(content_type)
        entries = stream_rules.write(live.log, drafts, wanted, kernel.clock.now_ns(), normalise)
        assert entries is not None
        self.expiry.use(live)
        entries += [*self._subscriptions.follow(live.log), *notes]
        position = kernel.commit(entries, sync=True, together=True)
        await kernel.journal.wait_synced(position, partial(self._show, live, live.log.head))

    # --- removing --------------------------------------------------------------------------------

    async def delete(self, name: str) -> None:
        """Remove the stream with all its records, or keep them for its forks alone."""
        self._kernel.check_open()
        live = self.own(name)
        await self._kernel.journal.wait_synced(self.expiry.remove(live))


def _is_plain(log: Log, drafts: Drafts, wanted: Write) -> bool:
    """Whether a write brings records and nothing else, of the type of this stream: when they were
    parsed, there may have been another one of its name.
    """
    kind, stream = wanted.content_type, stream_of(log)
    if kind is None or not wanted.plain or wanted.at_ns is not None:
        return False
    return drafts.media == media_of(stream) and same_type(kind, stream.content_type)


def _timed_out() -> Refused:
    return Refused(
        Code.APPEND_TIMEOUT,
        "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying",
    )


def _gone(name: str) -> Refused:
    return Refused(Code.GONE, f'stream "{name}" lives on in its forks alone')


def _not_found(name: str) -> Refused:
    return Refused(Code.LOG_NOT_FOUND, f'stream "{name}" does not exist')
