"""Logs: which there are, and creating, configuring and dropping them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headrace.core import log as core_log
from headrace.core import state as core_state
from headrace.core.config import LogConfig
from headrace.core.entry import Configure, Drop, Entry
from headrace.core.errors import Code, Refused
from headrace.core.log import Log, check_owner
from headrace.core.retention import Ledger, build
from headrace.core.supersession import check_config
from headrace.engine.kernel import Kernel
from headrace.engine.logs.commit_barrier import CommitBarrier
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.key_rules import KeyRules
from headrace.engine.logs.lookup import LogLookup
from headrace.engine.open_log import OpenLog
from headrace.engine.routers.control import Routers


class Dropped(msgspec.Struct, frozen=True):
    """What went with a log."""

    routers: list[str]


class Logs:
    """All logs of an engine, whoever owns them."""

    def __init__(
        self,
        kernel: Kernel,
        lookup: LogLookup,
        fetcher: Fetcher,
        routers: Routers,
        barrier: CommitBarrier,
        key_rules: KeyRules,
    ) -> None:
        self._kernel = kernel
        self._lookup = lookup
        self._fetcher = fetcher
        self._routers = routers
        self._barrier = barrier
        self._key_rules = key_rules

    def page(
        self,
        after: str,
        prefix: str,
        count_max: int,
        wanted: Callable[[str], bool],
        owner: str | None = None,
    ) -> tuple[list[OpenLog], bool]:
        """Up to `count_max` logs of this owner, or of all, by name; and whether there are more."""
        kernel = self._kernel
        found: list[OpenLog] = []
        for name in kernel.state.names(after, prefix, owner):
            if not wanted(name):
                continue
            if len(found) == count_max:
                return found, True
            live = kernel.open_logs[kernel.state.by_name[name].id]
            kernel.expire_now(live)
            found.append(live)
        return found, False

    async def put(
        self, name: str, owner: str, config: LogConfig, created_by: str = ""
    ) -> tuple[Log, bool]:
        """Create the log or give it this config; says whether it is new."""
        kernel = self._kernel
        kernel.check_writable()
        log = kernel.state.by_name.get(name)
        if log is None:
            kernel.caps.check_logs(kernel.state, owner, created_by)
            now_ms = kernel.clock.now_ms()
            entry = core_state.create(kernel.state, name, owner, config, now_ms, created_by)
            position = kernel.commit([entry], sync=True)
            log = kernel.state.logs[entry.log]
            await kernel.journal.wait_synced(position)
            return log, True
        check_owner(log, owner)
        await self._configure(kernel.open_logs[log.id], config)
        return log, False

    async def _configure(self, live: OpenLog, config: LogConfig) -> None:
        kernel, log = self._kernel, live.log
        if config.kind is not log.config.kind:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{log.name}" is a {log.config.kind.value}; the type of a log cannot change',
                topic=log.name,
            )
        if config.unique_ids is not log.config.unique_ids:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'whether records of "{log.name}" have ids cannot change',
                topic=log.name,
            )
        if config == log.config:
            # Who asked for the same before may still wait for it to be durable.
            await kernel.journal.wait_synced(live.config_position)
            await self._key_rules.finish(live)
            return
        check_config(log, config)
        core_state.check_dead_letter(kernel.state, log.owner, config)
        # While one is made of what there is, another config may take the other one away.
        while (config.trims and log.ledger is None) or (config.keyed and live.keyed is None):
            if config.trims and log.ledger is None:
                await self._build_ledger(live)
            else:
                await self._key_rules.fill(live)
        kernel.check_alive(live)
        kernel.expire_now(live)
        position = kernel.commit([Configure(log.id, config, log.head)], sync=True)
        if trim := core_log.overflow(log):
            position = kernel.commit([trim], sync=True)
        kernel.expire_now(live)
        await self._key_rules.enforce(live)  # at once, unless there is very much of it
        await kernel.journal.wait_synced(position)

    async def _build_ledger(self, live: OpenLog) -> None:
        """Retention is about to begin: learn the age and size of every record there is."""
        log = live.log
        while True:
            start = live.tail.start
            ledger = await self._fetcher.sealed(self._sealed_ledger, log, start - 1)
            if live.tail.start == start:
                break
        for block in live.tail.blocks:
            ledger.add(block)
        ledger.drop_below(log.floor)
        log.ledger = ledger

    def _sealed_ledger(self, log: Log, last: int) -> Ledger:
        return build(self._fetcher.segments.blocks(log, log.floor, last))

    async def drop(
        self,
        name: str,
        *,
        if_empty: bool,
        owner: str | None = None,
        beside: Callable[[OpenLog], Sequence[Entry]] = lambda live: (),
    ) -> Dropped | None:
        """Remove the log with its records and the routers from and to it; None if there is none.

        What is decided `beside` it, at that moment, comes true with it.
        """
        kernel = self._kernel
        kernel.check_writable()
        if name not in kernel.state.by_name:
            await kernel.wait_control()
            return None
        await self._routers.forwarder.finish_from(self._lookup.live(name))
        live = self._lookup.state_of(name)
        log = live.log
        check_owner(log, owner)
        if if_empty and (log.count or self._barrier.comes_to(log.id)):
            held = f"holds {log.count} records" if log.count else "is about to get records"
            await kernel.settle_all(live)
            raise Refused(
                Code.LOG_NOT_EMPTY,
                f'"{name}" {held}',
                topic=name,
                count=log.count,
            )
        routers, cuts = self._routers.cut_off(live)
        await kernel.commit_synced([*cuts, *beside(live), Drop(log.id)], together=True)
        return Dropped(routers)
