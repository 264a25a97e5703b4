"""What the server measures of streams, written to a stream of its own every few seconds.

Nothing is written while nothing happens, and what happens to that stream itself is not measured.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from headrace.core import stream_rules
from headrace.core.config import Durability, LogConfig
from headrace.core.entry import Append, Entry, Register, SetProfile
from headrace.core.errors import Refused
from headrace.core.limits import METRICS_KEPT_MS, SERIES_MAX
from headrace.core.names import METRICS_STREAM
from headrace.core.owners import SYSTEM
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.core.supersession import Admitted
from headrace.engine.flow.process_memory import measure
from headrace.engine.kernel import Kernel
from headrace.profiles.metrics import SCHEMA, Metrics, encode_interval
from headrace.schemas.registry import encode_registry, first_registry

if TYPE_CHECKING:
    from headrace.engine.open_log import OpenLog

_CONFIG = LogConfig(durability=Durability.FSYNC, ttl_ms=METRICS_KEPT_MS)

Name = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Metric, unit, kind, and what tells its series apart."""


class Series:
    """What was measured of one thing since it was last written down."""

    __slots__ = ("buckets", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum: float = 0
        self.min: float = 0
        self.max: float = 0
        self.buckets: dict[int, int] = {}

    def add(self, value: float) -> None:
        if not self.count or value < self.min:
            self.min = value
        if not self.count or value > self.max:
            self.max = value
        self.count += 1
        self.sum += value
        bound = 1 << max(0, int(value).bit_length() - 1)
        self.buckets[bound] = self.buckets.get(bound, 0) + 1


class Meter:
    """Measures; whoever writes it down takes the series away."""

    def __init__(self) -> None:
        self.series: dict[Name, Series] = {}
        self._requests: dict[tuple[str, bool], Name] = {}

    def add(self, name: Name, value: float) -> None:
        series = self.series.get(name)
        if series is None:
            if len(self.series) >= SERIES_MAX:
                return
            series = self.series[name] = Series()
        series.add(value)

    def request(self, operation: str, took_ms: float, *, done: bool) -> None:
        """A request was answered; as it wanted, or refused."""
        name = self._requests.get((operation, done))
        if name is None:
            attributes = (("operation", operation), ("outcome", "ok" if done else "refused"))
            name = ("stream.request", "ms", "summary", attributes)
            self._requests[operation, done] = name
        self.add(name, took_ms)

    def appended(self, records: int, size_bytes: int) -> None:
        self.add(_RECORDS, records)
        self.add(_BYTES, size_bytes)


_RECORDS: Name = ("stream.append.records", "count", "summary", ())
_BYTES: Name = ("stream.append.bytes", "bytes", "summary", ())


class Metering:
    """Writes down what was measured."""

    def __init__(self, kernel: Kernel, meter: Meter, interval_ms: int) -> None:
        self._kernel = kernel
        self._meter = meter
        self._interval_ms = interval_ms
        self._since_ms = kernel.clock.now_ms()
        self._journal = self._look()
        """What the journal had done when this was last written down: bytes and syncs."""

    async def run(self) -> None:
        """Write every few seconds, for as long as the server runs."""
        while True:
            await asyncio.sleep(self._interval_ms / 1e3)
            if self._meter.series:
                await self.flush()

    async def flush(self) -> None:
        """Write what there is; it stays for the next time when nothing can be written now."""
        kernel = self._kernel
        if kernel.journal.failure is not None or kernel.draining or not kernel.admission.open:
            return
        now_ms = kernel.clock.now_ms()
        journal = self._look()
        raws = self._raws(journal, now_ms)
        try:
            live, position = self._append(raws)
        except Refused:
            return
        self._meter.series = {}
        self._since_ms, self._journal = now_ms, journal
        try:
            await kernel.journal.wait_synced(position, partial(live.show, live.log.head))
        except Refused:
            pass  # the journal failed: there will be no other interval either

    def _look(self) -> tuple[int, int]:
        stats = self._kernel.journal.stats
        return stats.bytes_written, stats.syncs

    def _raws(self, journal: tuple[int, int], now_ms: int) -> list[bytes]:
        series = self._meter.series | self._beside(*journal)
        return [encode_interval(self._interval(name, series[name], now_ms)) for name in series]

    def _interval(self, name: Name, series: Series, now_ms: int) -> dict[str, object]:
        metric, unit, kind, attributes = name
        return {
            "metric": metric,
            "unit": unit,
            "metricKind": kind,
            "windowStart": min(self._since_ms, now_ms),
            "windowEnd": now_ms,
            "attributes": dict(attributes),
            "count": series.count,
            "sum": series.sum,
            "min": series.min,
            "max": series.max,
            "buckets": {str(bound): count for bound, count in series.buckets.items()},
        }

    def _beside(self, written: int, synced: int) -> dict[Name, Series]:
        """How the server is, told only when there is something else to tell."""
        kernel, before = self._kernel, self._journal
        values: dict[Name, float] = {
            ("journal.bytes", "bytes", "counter", ()): written - before[0],
            ("journal.syncs", "count", "counter", ()): synced - before[1],
            ("memory.rss", "bytes", "gauge", ()): measure().rss,
            ("memory.tail", "bytes", "gauge", ()): kernel.tail_bytes,
            ("streams", "count", "gauge", ()): kernel.state.count_of("streams"),
        }
        found: dict[Name, Series] = {}
        for name, value in values.items():
            found[name] = Series()
            found[name].add(value)
        return found

    def _append(self, raws: list[bytes]) -> tuple[OpenLog, int]:
        kernel, drafts = self._kernel, draft(raws)
        log = kernel.state.by_name.get(METRICS_STREAM)
        entries: list[Entry] | None
        if log is None:
            entries = self._create(raws)
        else:
            now_ns = kernel.clock.now_ns()
            entries = stream_rules.write(log, drafts, Write(JSON), now_ns)
        assert entries is not None
        for entry in entries:
            if isinstance(entry, Append):
                kernel.caps.check_total(kernel.state, Admitted(entry))
        position = kernel.commit(entries, sync=True, together=True)
        return kernel.open_logs[kernel.state.by_name[METRICS_STREAM].id], position

    def _create(self, raws: list[bytes]) -> list[Entry]:
        """The stream, lean: no routing key and no search, so that nothing of it is indexed."""
        kernel = self._kernel
        spec = Spec(content_type=JSON)
        now_ns = kernel.clock.now_ns()
        created, opened, *rest = stream_rules.create(
            kernel.state, METRICS_STREAM, spec, None, draft(raws), now_ns, SYSTEM, _CONFIG
        )
        log = created.log
        registry = Register(log, encode_registry(first_registry(SCHEMA, None)))
        return [created, opened, registry, SetProfile(log, Metrics().config), *rest]
