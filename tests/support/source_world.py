"""A store of any shape with a server beside it that has more, as the data source sees both.

No Spark and no process: readers are asked as Spark asks them, and a double of the client stands for
the server.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from headrace.client.http import RecordPage
from headrace.core import ranges
from headrace.formats.log_plan import LogPlan
from headrace.formats.segment import SCHEMA
from headrace.spark import catalog, rows
from headrace.spark.options import parse_read
from headrace.spark.reading import HeadraceReader
from headrace.spark.streaming import HeadraceStreamReader, Offset
from support.segment_store import START_MS, SegmentStore, payloads

URL = "http://127.0.0.1:1"
Found = list[tuple[str, int]]


class SourceWorld:
    """What is sealed, and what only the server has."""

    def __init__(self, shelf: SegmentStore) -> None:
        self.shelf = shelf
        self.tail: dict[str, dict[int, bytes]] = {}
        """Records that are in no segment yet."""
        self.page_rows = 7
        self.owner: str | None = None
        """Whose store the server says it has."""
        self._indexes: dict[str, list[dict[str, int]]] = {}
        self.asked: set[tuple[str, int]] = set()
        """Records that the server was asked for."""

    def append(self, name: str, count: int) -> None:
        """Records that are not sealed."""
        held = self.tail.setdefault(name, {})
        for data in payloads(count, name, 1):
            held[self.head(name) + 1] = data
        self.shelf._id(name)

    def seal(self, group_rows: int) -> None:
        """What only the server had is in a segment now."""
        held = {name: [*records.values()] for name, records in self.tail.items() if records}
        self.tail = {}
        if held:
            self.shelf.seal(held, group_rows=group_rows)

    def head(self, name: str) -> int:
        return max(self.tail.get(name) or [0], default=0) or self.shelf.heads.get(name, 0)

    @property
    def names(self) -> list[str]:
        return [name for name in self.shelf.ids if name not in self.shelf.dropped]

    def sealed(self) -> Found:
        return sorted(self.shelf.live())

    def live(self) -> Found:
        """All that is to be found, with a server."""
        more = [(name, seq) for name, held in self.tail.items() for seq in held]
        return sorted([*self.sealed(), *more])

    def extents(self, name: str) -> list[tuple[int, int]]:
        """What of a log lies in each segment."""
        found: list[tuple[int, int]] = []
        for segment in self.shelf.manifest.segments:
            if segment.index not in self._indexes:
                index = pq.read_table(self.shelf.objects.open(segment.index))
                self._indexes[segment.index] = index.to_pylist()
            pieces = [
                row for row in self._indexes[segment.index] if row["log_id"] == self.shelf.ids[name]
            ]
            if pieces:
                found.append((pieces[0]["first_seq"], pieces[-1]["last_seq"]))
        return found

    # --- what readers find -----------------------------------------------------------------------

    @contextmanager
    def served(self) -> Iterator[None]:
        """Whoever asks a server asks this one."""
        double = lambda *_: Double(self)  # noqa: E731
        with patch.object(catalog, "Server", double), patch.object(rows, "Server", double):
            self.asked.clear()
            yield

    def options(self, how: str, **more: Any) -> dict[str, str]:
        where = {"url": URL, "path": str(self.shelf.place.data_dir)}
        given = {name: where[name] for name in how.split()} | more
        return {name: str(value) for name, value in given.items()}

    def stream(self, how: str, **more: Any) -> HeadraceStreamReader:
        return HeadraceStreamReader(parse_read(self.options(how, **more)))

    def batch(self, how: str, meanwhile: Callable[[], object] = int, **more: Any) -> Found:
        """What a query finds; something may happen between its plan and its tasks."""
        with self.served():
            reader = HeadraceReader(parse_read(self.options(how, columns="log,seq", **more)))
            parts = reader.partitions()
            meanwhile()
            return sorted(_read(reader, parts))

    def available_now(
        self, how: str, start: Offset | None, **more: Any
    ) -> tuple[list[Found], Offset]:
        """The batches of a query that ends when all is read, and where it ends."""
        batches: list[Found] = []
        with self.served():
            reader = self.stream(how, columns="log,seq", **more)
            reader.prepareForTriggerAvailableNow()
            offset = reader.initialOffset() if start is None else start
            limit = reader.getDefaultReadLimit()
            while (end := reader.latestOffset(offset, limit)) != offset:
                _check_moved(offset, end)
                batches.append(_read(reader, reader.partitions(offset, end)))
                assert len(batches) <= len(self.shelf.all) + 1000, "it never ends"
                offset = json.loads(json.dumps(end))  # as a checkpoint keeps it
        return batches, offset


def _check_moved(before: Offset, after: Offset) -> None:
    """No log goes back, and none is forgotten."""
    for name, at in before["logs"].items():
        there = after["logs"][name]
        assert (there["epoch"], there["seq"]) >= (at["epoch"], at["seq"])


def _read(reader: Any, parts: Sequence[InputPartition]) -> Found:
    """As tasks do it, which get everything in bytes."""
    found: Found = []
    for raw in [pickle.dumps((reader, part)) for part in parts]:
        task, part = pickle.loads(raw)
        for batch in task.read(part):
            assert len(batch)
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    assert len(set(found)) == len(found), "read twice"
    return found


class Double:
    """What the data source calls of a server."""

    def __init__(self, world: SourceWorld) -> None:
        self._world = world
        self.store = world.owner

    def __enter__(self) -> Double:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def logs(self, names: Sequence[str], *, extents: bool) -> list[LogPlan]:
        return [self._plan(name, extents) for name in names if name in self._world.names]

    def logs_of(self, prefix: str, *, extents: bool) -> list[LogPlan]:
        return self.logs([n for n in self._world.names if n.startswith(prefix)], extents=extents)

    def some_names(self) -> list[str]:
        return self._world.names

    def page(self, name: str, after: int, upto: int, epoch: int) -> RecordPage:
        world = self._world
        assert name in world.names
        assert epoch == world.shelf.ids[name]
        world.asked |= {(name, seq) for seq in range(after + 1, upto + 1)}
        seqs = [seq for log, seq in world.live() if log == name and after < seq <= upto]
        rest = seqs[world.page_rows :]
        seqs = seqs[: world.page_rows]
        held = [
            {"log": name, "log_id": epoch, "seq": seq, "ts": START_MS, "data": b"{}"}
            for seq in seqs
        ]
        table = pa.Table.from_pylist(held, schema=SCHEMA)
        return RecordPage(table, seqs[-1] if rest else upto, world.head(name), epoch, None)

    def _plan(self, name: str, extents: bool) -> LogPlan:
        world, shelf = self._world, self._world.shelf
        head = world.head(name)
        seqs = [seq for log, seq in world.live() if log == name]
        plan = LogPlan(
            log=name,
            epoch=shelf.ids[name],
            owner="topics",
            media=None,
            head_seq=head,
            earliest_seq=seqs[0] if seqs else head + 1,
            floor_seq=1,
            count=len(seqs),
            bytes=len(seqs) * 20,
        )
        if extents:
            there = sorted({seq for log, seq in shelf.all if log == name} | {*seqs})
            plan.sealed = world.extents(name)
            plan.deleted = [*ranges.pairs(shelf.dead.get(name, ()))]
            plan.lost = [*ranges.outside(ranges.from_seqs(there), 1, head)]
        return plan
