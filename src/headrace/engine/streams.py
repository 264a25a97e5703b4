"""Streams in operation: creating, writing, closing, forking and removing them, and their end.

Streams are logs; what is here is what makes them streams. As everywhere, a write decides, applies
and enqueues without an await in between; an answer that tells of a change waits until that change
is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from headrace.core import streaming
from headrace.core.entry import Append, Arrive, Entry, Fork, Open
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.names import SYSTEM, SYSTEM_PREFIX, reserved
from headrace.core.record import Drafts, draft
from headrace.core.stream import JSON, Write, is_expired, touch
from headrace.core.streaming import CONFIG, Form, Spec, stream_of
from headrace.engine.live import Live
from headrace.engine.patience import Patience
from headrace.storage.journal import ignore

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

OWNER = "streams"
_APPEND_TIMEOUT_S = 3.0
_SWEEP_S = 1.0
_ENDS_STALE_MAX = 1024
"""Ends of streams that are gone already; beyond, and beyond as many as there are logs, they go."""
_SWEEP_STREAMS = 200
"""Streams removed in one go before requests get a turn."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """What became of a write."""

    live: Live
    last: int
    """The last seq of the stream behind it."""
    repeated: bool = False
    """The same was accepted before."""


class Streams:
    """All streams of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._deadlines: dict[int, int] = {}
        """When streams end that were used since their end was last written down."""
        self._ends: list[tuple[int, int]] = []
        """(when to look, log), as a heap."""
        self.patience = Patience(_APPEND_TIMEOUT_S, _timed_out)
        """How long a writer waits for its turn, and for its write to be durable."""
        engine.observe(lambda live, _: self.opened(live), Open)

    # --- finding ---------------------------------------------------------------------------------

    def find(self, name: str) -> Live:
        """A log that can be read as a stream now."""
        log = self._engine.state.by_name.get(name)
        if log is None:
            raise _not_found(name)
        live = self._engine.lives[log.id]
        stream = log.stream
        if stream is not None:
            if stream.deleted:
                raise _gone(name)
            if self.ends_at_ms(log) is not None and self._is_over(live):
                refusal = _gone(name) if stream.forks else _not_found(name)
                if self._engine.journal.failure is None:
                    self._remove(live)
                raise refusal
        return live

    def is_there(self, log: Log) -> bool:
        """Whether a stream was not deleted and its time is not up."""
        return not stream_of(log).deleted and not self._is_over(self._engine.lives[log.id])

    def own(self, name: str) -> Live:
        """A stream, and not a log of another surface."""
        live = self.find(name)
        stream_of(live.log)
        if live.log.owner == SYSTEM:
            raise reserved(name)
        return live

    async def settle(self, name: str) -> None:
        """Wait until whatever an answer may have told of this stream is durable."""
        engine = self._engine
        log = engine.state.by_name.get(name)
        if log is None:
            await engine.settle_control()
        else:
            await engine.settle(engine.lives[log.id])

    def is_closed(self, live: Live) -> bool:
        """Whether readers may know that nothing more will come."""
        stream = live.log.stream
        return (
            stream is not None
            and stream.closed
            and self._engine.journal.synced >= live.config_position
        )

    def is_over(self, live: Live) -> bool:
        """Whether somebody who waits for more waits in vain."""
        stream = live.log.stream
        return self.is_closed(live) or (stream is not None and stream.deleted)

    # --- creating --------------------------------------------------------------------------------

    async def create(
        self, name: str, spec: Spec, drafts: Drafts | None, created_by: str = ""
    ) -> tuple[Live, bool]:
        """Create the stream, or find it to be as wanted; says whether it is new."""
        engine = self._engine
        if name.startswith(SYSTEM_PREFIX):
            raise reserved(name)
        await self._enter(name)
        if known := self._existing(name, spec):
            await engine.journal.wait_synced(known.config_position)
            return known, False
        forked = prepared = None
        sent = drafts
        if spec.source is not None:
            prefix = await self._read_prefix(spec)
            prepared = await self._prepare_fork(spec, drafts)
            if known := self._existing(name, spec):  # somebody was faster
                await engine.journal.wait_synced(known.config_position)
                return known, False
            forked, drafts = self._fork(spec, prefix, drafts)
        engine.caps.check_logs(engine.state, OWNER, created_by)
        source = None if forked is None else engine.state.logs[forked.source]
        if source is not None and drafts is not None:
            if prepared is not None and prepared[0] is source and drafts is sent:
                drafts = prepared[1](drafts)
            else:
                drafts = engine.shapes.form(source, drafts)
        now_ns = engine.clock.now_ns()
        entries = streaming.create(
            engine.state, name, spec, forked, drafts, now_ns, created_by=created_by
        )
        if source is not None and forked is not None:
            entries += engine.shapes.inherit(source, entries[0].log, forked.upto)
        for entry in entries:
            if isinstance(entry, Append):
                engine.caps.check_total(engine.state, entry)
        entries += engine.subscriptions.follow_new(name, entries)
        entries += engine.subscriptions.unheard(name)
        position = engine.commit(entries, sync=True, together=True)
        live = engine.lives[engine.state.by_name[name].id]
        engine.subscriptions.created(name)
        await self._store(position, live)
        return live, True

    def _existing(self, name: str, spec: Spec) -> Live | None:
        """The stream of this name, which must be as wanted; None when there is none."""
        log = self._engine.state.by_name.get(name)
        if log is None:
            return None
        live = self._engine.lives[log.id]
        if log.stream is not None and not log.stream.deleted and self._is_over(live):
            self._remove(live)
            return self._existing(name, spec)
        streaming.check_same(self._engine.state, log, spec)
        return live

    def _source(self, spec: Spec) -> tuple[Live, int]:
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
        slices = await self._engine.reader.fetch(source, [at + 1])
        return slices[0].block.data_at(slices[0].picks[0]) if slices else b""

    async def _prepare_fork(self, spec: Spec, drafts: Drafts | None) -> tuple[Log, Form] | None:
        """The source of a fork, and the form of a large first append, by and by."""
        source, _ = self._source(spec)
        shapes = self._engine.shapes
        if drafts is None or self._form(source.log) is None:
            return None
        if not shapes.is_much(source.log, drafts):
            return None
        return source.log, await shapes.prepare(source.log, drafts)

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
        return streaming.fork(source.log, spec, at), drafts

    # --- writing ---------------------------------------------------------------------------------

    async def write(self, name: str, drafts: Drafts | None, wanted: Write) -> Written:
        """Append, close, or both, all or none."""
        engine = self._engine
        await self._enter(name)
        live = self.own(name)
        form = self._form(live.log)
        if form is not None and drafts is not None and engine.shapes.is_much(live.log, drafts):
            form = await engine.shapes.prepare(live.log, drafts)
            engine.check_open()
            if self.own(name) is not live:
                return await self.write(name, drafts, wanted)
        if wanted.close and engine.transactions.under_way.comes_to(live.log.id):
            await engine.transactions.under_way.let_pass(live.log.id)
            return await self.write(name, drafts, wanted)
        entries = streaming.write(live.log, drafts, wanted, engine.clock.now_ns(), form)
        self.use(live)
        if entries is None:
            await engine.journal.wait_synced(live.config_position)
            return Written(live, live.visible, repeated=True)
        if drafts is not None:
            append = entries[0]
            assert isinstance(append, Append)
            engine.caps.check_total(engine.state, append)
            entries += engine.subscriptions.follow(live.log)
        if not wanted.plain:
            engine.control(live)
        position = engine.commit(entries, sync=True, together=True)
        last = live.log.head
        await self._store(position, live)
        return Written(live, last)

    def _form(self, log: Log) -> Form | None:
        """What is appended to the stream goes through this; None for a stream that takes all."""
        stream = log.stream
        if stream is None or (stream.registry is None and stream.profile is None):
            return None
        return partial(self._engine.shapes.form, log)

    async def _enter(self, name: str) -> None:
        """Wait for a turn to write; nothing has happened when there is none in time."""
        engine = self._engine
        if not engine.door.open:
            try:
                async with asyncio.timeout(self.patience.limit_s):
                    await engine.wait_at_door(name, CONFIG)
            except TimeoutError:
                raise engine.door.turned_away() from None
        engine.check_open()

    async def _store(self, position: int, live: Live) -> None:
        """Wait until a write is durable, and readers see it."""
        show = partial(self._show, live, live.log.head)
        await self.patience.watch(self._engine.journal.wait_synced(position, show))

    def _show(self, live: Live, last: int) -> None:
        """A write is durable: readers see it, and who subscribed to the stream is woken."""
        live.show(last)
        self._engine.subscriptions.notice(live.log)
        self._engine.touching.notice(live)

    def append_own(self, live: Live, data: bytes, more: Sequence[Entry]) -> bool:
        """Append a JSON message of our own, together with other entries; False when it is refused.

        For streams that tell of other streams.
        """
        engine = self._engine
        wanted = Write(JSON)
        try:
            form = self._form(live.log)
            entries = streaming.write(live.log, draft([data]), wanted, engine.clock.now_ns(), form)
        except Refused:
            return False
        assert entries is not None
        self.use(live)
        entries += [*engine.subscriptions.follow(live.log), *more]
        position = engine.commit(entries, sync=True, together=True)
        shown = engine.journal.wait_synced(position, partial(self._show, live, live.log.head))
        ignore(shown)
        return True

    async def prepare(self, log: Log, drafts: Drafts) -> Form | None:
        """What is appended to the stream goes through this; most of the work is done already."""
        form = self._form(log)
        return form if form is None else await self._engine.shapes.prepare(log, drafts)

    async def append_chunk(
        self, live: Live, drafts: Drafts, notes: Sequence[Arrive], form: Form | None
    ) -> None:
        """Append a chunk of a transaction, together with the note that it is there."""
        engine = self._engine
        content_type = stream_of(live.log).content_type
        wanted = Write(content_type)
        entries = streaming.write(live.log, drafts, wanted, engine.clock.now_ns(), form)
        assert entries is not None
        self.use(live)
        entries += [*engine.subscriptions.follow(live.log), *notes]
        position = engine.commit(entries, sync=True, together=True)
        await engine.journal.wait_synced(position, partial(self._show, live, live.log.head))

    # --- living ----------------------------------------------------------------------------------

    def opened(self, live: Live) -> None:
        """A stream went into operation."""
        stream = live.log.stream
        if stream is not None and stream.expires_at_ms is not None and not stream.deleted:
            heappush(self._ends, (stream.expires_at_ms, live.log.id))
            if len(self._ends) > 2 * len(self._engine.state.logs) + _ENDS_STALE_MAX:
                known = self._engine.state.logs
                self._ends = [end for end in self._ends if end[1] in known]
                heapify(self._ends)

    def use(self, live: Live) -> None:
        """A read or a write: a stream with a TTL lives on.

        Whoever answers a read must `settle` before: the longer life is a promise.
        """
        stream = live.log.stream
        if stream is None or stream.ttl_ms is None or live.log.id not in self._engine.lives:
            return
        now_ms = self._engine.clock.now_ms()
        self._deadlines[live.log.id] = now_ms + stream.ttl_ms
        note = touch(live.log.id, stream, now_ms)
        if note is not None and self._engine.journal.failure is None:
            live.aged_position = self._engine.commit([note], sync=True)

    def ends_at_ms(self, log: Log) -> int | None:
        """When the stream ends unless it is used before."""
        stream = stream_of(log)
        return self._deadlines.get(log.id, stream.expires_at_ms)

    def _is_over(self, live: Live) -> bool:
        """Whether its time is up. A stream that somebody follows is in use."""
        engine = self._engine
        if not is_expired(self.ends_at_ms(live.log), engine.clock.now_ms()):
            return False
        if (live.waiters or live.listeners) and stream_of(live.log).ttl_ms is not None:
            self.use(live)
            return False
        return True

    async def run(self) -> None:
        """Remove streams whose time is up, for as long as the server runs."""
        wait_s = _SWEEP_S
        while True:
            await asyncio.sleep(wait_s)
            more = self._engine.journal.failure is None and self.sweep()
            wait_s = 0.0 if more else _SWEEP_S

    def sweep(self) -> bool:
        """Remove some streams whose time is up; says whether there may be more."""
        now_ms = self._engine.clock.now_ms()
        for _ in range(_SWEEP_STREAMS):
            if not self._ends or self._ends[0][0] > now_ms:
                return False
            log = self._engine.state.logs.get(heappop(self._ends)[1])
            if log is None or stream_of(log).deleted:
                continue
            if self._is_over(self._engine.lives[log.id]):
                self._remove(self._engine.lives[log.id])
            else:
                heappush(self._ends, (self.ends_at_ms(log) or 0, log.id))
        return True

    async def delete(self, name: str) -> None:
        """Remove the stream with all its records, or keep them for its forks alone."""
        self._engine.check_open()
        live = self.own(name)
        await self._engine.journal.wait_synced(self._remove(live))

    def _remove(self, live: Live) -> int:
        entries: list[Entry] = [
            *streaming.remove(self._engine.state, live.log),
            *self._engine.subscriptions.forget(live.log.name),
        ]
        position = self._engine.commit(entries, sync=True, together=True)
        for entry in entries:
            self._deadlines.pop(entry.log, None)
        live.wake()
        return position


def _timed_out() -> Refused:
    return Refused(
        Code.APPEND_TIMEOUT,
        "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying",
    )


def _gone(name: str) -> Refused:
    return Refused(Code.GONE, f'stream "{name}" lives on in its forks alone')


def _not_found(name: str) -> Refused:
    return Refused(Code.LOG_NOT_FOUND, f'stream "{name}" does not exist')
