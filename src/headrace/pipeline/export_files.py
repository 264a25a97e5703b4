"""The files of an export: rows in the columns of the format. Runs in tasks; knows no session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from headrace.pipeline.export_target import ExportPart, ExportTarget
from headrace.pipeline.limits import EXPORT_GROUP_BYTES, EXPORT_GROUP_ROWS

_TEXTS = ("key", "tag", "node", "media", "data", "meta")


def _schema(time: pa.DataType) -> pa.Schema:
    columns = [("log", pa.string()), ("seq", pa.int64()), ("ts", time)]
    return pa.schema([*columns, *((name, pa.string()) for name in _TEXTS)])


_PARQUET = _schema(pa.timestamp("us", tz="UTC"))
_CSV = _schema(pa.string())


def write_part(target: ExportTarget, at: int, batches: Iterable[pa.RecordBatch]) -> ExportPart:
    """A file with these rows at the target."""
    name = target.part(at)
    with target.open(name) as path:
        rows = _WRITERS[target.format](path, batches)
        size_bytes = path.stat().st_size
    return ExportPart(name, rows, size_bytes)


def _write_parquet(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    with pq.ParquetWriter(path, _PARQUET, compression="zstd") as writer:
        for table in _grouped(batches):
            writer.write_table(table.cast(_PARQUET), row_group_size=EXPORT_GROUP_ROWS)
    return int(pq.read_metadata(path).num_rows)


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as Spark sends them are smaller than row groups are to be."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows, size_bytes = rows + len(batch), size_bytes + batch.nbytes
        if rows >= EXPORT_GROUP_ROWS or size_bytes >= EXPORT_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _write_csv(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    with pacsv.CSVWriter(path, _CSV) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(_CSV))
            rows += len(batch)
    return rows


def _write_lines(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for batch in batches:
            file.writelines(f"{line}\n" for line in batch.column(0).to_pylist())
            rows += len(batch)
    return rows


_WRITERS: dict[str, Callable[[Path, Iterable[pa.RecordBatch]], int]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "jsonl": _write_lines,
}
