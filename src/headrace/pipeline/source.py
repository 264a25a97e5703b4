"""A Spark stream of segments that wait to be indexed.

Its offset is a version of the manifest and its rows are numbers of segments; the records in them
are read by the tasks that index them. A version with nothing to do makes no batch. Spark remembers
how far it came, but nothing depends on it: what waits is a function of the newest manifest.

Spark loads this module in several processes of its own for every query: it imports as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipeline.index_backlog import IndexBacklog, IndexBacklogFinder
    from headrace.pipeline.store_location import StoreLocation

NAME = "headrace_segments"
SCHEMA = "number long, rows long"
VERSION = "version"


class SegmentsSource(DataSource):
    """`spark.readStream.format("headrace_segments").option("data_dir", …)`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> SegmentsReader:  # noqa: N802
        return SegmentsReader(place_of(self.options))


def place_of(options: Any) -> StoreLocation:
    from headrace.pipeline.store_location import StoreLocation

    return StoreLocation(Path(options.get("data_dir")), options.get("objects") or None)


class Waiting(InputPartition):
    """The segments of one batch."""

    def __init__(self, numbers: list[int], rows: list[int]) -> None:
        super().__init__(None)
        self.numbers = numbers
        self.rows = rows


class SegmentsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches; runs in a process of Spark's for as long as the query does."""

    def __init__(self, place: StoreLocation) -> None:
        self._place = place
        self._pending: IndexBacklogFinder | None = None
        self._last: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {VERSION: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        work = self._look()
        self._last = {VERSION: work.manifest.version if work.units else 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if self._last is not None:
            return {VERSION: max(self._last[VERSION], start[VERSION])}
        work = self._look()
        return {VERSION: max(work.manifest.version, start[VERSION])} if work.units else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Waiting]:
        segments = [segment for unit in self._look().units for segment in unit.segments]
        return [Waiting([s.number for s in segments], [s.rows for s in segments])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, Waiting)
        columns = [pa.array(c, pa.int64()) for c in (partition.numbers, partition.rows)]
        yield pa.RecordBatch.from_arrays(columns, ["number", "rows"])

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass

    def _look(self) -> IndexBacklog:
        from headrace.pipeline.index_backlog import IndexBacklogFinder

        if self._pending is None:
            self._pending = IndexBacklogFinder(self._place)
        return self._pending.look()

    def __getstate__(self) -> dict[str, Any]:
        return {"_place": self._place, "_pending": None, "_last": self._last}
