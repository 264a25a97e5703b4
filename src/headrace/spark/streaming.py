"""Reading a stream: offsets are the seq of each log up to which it was read, and which instance of
its name it is. `lost` are ranges behind that which were lost when the query met the log: they are
no loss to it, however it is cut into batches.

    {"logs": {"orders": {"epoch": 7, "seq": 1200},
              "web": {"epoch": 9, "seq": 40, "lost": [[51, 52], [90, 99]]}}}
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.core import ranges
from headrace.core.ranges import Ranges
from headrace.formats.log_plan import LogPlan
from headrace.spark.catalog import Catalog
from headrace.spark.options import Pace, ReadOptions
from headrace.spark.pacing import Backlog, Position, pace_of
from headrace.spark.reading import cores, read_part
from headrace.spark.rows import DataLost
from headrace.spark.splits import Want, bundled, split

Offset = dict[str, dict[str, dict[str, Any]]]
LOST_RANGES_MAX = 100
"""Ranges that an offset lists for a log; where there are more, the first of them become one."""


def _decode(offset: Offset) -> dict[str, Position]:
    return {name: (at["epoch"], at["seq"]) for name, at in offset.get("logs", {}).items()}


def _encode(positions: dict[str, Position], lost: Mapping[str, Ranges] | None = None) -> Offset:
    logs: dict[str, dict[str, Any]] = {
        name: {"epoch": at[0], "seq": at[1]} for name, at in sorted(positions.items())
    }
    for name, held in (lost or {}).items():
        if ahead := [[*span] for span in ranges.pairs(held) if span[1] > positions[name][1]]:
            logs[name]["lost"] = ahead
    return {"logs": logs}


def _lost_before(offset: Offset) -> dict[str, Ranges]:
    """Log → what it had lost when the query met it."""
    logs = offset.get("logs", {})
    return {name: ranges.from_pairs(at["lost"]) for name, at in logs.items() if "lost" in at}


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads in tasks; what is lost on the way fails the query, or is told."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._catalog = Catalog(options.where)
        self._cap: dict[str, Position] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}  # tasks need no more

    # --- offsets ---------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802  (these names are Spark's)
        """Where a query without a checkpoint begins.

        Logs that begin with a prefix may come later, but not for a query that ends before that.
        """
        plans, logs = self._plans(), self._options.wanted.logs
        self._catalog.check_names(logs.names, plans)
        if self._cap is not None:
            self._catalog.check_prefixes(logs.prefixes, plans)
        if not self._options.from_latest:
            return _encode({})
        return _encode({plan.log: (plan.epoch, plan.head_seq) for plan in plans})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        before = _decode(start)
        pace = Pace() if isinstance(limit, ReadAllAvailable) else self._pace(limit)
        plans = self._plans(extents=pace.files is not None)
        if self._options.fail_on_loss and self._options.where.url is not None:
            # Without a server, a log of which nothing is left looks as if it were gone.
            self._catalog.check_names(self._options.wanted.logs.names, plans)
        backlogs = [log for plan in plans if (log := self._backlog(plan, before))]
        upto = pace_of(backlogs, pace)
        after = {log.plan.log: (log.plan.epoch, upto[log.plan.log]) for log in backlogs}
        new = {name for name, (epoch, _) in after.items() if before.get(name, (0, 0))[0] != epoch}
        known = {name: held for name, held in _lost_before(start).items() if name not in new}
        return _encode({**before, **after}, known | self._lost_in(new))

    def _lost_in(self, logs: Collection[str]) -> dict[str, Ranges]:
        """Log → what it has lost already, of those that the query has just met."""
        if not logs or not self._options.fail_on_loss:
            return {}
        found: dict[str, Ranges] = {}
        for plan in self._plans(extents=True):
            if plan.log in logs and plan.lost:
                held = ranges.from_pairs(plan.lost)
                more = len(held) - 2 * LOST_RANGES_MAX
                found[plan.log] = held if more <= 0 else [held[0], *held[more + 1 :]]
        return found

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return _encode({plan.log: (plan.epoch, plan.head_seq) for plan in self._plans()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        pace = self._options.pace
        if pace.rows is not None:
            return ReadMaxRows(pace.rows)
        if pace.size_bytes is not None:
            return ReadMaxBytes(pace.size_bytes)
        if pace.files is not None:
            return ReadMaxFiles(pace.files)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._cap = {plan.log: (plan.epoch, plan.head_seq) for plan in self._plans()}

    def _pace(self, limit: ReadLimit) -> Pace:
        """What Spark asks for, and what the options ask for beside it."""
        pace = self._options.pace
        match limit:
            case ReadMaxRows():
                return msgspec.structs.replace(pace, rows=limit.max_rows)
            case ReadMaxBytes():
                return msgspec.structs.replace(pace, size_bytes=limit.max_bytes)
            case ReadMaxFiles():
                return msgspec.structs.replace(pace, files=limit.max_files)
        return pace

    def _plans(self, *, extents: bool = False) -> list[LogPlan]:
        return self._catalog.plans(self._options.wanted.logs, extents=extents)

    def _backlog(self, plan: LogPlan, before: dict[str, Position]) -> Backlog | None:
        """What there is to read of a log; None when it is not to be read at all."""
        wanted = self._options.wanted
        head = min(plan.head_seq, wanted.last)
        if self._cap is not None:
            epoch, seq = self._cap.get(plan.log, (0, 0))
            if epoch != plan.epoch:
                return None  # it came, or came anew, after the query was told how far to go
            head = min(head, seq)
        after = max(plan.floor_seq, wanted.first) - 1
        if known := before.get(plan.log):
            epoch, seq = known
            if epoch == plan.epoch:
                after = seq
            elif self._options.fail_on_loss:
                raise DataLost(_recreated(plan.log))
        return Backlog(plan, after, max(head, after))

    # --- reading ---------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        before, lost_before, wants = _decode(start), _lost_before(start), list[Want]()
        moved = {name: at for name, at in _decode(end).items() if at != before.get(name)}
        plans = {plan.log: plan for plan in self._plans(extents=True)} if moved else {}
        for name, (epoch, last) in moved.items():
            known = before.get(name)
            plan = plans.get(name)
            if plan is None or plan.epoch != epoch:
                self._lose(f'"{name}" was deleted before it was read')
                continue
            same = known is not None and known[0] == epoch
            first = (known[1] if known is not None and same else 0) + 1
            first = max(first, self._options.wanted.first)
            if same:
                self._check_lost(plan, first, last, lost_before.get(name, ranges.EMPTY))
            if first <= last:
                wants.append(Want(plan, first, last))
        placed = self._catalog.placed(want.plan for want in wants)
        served = self._options.where.url is not None
        parts = split([_clip(want) for want in wants], placed, self._options.wanted, served=served)
        return bundled(parts, cores())

    def _check_lost(self, plan: LogPlan, first: int, last: int, before: Ranges) -> None:
        """Refuse to pass over what was lost since the query knows the log."""
        if plan.floor_seq > first:
            upto = min(plan.floor_seq - 1, last)
            self._lose(f'records {first} to {upto} of "{plan.log}" are gone')
        lost = plan.lost if isinstance(plan.lost, list) else []
        for spans in ranges.overlap(ranges.from_pairs(lost), first, last):
            for low, high in ranges.outside(before, *spans):
                self._lose(f'records {low} to {high} of "{plan.log}" are gone')

    def _lose(self, what: str) -> None:
        if self._options.fail_on_loss:
            raise DataLost(f'{what}; set failOnDataLoss to "false" to go on with what is left')

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._options, partition)


def _clip(want: Want) -> Want:
    """Nothing lies below what is left of a log."""
    first = max(want.first, min(want.plan.earliest_seq, want.last + 1))
    return msgspec.structs.replace(want, first=first)


def _recreated(name: str) -> str:
    return (
        f'"{name}" was deleted and made anew since it was last read; '
        'set failOnDataLoss to "false" to read the new one from its start'
    )
