"""Logs: which there are, and creating, configuring and dropping them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headrace.core import log as one
from headrace.core import state as catalog
from headrace.core.config import LogConfig
from headrace.core.entry import Configure, Create, Drop
from headrace.core.errors import Code, Refused
from headrace.core.log import Log, check_owner
from headrace.core.retention import Ledger, build
from headrace.engine.live import Live

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


class Dropped(msgspec.Struct, frozen=True):
    """What went with a log."""

    routers: list[str]


class Logs:
    """All logs of an engine, whoever owns them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def page(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[str], bool], owner: str
    ) -> tuple[list[Live], bool]:
        """Up to `count_max` logs of this owner by name, and whether there are more."""
        engine = self._engine
        found: list[Live] = []
        for name in engine.state.names(after, prefix, owner):
            if not wanted(name):
                continue
            if len(found) == count_max:
                return found, True
            live = engine.lives[engine.state.by_name[name].id]
            engine.expire_now(live)
            found.append(live)
        return found, False

    async def put(
        self, name: str, owner: str, config: LogConfig, created_by: str = ""
    ) -> tuple[Log, bool]:
        """Create the log or give it this config; says whether it is new."""
        engine = self._engine
        engine.check_writable()
        log = engine.state.by_name.get(name)
        if log is None:
            engine.caps.check_logs(engine.state, owner, created_by)
            now_ms = engine.clock.now_ms()
            entry = catalog.create(engine.state, name, owner, config, now_ms, created_by)
            position = engine.commit([entry], sync=True)
            log = engine.state.logs[entry.log]
            await engine.journal.wait_synced(position)
            return log, True
        check_owner(log, owner)
        await self._configure(engine.lives[log.id], config)
        return log, False

    def create_now(self, create: Create) -> Live:
        """Bring a log into existence for an append that follows at once and waits for both."""
        engine = self._engine
        position = engine.journal.enqueue([create], sync=True)
        engine.apply(create)
        engine.note_control(position)
        return engine.lives[create.log]

    async def _configure(self, live: Live, config: LogConfig) -> None:
        engine, log = self._engine, live.log
        if config.kind is not log.config.kind:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{log.name}" is a {log.config.kind.value}; the type of a topic cannot change',
                topic=log.name,
            )
        if config == log.config:
            # Who asked for the same before may still wait for it to be durable.
            await engine.journal.wait_synced(live.config_position)
            return
        if config.trims and log.ledger is None:
            await self._build_ledger(live)
        engine.check_alive(live)
        engine.expire_now(live)
        position = engine.commit([Configure(log.id, config, log.head)], sync=True)
        if trim := one.overflow(log):
            position = engine.commit([trim], sync=True)
        engine.expire_now(live)
        await engine.journal.wait_synced(position)

    async def _build_ledger(self, live: Live) -> None:
        """Retention is about to begin: learn the age and size of every record there is."""
        log = live.log
        while True:
            start = live.tail.start
            ledger = await self._engine.reader.sealed(self._sealed_ledger, log, start - 1)
            if live.tail.start == start:
                break
        for block in live.tail.blocks:
            ledger.add(block)
        ledger.drop_below(log.floor)
        log.ledger = ledger

    def _sealed_ledger(self, log: Log, last: int) -> Ledger:
        return build(self._engine.segments.blocks(log, log.floor, last))

    async def drop(self, name: str, *, if_empty: bool, owner: str | None = None) -> Dropped | None:
        """Remove the log with its records and the routers from and to it; None if there is none."""
        engine = self._engine
        engine.check_writable()
        if name not in engine.state.by_name:
            await engine.wait_control()
            return None
        await engine.routers.forwarder.finish_from(engine.live(name))
        live = engine.state_of(name)
        log = live.log
        check_owner(log, owner)
        if if_empty and (log.count or engine.transactions.under_way.comes_to(log.id)):
            held = f"holds {log.count} records" if log.count else "is about to get records"
            await engine.settle_all(live)
            raise Refused(
                Code.LOG_NOT_EMPTY,
                f'"{name}" {held}',
                topic=name,
                count=log.count,
            )
        routers, cuts = engine.routers.cut_off(live)
        position = engine.commit([*cuts, Drop(log.id)], sync=True, together=True)
        await engine.journal.wait_synced(position)
        return Dropped(routers)
