"""What can be seen of the server itself: its limits, its memory, its queues.

The names come from a server in JavaScript; `docs/surfaces/streams.md` says what they mean here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from headrace.core.limits import (
    COMPANION_CACHE_BYTES,
    JOURNAL_PENDING_BYTES_MAX,
    PARKED_WRITES_MAX,
)
from headrace.core.owners import STREAMS
from headrace.engine.engine import Engine
from headrace.engine.flow.process_memory import Peaks, ProcessMemory, look_at_collector, measure
from headrace.engine.streams.top_streams import Ranking
from headrace.search.values import format_date
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, Gate
from headrace.web.credentials import Principal, Scope

PEAKS_S = 10.0
"""How often the memory is looked at."""

Numbers = dict[str, int]


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the server was configured to do."""

    tail_bytes: int
    block_cache_bytes: int
    seal_bytes: int
    inflight_per_key: int
    body_bytes: int
    append_ms: int
    search_ms: int
    request_ms: int
    pipeline: bool
    """Whether index companions are made beside the server."""


class ServerRoutes:
    """The resources of the server."""

    def __init__(self, gate: Gate, limits: ServerLimits) -> None:
        self._gate = gate
        self._limits = limits
        self._peaks = Peaks()

    async def run(self, engine: Engine) -> None:
        """Keep an eye on the most there ever was, for as long as the server runs."""
        while True:
            await self._look(engine)
            await asyncio.sleep(PEAKS_S)

    async def details(self, call: Call) -> Answer:
        """Limits and live state in one."""
        call.principal.require(Scope.READ)
        engine = call.engine
        state = await self._look(engine)
        told = {
            "auto_tune": {
                "enabled": False,
                "requested_memory_mb": None,
                "preset_mb": None,
                "effective_memory_limit_mb": None,
            },
            "configured_limits": self._configured(engine),
            "runtime": {
                "memory": {
                    "pressure_active": not engine.admission.room.is_set(),
                    "last_rss_bytes": state.memory.rss,
                    "process": _process(state.memory),
                    "process_breakdown": _breakdown(state.memory),
                    "sqlite": _SQLITE,
                    "gc": _gc(),
                    "subsystems": {**state.groups, "counts": state.counts},
                    "totals": state.totals,
                    "high_water": self._high_water(),
                },
                **_queues(engine),
                "concurrency": self._concurrency(engine),
                "top_streams": _top(engine, call.principal),
            },
        }
        return json_answer(msgspec.json.encode(told))

    async def memory(self, call: Call) -> Answer:
        """The part of it that tells of memory."""
        call.principal.require(Scope.READ)
        engine = call.engine
        state = await self._look(engine)
        collector = look_at_collector()
        told = {
            "ts": format_date(engine.clock.now_ms()),
            "process": _process(state.memory),
            "process_breakdown": _breakdown(state.memory),
            "sqlite": _SQLITE,
            "gc": _gc(),
            "high_water": self._high_water(),
            "counters": {
                "allocated_blocks": collector.blocks,
                "gc_tracked_new_objects": sum(collector.tracked),
                "logs": len(engine.state.logs),
                "followed_connections": len(self._gate.streams),
                "requests_under_way": len(self._gate.slots),
            },
            "runtime_counts": state.counts,
            "runtime_bytes": state.groups,
            "runtime_totals": state.totals,
            "top_streams": _top(engine, call.principal),
        }
        return json_answer(msgspec.json.encode(told))

    async def _look(self, engine: Engine) -> _State:
        memory = await engine.pool.run(measure)
        state = _State(memory, self._groups(engine), self._counts(engine))
        now_ms = engine.clock.now_ms()
        self._peaks.note("process", _process(memory), now_ms)
        self._peaks.note("totals", state.totals, now_ms)
        return state

    def _configured(self, engine: Engine) -> dict[str, Any]:
        limits, load = self._limits, engine.pool.load
        return {
            "caches": {
                "segment_cache_max_bytes": 0,
                "block_cache_max_bytes": limits.block_cache_bytes,
                "companion_cache_max_bytes": COMPANION_CACHE_BYTES,
                "tail_max_bytes": limits.tail_bytes,
            },
            "concurrency": {
                "ingest": 0,
                "read": load.threads,
                "search": load.threads,
                "async_index": int(limits.pipeline),
                "upload": 1,
                "index_build": int(limits.pipeline),
                "index_compact": int(limits.pipeline),
            },
            "ingest": {
                "max_batch_requests": 0,
                "max_batch_bytes": 0,
                "max_queue_requests": PARKED_WRITES_MAX,
                "max_queue_bytes": JOURNAL_PENDING_BYTES_MAX,
                "busy_timeout_ms": limits.append_ms,
                "local_backlog_max_bytes": engine.backlog().memory_max_bytes,
                "max_inflight_per_key": limits.inflight_per_key,
                "max_body_bytes": limits.body_bytes,
            },
            "search": {
                "companion_batch_segments": 0,
                "companion_yield_blocks": 0,
                "wal_overlay_quiet_period_ms": 0,
                "wal_overlay_max_bytes": 0,
            },
            "segmenting": {
                "segment_max_bytes": limits.seal_bytes,
                "segment_target_rows": 0,
                "segmenter_workers": 1,
            },
            "timeouts": {
                "append_ms": limits.append_ms,
                "search_ms": limits.search_ms,
                "resolver_ms": limits.request_ms,
                "object_store_ms": 0,
            },
            "memory": {"pressure_limit_bytes": engine.backlog().memory_max_bytes},
        }

    def _groups(self, engine: Engine) -> dict[str, Numbers]:
        limits, backlog = self._limits, engine.backlog()
        return {
            "heap_estimates": {
                "tail_bytes": engine.tail_bytes,
                "ingest_queue_payload_bytes": engine.journal.pending_bytes,
                "block_cache_bytes": engine.segments.cached_bytes,
                "companion_cache_bytes": engine.segments.builds.cached_bytes,
            },
            "mapped_files": {},
            "disk_caches": {},
            "configured_budgets": {
                "tail_bytes": limits.tail_bytes,
                "block_cache_bytes": limits.block_cache_bytes,
                "companion_cache_bytes": COMPANION_CACHE_BYTES,
                "ingest_queue_bytes": JOURNAL_PENDING_BYTES_MAX,
            },
            "pipeline_buffers": {"unsealed_journal_bytes": backlog.size_bytes},
            "sqlite_runtime": {},
        }

    def _counts(self, engine: Engine) -> Numbers:
        return {
            "streams": engine.state.count_of(STREAMS),
            "logs": len(engine.state.logs),
            "records": engine.state.count,
            "segments": len(engine.index_status.manifest.segments),
            "builds": len(engine.index_status.manifest.builds),
            "followed_connections": len(self._gate.streams),
            "requests_under_way": len(self._gate.slots),
        }

    def _concurrency(self, engine: Engine) -> dict[str, Numbers]:
        load = engine.pool.load
        threads = _gate(load.threads, load.active, load.queued)
        pipeline = int(self._limits.pipeline)
        return {
            "ingest": _gate(0, len(self._gate.slots), engine.admission.parked),
            "read": threads,
            "search": threads,
            "async_index": _gate(pipeline, pipeline, 0),
        }

    def _high_water(self) -> dict[str, Any]:
        return {
            group: {
                name: {"value": peak.value, "at": format_date(peak.at_ms)}
                for name, peak in peaks.items()
            }
            for group, peaks in self._peaks.groups.items()
        }


class _State(msgspec.Struct):
    memory: ProcessMemory
    groups: dict[str, Numbers]
    counts: Numbers

    @property
    def totals(self) -> Numbers:
        return {_TOTALS[group]: sum(self.groups[group].values()) for group in _TOTALS}


_TOTALS = {
    "heap_estimates": "heap_estimate_bytes",
    "mapped_files": "mapped_file_bytes",
    "disk_caches": "disk_cache_bytes",
    "configured_budgets": "configured_budget_bytes",
    "pipeline_buffers": "pipeline_buffer_bytes",
    "sqlite_runtime": "sqlite_runtime_bytes",
}
_SQLITE = {
    "available": False,
    "source": "unavailable",
    "memory_used_bytes": 0,
    "memory_highwater_bytes": 0,
    "pagecache_used_slots": 0,
    "pagecache_used_slots_highwater": 0,
    "pagecache_overflow_bytes": 0,
    "pagecache_overflow_highwater_bytes": 0,
    "malloc_count": 0,
    "malloc_count_highwater": 0,
    "open_connections": 0,
    "prepared_statements": 0,
}


def _process(memory: ProcessMemory) -> Numbers:
    return {
        "rss_bytes": memory.rss,
        "heap_total_bytes": memory.heap,
        "heap_used_bytes": memory.heap_used,
        "external_bytes": memory.arrow,
        "array_buffers_bytes": memory.arrow,
    }


def _breakdown(memory: ProcessMemory) -> dict[str, Any]:
    managed = memory.heap_used + memory.arrow
    return {
        "source": memory.source,
        "rss_anon_bytes": memory.anonymous,
        "rss_file_bytes": memory.file,
        "rss_shmem_bytes": memory.shared,
        "js_managed_bytes": managed,
        "js_external_non_array_buffers_bytes": 0,
        "mapped_file_bytes": 0,
        "sqlite_runtime_bytes": 0,
        "unattributed_anon_bytes": max(0, memory.anonymous - managed),
        "unattributed_rss_bytes": max(0, memory.rss - managed),
    }


def _gc() -> dict[str, Any]:
    collector = look_at_collector()
    return {
        "forced_gc_count": 0,
        "forced_gc_reclaimed_bytes_total": 0,
        "last_forced_gc_at_ms": None,
        "last_forced_gc_before_bytes": None,
        "last_forced_gc_after_bytes": None,
        "last_forced_gc_reclaimed_bytes": None,
        "heap_snapshots_written": 0,
        "last_heap_snapshot_at_ms": None,
        "collections": collector.collections,
        "collected_objects": collector.collected,
        "frozen_objects": collector.frozen,
        "allocated_blocks": collector.blocks,
    }


def _queues(engine: Engine) -> dict[str, Any]:
    journal, backlog = engine.journal, engine.backlog()
    return {
        "ingest_queue": {
            "requests": journal.queue_depth + engine.admission.parked,
            "bytes": journal.pending_bytes,
            "full": not engine.admission.open,
        },
        "local_backpressure": {
            "enabled": backlog.memory_max_bytes > 0,
            "current_bytes": engine.tail_bytes,
            "max_bytes": backlog.memory_max_bytes,
            "over_limit": not engine.admission.room.is_set(),
        },
        "uploads": {"pending_segments": backlog.parts},
    }


def _gate(limit: int, active: int, queued: int) -> Numbers:
    return {
        "configured_limit": limit,
        "current_limit": limit,
        "active": active,
        "queued": queued,
    }


def _top(engine: Engine, principal: Principal) -> dict[str, Any]:
    leaders = engine.top_streams.take()

    def shown(ranking: Ranking, unit: str) -> list[dict[str, Any]]:
        return [{"stream": name, unit: value} for value, name in ranking if principal.may_see(name)]

    return {
        "counted_at": None if leaders.at_ms is None else format_date(leaders.at_ms),
        "local_storage_bytes": shown(leaders.stored, "bytes"),
        "pending_wal_bytes": shown(leaders.unsealed, "bytes"),
        "touch_journal_filter_bytes": shown(engine.touch_notifiers.largest(), "bytes"),
        "notifier_waiters": shown(leaders.waiters, "waiters"),
    }
