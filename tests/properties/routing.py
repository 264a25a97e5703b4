"""Logs joined by routers, driven as the engine drives them, with naive ones beside them.

The journal goes to a disk in memory in several files; what a start finds there is compared with
what is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from headrace.core import copies, deletion, ranges, route, supersession
from headrace.core import log as core_log
from headrace.core import state as core_state
from headrace.core.config import LogConfig
from headrace.core.entry import Append, Configure, Create, Entry, Forward, Route, Start, Unroute
from headrace.core.errors import Refused
from headrace.core.inbound_route import Rule
from headrace.core.limits import HOPS_MAX
from headrace.core.log import Log
from headrace.core.match import TagPrefix
from headrace.core.read import Budget, Gathering, plan
from headrace.core.record import Block
from headrace.core.route import Routes
from headrace.core.selector import ColumnSelector
from headrace.core.state import State
from headrace.formats import layout
from headrace.formats.frame import encode_frame, encode_group
from headrace.formats.manifest import Manifest
from headrace.formats.snapshot import FORMAT, Captured, Foot, SnapshotHead, encode_part
from headrace.storage import manifests, snapshots
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects
from headrace.storage.recovery import Recovered, Recovery, settle
from headrace.storage.sealing import SealJob, seal
from headrace.storage.segments import Segments

from .log_harness import columns, plain, records_of
from .naive import Full, NaiveLog, Record

AHEAD = 1 << 20


@dataclass
class NaiveRouter:
    source: int
    dest: int
    rule: Rule
    cursor: int
    forwarded: int = 0


@dataclass
class NaiveNet:
    """Every rule of routers, record by record."""

    logs: dict[int, NaiveLog] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    routers: dict[str, NaiveRouter] = field(default_factory=dict)
    visited: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """(log, seq) of a copy → the logs it was in before."""
    copied: dict[tuple[str, int, int, int], int] = field(default_factory=dict)
    """(router, source, dest, source seq) → the seq of the newest stamped copy."""

    def forward(self, name: str, upto: int, now_ms: int) -> None:
        """Bring everything up to `upto`; Full when the destination says no."""
        router = self.routers[name]
        source, dest = self.logs[router.source], self.logs[router.dest]
        live = {record.seq: record for record in source.live}
        holes: dict[int, tuple[int, ...]] = {}
        drafts: list[tuple[int, Record]] = []
        for seq in range(router.cursor + 1, upto + 1):
            visited = self.visited.get((router.source, seq), ())
            if seq < source.floor or seq in source.lost or seq in source.holes:
                if not self._barred(router, visited):
                    assert not drafts, "a hole behind a copy in one batch"
                    holes[dest.head + len(holes) + 1] = (*visited, router.source)
            elif seq in live and self._goes(name, router, live[seq]):
                drafts.append((seq, self._copy(name, router, live[seq])))
        before = replace(dest, live=list(dest.live))
        dest.head += len(holes)
        try:
            added = dest.append([draft for _, draft in drafts], now_ms) if drafts else []
        except Full:
            self.logs[router.dest] = before
            raise
        dest.holes.update(holes)
        self.visited.update({(router.dest, seq): path for seq, path in holes.items()})
        for (seq, _), copy in zip(drafts, added, strict=True):
            path = (*self.visited.get((router.source, seq), ()), router.source)
            self.visited[router.dest, copy.seq] = path
            if router.rule.exactly_once:
                self.copied[name, router.source, router.dest, seq] = copy.seq
        router.cursor = upto
        router.forwarded += len(added)

    def _goes(self, name: str, router: NaiveRouter, record: Record) -> bool:
        rule = router.rule
        if rule.match is not None and not rule.match.matches(record.tag):
            return False
        if self._barred(router, self.visited.get((router.source, record.seq), ())):
            return False
        if rule.exactly_once:
            copy = self.copied.get((name, router.source, router.dest, record.seq))
            return not any(held.seq == copy for held in self.logs[router.dest].live)
        return True

    def _barred(self, router: NaiveRouter, visited: tuple[int, ...]) -> bool:
        return router.dest in visited or (router.rule.allow_cycle and len(visited) >= HOPS_MAX)

    def _copy(self, name: str, router: NaiveRouter, record: Record) -> Record:
        meta = record.meta
        if router.rule.exactly_once:
            held = msgspec.json.decode(meta or b"{}")
            held.pop("_topics_router", None)
            source = router.source
            held["_topics_router"] = {
                "idempotency_key": f"router:{name}:{source}:{source}:{record.seq}",
                "router": name,
                "source_topic": self.names[source],
                "source_topic_id": source,
                "source_epoch": source,
                "source_seq": record.seq,
            }
            meta = msgspec.json.encode(held)
        return Record(
            0,
            0,
            record.data,
            meta,
            record.tag if router.rule.keep_tag else None,
            record.node if router.rule.keep_node else None,
        )


class Net:
    """Logs, routers, a journal in files, segments and snapshots."""

    def __init__(self, configs: list[LogConfig]) -> None:
        self.state = State()
        self.routes = Routes()
        self.naive = NaiveNet()
        self.blocks: dict[int, list[Block]] = {}
        self.visible: dict[int, int] = {}
        self.now_ms = 1000
        self.disk = MemoryDisk()
        self.objects = LocalObjects(self.disk)
        self.manifest = Manifest()
        self.tail = self.file_start = self.synced = 0
        self.firsts: dict[int, int] = {}
        """The first seq of each log that the open file can tell of."""
        self.closed: list[tuple[int, int]] = []
        self.capturing: list[int] | None = None
        self.captured: list[bytes] = []
        self.snapshot_position = 0
        self._open_file()
        self.write([Start(0, "memory")])
        for number, config in enumerate(configs, 1):
            name = "abcd"[number - 1]
            self.commit([Create(number, name, "topics", config, self.now_ms, AHEAD)])
            self.naive.logs[number] = NaiveLog(config)
            self.naive.names[number] = name
            self.blocks[number] = []
            self.visible[number] = 0

    # --- the journal ---

    def _open_file(self) -> None:
        self.disk.files[layout.journal_file(self.tail)] = bytearray()

    def write(self, entries: list[Entry]) -> None:
        if len(entries) > 1:
            frame = encode_group(entries, self.tail, self.synced)
        else:
            frame = encode_frame(entries[0], self.tail, self.synced)
        self.disk.files[layout.journal_file(self.file_start)] += frame
        self.tail += len(frame)

    def commit(self, entries: list[Entry], stored: list[Entry] | None = None) -> None:
        for entry in entries:
            core_state.apply(self.state, entry)
            if isinstance(entry, Append):
                self.blocks[entry.log].append(entry.block)
                if self.state.logs[entry.log].config.journaled:
                    self.firsts.setdefault(entry.log, entry.block.first)
        if stored := entries if stored is None else stored:
            self.write(stored)

    def sync(self) -> None:
        self.synced = self.tail

    def rotate(self) -> None:
        if self.tail > self.file_start:
            self.sync()
            self.closed.append((self.file_start, self.tail))
            self.file_start = self.tail
            self.firsts = {}
            self._open_file()

    def seal(self) -> None:
        if not self.closed:
            return
        start, stop = self.closed[0][0], self.closed[-1][1]
        names = {log.id: log.name for log in self.state.logs.values()}
        number = self.manifest.next_number
        segment = seal(self.disk, self.objects, SealJob(number, "t", start, stop, names))
        version = self.manifest.version + 1
        listed = (msgspec.structs.replace(segment, since=version),) if segment else ()
        self.manifest = msgspec.structs.replace(
            self.manifest,
            version=version,
            next_number=number + 1,
            sealed_to=stop,
            segments=self.manifest.segments + listed,
        )
        manifests.publish(self.objects, self.manifest)
        self.closed = []

    def capture(self) -> None:
        """One more log of the snapshot under way; the first call begins one."""
        if self.capturing is None:
            self.snapshot_position = self.tail
            self.captured = [
                encode_part(SnapshotHead(FORMAT, self.tail, self.state.next_id, 0, "memory"))
            ]
            self.capturing = list(self.state.logs)
        if self.capturing:
            log = self.capturing.pop()
            part = Captured(self.tail, log, _unattached(self.state.logs[log]))
            self.captured.append(encode_part(part))
        if not self.capturing:
            self.captured.append(encode_part(Foot(len(self.captured) - 1)))
            snapshots.write(self.disk, self.snapshot_position, self.captured)
            self.capturing = None

    # --- what users do ---

    def log(self, number: int) -> Log:
        return self.state.logs[number]

    def append(self, number: int, drafts: list[Record]) -> None:
        log = self.log(number)
        try:
            self.naive.logs[number].append(drafts, self.now_ms)
        except Full:
            return
        entry = supersession.append(log, None, columns(drafts), None, self.now_ms).append
        trim = [entry.trim] if entry.trim else []
        self.commit([entry], [entry] if log.config.journaled else list[Entry](trim))

    def delete(self, number: int, before: int, tag: str | None) -> None:
        log, naive, visible = self.log(number), self.naive.logs[number], self.visible[number]
        match = TagPrefix(tag) if tag is not None else None
        gone = {
            record.seq: record.size
            for record in naive.live
            if record.seq < min(before, visible + 1)
            and (match is None or match.matches(record.tag))
        }
        if entry := deletion.delete_seqs(log, sorted(gone.items()), visible + 1):
            self.commit([entry])
        naive.delete(set(gone))

    def configure(self, number: int, config: LogConfig) -> None:
        log = self.log(number)
        if config.trims and log.ledger is None:
            log.ledger = core_log.retention.build(iter(self.blocks[number]))
            log.ledger.drop_below(log.floor)
        self.commit([Configure(number, config, log.head)])
        if trim := core_log.overflow(log):
            self.commit([trim])
        self.naive.logs[number].configure(config, self.now_ms)

    def show(self, number: int) -> None:
        self.visible[number] = self.log(number).head

    # --- routers ---

    def route(self, name: str, source: int, dest: int, rule: Rule, after: int | None) -> None:
        held = self.log(dest).inbound_routes or {}
        if any(inbound.source != source for other, inbound in held.items() if other != name):
            return
        if not rule.allow_cycle and route.find_cycle(self.routes, name, source, dest):
            return
        known = self.naive.routers.get(name)
        cursor, forwarded = self.log(source).head if after is None else after, 0
        cursor = min(cursor, self.log(source).head)
        entries: list[Entry] = []
        if known and (known.source, known.dest) == (source, dest):
            cursor, forwarded = known.cursor, known.forwarded
        elif known:
            entries.append(Unroute(known.dest, name))
            self.routes.remove(name, known.source)
        entries.append(Route(dest, name, source, rule, cursor, forwarded))
        self.commit(entries)
        self.routes.put(name, source, dest)
        self.naive.routers[name] = NaiveRouter(source, dest, rule, cursor, forwarded)

    def unroute(self, name: str) -> None:
        if known := self.naive.routers.pop(name, None):
            self.commit([Unroute(known.dest, name)])
            self.routes.remove(name, known.source)

    def begin_again(self, name: str) -> None:
        """Delete a router and create it anew, from the first record on."""
        if known := self.naive.routers.get(name):
            self.unroute(name)
            self.route(name, known.source, known.dest, known.rule, 0)

    def forward(self, name: str) -> bool:
        """One step of a router; whether it came any further."""
        known = self.naive.routers[name]
        source, dest = self.log(known.source), self.log(known.dest)
        assert dest.inbound_routes is not None
        inbound, visible = dest.inbound_routes[name], self.visible[known.source]
        wanted = route.wants(source, visible, dest, name)
        batch = route.look(source, visible, wanted, self.blocks[known.source])
        assert not batch.cold
        if batch.upto <= inbound.cursor:
            assert inbound.cursor >= visible
            return False
        copying = route.copying_of(source, inbound)
        made = copies.copy(batch.parts, copying, name, source.id) if batch.parts else None
        first = self.firsts.get(source.id, source.head + 1)
        near = bool(made) and route.is_at_hand(source, first, batch.picks)
        near = near and dest.config.journaled
        try:
            done = route.forward(
                dest, None, name, batch, made, copying if near else None, self.now_ms
            )
        except Refused:
            cursor = known.cursor
            try:
                self.naive.forward(name, batch.upto, self.now_ms)
            except Full:
                assert known.cursor == cursor
                return False
            raise
        self.naive.forward(name, batch.upto, self.now_ms)
        self._keep(dest, done)
        return True

    def _keep(self, dest: Log, done: route.Forwarding) -> None:
        entries: list[Entry] = [done.forward]
        stored: list[Entry] = [done.forward]
        if done.admitted is not None:
            append = done.admitted.append
            entries.append(append)
            if dest.config.journaled and done.forward.copying is None:
                block = copies.owned(append.block)
                append = entries[1] = Append(append.log, block, None, append.trim)
                stored.append(append)
            elif append.trim and not dest.config.journaled:
                stored.append(append.trim)
        self.commit(entries, stored)

    # --- checking ---

    def check(self) -> None:
        """State and records are those of the naive logs."""
        for number, naive in self.naive.logs.items():
            log = self.log(number)
            assert (log.head, log.count, log.size_bytes) == (
                naive.head,
                len(naive.live),
                sum(_size(record) for record in naive.live),
            )
            assert (log.floor, log.earliest) == (naive.floor, naive.earliest)
            self.check_records(number)
        for name, router in self.naive.routers.items():
            inbound_routes = self.log(router.dest).inbound_routes
            assert inbound_routes is not None
            inbound = inbound_routes[name]
            assert (inbound.source, inbound.cursor, inbound.forwarded) == (
                router.source,
                router.cursor,
                router.forwarded,
            )

    def check_records(self, number: int) -> None:
        """Read it all, page by page, as a user would."""
        log, naive, visible = self.log(number), self.naive.logs[number], self.visible[number]
        after = 0
        while True:
            gathering = Gathering(
                log, plan(log, visible, after, None), Budget(3, 1 << 20, 1 << 20), ColumnSelector()
            )
            for block in self.blocks[number]:
                if block.last >= gathering.next + 1 and not gathering.take(block):
                    break
            page = gathering.page(visible)
            found = [r for part in page.slices for r in records_of(part.block, part.picks)]
            wanted = naive.read(after, visible, 3, 1 << 20, set())
            assert (_plain(found), page.next, page.gap) == (_plain(wanted[0]), *wanted[1:])
            assert page.next > after or page.caught_up
            after = page.next
            if page.caught_up:
                return

    def recovered(self) -> Recovered:
        """What a start finds, on a disk of its own."""
        disk = MemoryDisk()
        disk.files = {path: bytearray(raw) for path, raw in self.disk.files.items()}
        objects = LocalObjects(disk)
        found = Recovery(disk, objects, Segments(objects, 1 << 20)).run()
        settle(disk, found)
        again = Recovery(disk, objects, Segments(objects, 1 << 20)).run()
        for log in found.state.logs.values():
            assert plain(again.state.logs[log.id]) == plain(log)
            assert _records(again.blocks.get(log.id, [])) == _records(found.blocks.get(log.id, []))
        return found

    def check_recovery(self) -> None:
        """A start finds the same state, and every record of it."""
        found = self.recovered()
        segments = Segments(self.objects, 1 << 20)
        segments.use(self.manifest)
        for number, log in self.state.logs.items():
            twin = found.state.logs[number]
            assert twin.inbound_routes == log.inbound_routes
            if log.volatile or twin.volatile:
                continue  # a restart takes some of it
            assert plain(_unattached(twin)) == plain(_unattached(log))
            sealed = segments.blocks(twin, twin.floor, twin.sealed_last)
            held = [
                record
                for block in (*sealed, *found.blocks.get(number, ()))
                for record in _records([block])
                if record.seq >= twin.floor and not ranges.contains(twin.gone, record.seq)
            ]
            assert _plain(held) == _plain(self.naive.logs[number].live)


def _unattached(log: Log) -> Log:
    """Extents are told by the manifest: here nobody tells the logs in memory of them."""
    return msgspec.structs.replace(log, extents=())


def _records(blocks: list[Block]) -> list[Record]:
    return [record for block in blocks for record in records_of(block, range(block.count))]


def _plain(records: list[Record]) -> list[Record]:
    """With metas as values: a stamp has the members in an order of its own."""
    return [
        replace(record, meta=msgspec.json.decode(record.meta) if record.meta else None)
        for record in records
    ]


def _size(record: Record) -> int:
    return record.size


__all__ = ["Forward", "Net"]
