"""One step of a router: decided on what its source and its destination are, made true at once.

A pass takes steps of many routers and journals all it decided as one frame; copies show at the
commit point of their own log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import chain

import msgspec

from headrace.core import copies, route
from headrace.core import log as core_log
from headrace.core.copies import Copying
from headrace.core.entry import Append, Entry
from headrace.core.errors import Refused
from headrace.core.inbound_route import InboundRoute
from headrace.core.limits import FORWARD_FRAME_BYTES
from headrace.core.record import Block
from headrace.core.route import Forwarding, RouteBatch, Wants
from headrace.core.supersession import Admitted
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import journaled
from headrace.engine.open_log import OpenLog, Promise

_ENTRY_BYTES = 256
_PICK_BYTES = 9

Shown = dict[int, asyncio.Future[None]]
"""Destination → when readers may see what was last brought there."""


class Router:
    """One router in operation; what it knows lives in the state of its destination."""

    __slots__ = (
        "created_by",
        "dest",
        "ended",
        "failures",
        "name",
        "on_room",
        "retry",
        "source",
    )

    def __init__(self, name: str, source: OpenLog, dest: OpenLog) -> None:
        self.name = name
        self.source = source
        self.dest = dest
        self.created_by = self.inbound.created_by
        self.ended = False
        self.failures = 0
        self.retry: asyncio.TimerHandle | None = None
        self.on_room: Callable[[], None] | None = None
        """Listens to the destination while that is full."""

    @property
    def inbound(self) -> InboundRoute:
        inbound_routes = self.dest.log.inbound_routes
        assert inbound_routes is not None
        return inbound_routes[self.name]


class Step(Enum):
    """How a router came on."""

    DONE = auto()
    MORE = auto()
    COLD = auto()
    """What comes next must be read from a segment."""
    BLOCKED = auto()
    """The destination is full, or writes must wait."""


class Pass:
    """Steps of several routers, decided one by one, committed together."""

    def __init__(self, kernel: Kernel, shown: Shown) -> None:
        self._kernel = kernel
        self._shown = shown
        self._now_ms = kernel.clock.now_ms()
        self._batches: dict[Wants, RouteBatch] = {}
        self._made: dict[tuple[Wants, Copying], Block] = {}
        self._entries: list[Entry] = []
        self._stored: list[Entry] = []
        self._promises: list[Promise] = []
        self._ends: dict[int, tuple[OpenLog, int]] = {}
        self._derived_bytes = 0
        self._stored_bytes = 0
        """What the journal keeps of them, roughly."""

    def step(self, router: Router, sealed: Iterable[Block] = ()) -> Step:
        """Decide how a router comes on, with sealed blocks before those in memory.

        All routers of a pass have the same source.
        """
        kernel, source, dest = self._kernel, router.source, router.dest
        if not kernel.admission.open or kernel.journal.failure is not None:
            return Step.BLOCKED
        if dest.log.id in self._ends or self._stored_bytes >= FORWARD_FRAME_BYTES:
            self.commit()  # what comes next is decided on what came before
        for live in (source, dest):
            if core_log.expire(live.log, self._now_ms) is not None:
                # A frame of its own, behind which the journal may go on in a new file.
                self.commit()
                kernel.expire_now(live)
        cursor, visible = router.inbound.cursor, source.visible
        if cursor >= visible:
            return Step.DONE
        wanted = route.wants(source.log, visible, dest.log, router.name)
        for records_max in (wanted.records_max, 1):
            if records_max != wanted.records_max:
                wanted = msgspec.structs.replace(wanted, records_max=1)
            batch = self._look(source, wanted, sealed)
            if batch.upto == cursor:
                return Step.COLD
            try:
                self._forward(router, wanted, batch)
            except Refused:
                continue  # perhaps there is room for one record
            if batch.cold:
                return Step.COLD
            return Step.MORE if batch.upto < visible else Step.DONE
        return Step.BLOCKED

    def _look(self, source: OpenLog, wanted: Wants, sealed: Iterable[Block]) -> RouteBatch:
        batch = self._batches.get(wanted)
        if batch is None:
            blocks = chain(sealed, source.tail.since(wanted.after + 1))
            batch = self._batches[wanted] = route.look(source.log, source.visible, wanted, blocks)
        return batch

    def _forward(self, router: Router, wanted: Wants, batch: RouteBatch) -> None:
        kernel, source, dest = self._kernel, router.source.log, router.dest.log
        copying = route.copying_of(source, router.inbound)
        made = self._copy(router, wanted, batch, copying) if batch.parts else None
        near = kernel.near.get(source.id, source.head + 1)
        derived = (
            made is not None
            and dest.config.journaled
            and route.is_at_hand(source, near, batch.picks)
        )
        how = copying if derived else None
        done = route.forward(dest, router.dest.keyed, router.name, batch, made, how, self._now_ms)
        if done.admitted is not None:
            kernel.caps.check_total(kernel.state, done.admitted)
        self._add(router.dest, done, derived=derived)

    def _copy(self, router: Router, wanted: Wants, batch: RouteBatch, copying: Copying) -> Block:
        made = self._made.get((wanted, copying))
        if made is None:
            made = copies.copy(batch.parts, copying, router.name, router.source.log.id)
            if not copying.source_name:  # else every copy says which router brought it
                self._made[wanted, copying] = made
        return made

    def _add(self, live: OpenLog, done: Forwarding, *, derived: bool) -> None:
        forward, admitted = done.forward, done.admitted
        last = forward.first + forward.holes + forward.count - 1
        if promise := live.promise(last, self._now_ms):
            self._promises.append(promise)
            self._entries.append(promise.entry)
            self._stored.append(promise.entry)
        self._entries.append(forward)
        self._stored.append(forward)
        self._stored_bytes += _ENTRY_BYTES + _PICK_BYTES * len(forward.picks)
        if admitted is not None:
            append = admitted.append
            if derived:
                self._derived_bytes += append.block.size_bytes
                self._stored += admitted.beside
            else:
                append = Append(append.log, copies.owned(append.block), None, append.trim)
                self._stored += journaled(live.log, Admitted(append, admitted.superseded))
                self._stored_bytes += append.block.size_bytes
            self._entries += (append, *admitted.beside)
        self._ends[live.log.id] = live, last

    def commit(self) -> None:
        """Make all that was decided true, in one frame."""
        if not self._entries:
            return
        kernel, ends = self._kernel, list(self._ends.values())
        sync = bool(self._promises) or any(live.log.config.synced for live, _ in ends)
        position = kernel.commit(
            self._entries,
            stored=self._stored,
            sync=sync,
            together=True,
            derived_bytes=self._derived_bytes,
        )
        for promise in self._promises:
            promise.made(position, kernel.journal.synced, self._now_ms)
        self._entries, self._stored, self._promises = [], [], []
        self._ends, self._derived_bytes, self._stored_bytes = {}, 0, 0
        self._shown |= kernel.show_when_committed(position, ends)
