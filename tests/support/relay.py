"""Follows routers at work: the model works out anew what they bring, and it must be the same."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from headrace.core.entry import Append, Entry, Forward, Route, Unroute
from headrace.engine.engine import Engine
from support.engine_harness import Record
from support.oracle import Forwarded, History, ModelInlet, ModelLog


class Relay:
    """Told of every entry an engine applies, in order; keeps the history for those of routers."""

    def __init__(self, engine: Engine, history: History) -> None:
        self._engine = engine
        self._history = history
        self._under_way: tuple[str, Forwarded] | None = None
        self.controlled = 0
        """The newest step that began, changed or ended a router."""

    def follow(self, entry: Entry) -> bool:
        """Whether this entry was a router's; then the history has it."""
        match entry:
            case Route():
                name, log = self._find(entry.log)
                inbound = ModelInlet(entry.source, entry.rule, entry.cursor, entry.forwarded)
                self._step(
                    name, replace(log, inbound_routes={**log.inbound_routes, entry.router: inbound})
                )
                self.controlled = len(self._history.states) - 1
            case Unroute():
                name, log = self._find(entry.log)
                left = {
                    k: inbound for k, inbound in log.inbound_routes.items() if k != entry.router
                }
                self._step(name, replace(log, inbound_routes=left))
                self.controlled = len(self._history.states) - 1
            case Forward():
                self._forward(entry)
            case Append() if self._under_way is not None:
                self._append(entry)
            case _:
                assert self._under_way is None, "copies that never came"
                return False
        return True

    def _find(self, id: int) -> tuple[str, ModelLog]:
        name = self._engine.state.logs[id].name
        return name, self._history.now[name]

    def _step(self, name: str, log: ModelLog) -> None:
        self._history.step(name, log)

    def _forward(self, entry: Forward) -> None:
        name, log = self._find(entry.log)
        source_name, source = self._find(entry.source)
        visible = self._engine.open_logs[source.id].visible
        assert entry.upto <= visible, f"{entry.router} read {entry.upto} of {visible}"

        def stamp(meta: bytes | None, seq: int) -> bytes:
            key = f"router:{entry.router}:{source.id}:{source.id}:{seq}"
            said = {
                "idempotency_key": key, "router": entry.router, "source_topic": source_name,
                "source_topic_id": source.id, "source_epoch": source.id, "source_seq": seq,
            }  # fmt: skip
            inside = re.sub(rb',?"_topics_router":{[^}]*}', b"", (meta or b"{}")[1:-1])
            comma = b"," if inside else b""
            return b'{%b%b"_topics_router":%b}' % (inside, comma, msgspec.json.encode(said))

        brought = log.forward(entry.router, source, entry.upto, stamp)
        assert entry.first == log.head + 1
        expected = len(brought.holes), len(brought.copies)
        assert (entry.holes, entry.count) == expected, f"{entry} instead of {expected}"
        self._step(name, log.open_holes(entry.router, entry.upto, brought))
        if entry.count:
            self._under_way = name, brought

    def _append(self, entry: Append) -> None:
        assert self._under_way is not None
        (name, brought), self._under_way = self._under_way, None
        log, block = self._history.now[name], entry.block
        assert log.id == entry.log
        records = brought.records
        assert not log.full(records), "more than the caps allow"
        found = [
            Record(
                block.data_at(at),
                block.metas[at] if block.metas else None,
                block.tags[at] if block.tags else None,
                block.nodes[at] if block.nodes else None,
                record.ts_ms,
                block.keys[at] if block.keys else None,
            )
            for at, record in enumerate(records)
        ]
        assert found == records
        grown = replace(log, last_ts_ms=0).append(records, None, block.ts_ms)
        assert (block.first, block.last) == (log.head + 1, grown.head)
        # The step of the holes was not for itself: both come true together.
        self._history.states.pop()
        self._step(name, grown)
