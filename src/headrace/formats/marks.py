"""Marks: what is dead in the segments, so that others may leave it out when they rewrite them.

A Parquet file of rows (kind, log_id, first, last). Kind `live`: logs with these ids exist, or may
yet; rows of any other log are dead. Kind `dead`: of this log, records with these seqs are dead.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from headrace.core import ranges
from headrace.core.errors import Corrupt
from headrace.core.ranges import EMPTY, Ranges
from headrace.formats.table import encode_table, read_table

FORMAT = "1"
LIVE, DEAD = "live", "dead"
ID_MAX = (1 << 63) - 1
"""Ends the last range of live ids: a log that is created later is no dead one."""

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("log_id", pa.int64()),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
    ],
    metadata={"headrace.format": FORMAT},
)


class Marks(msgspec.Struct, frozen=True):
    """What is dead, as of one moment; more may have died since."""

    live: Ranges = (1, ID_MAX)
    """Ids of logs that exist, or may yet."""
    dead: dict[int, Ranges] = {}
    """Log → its dead seqs; a log without any is not listed."""

    def is_dead(self, log: int, seq: int) -> bool:
        return not ranges.contains(self.live, log) or ranges.contains(
            self.dead.get(log, EMPTY), seq
        )


def _rows(marks: Marks) -> Iterator[tuple[str, int | None, int, int]]:
    for first, last in ranges.pairs(marks.live):
        yield LIVE, None, first, last
    for log in sorted(marks.dead):
        for first, last in ranges.pairs(marks.dead[log]):
            yield DEAD, log, first, last


def encode_marks(marks: Marks) -> bytes:
    return encode_table(SCHEMA, list(_rows(marks)))


def open_marks(raw: bytes, where: str) -> pa.Table:
    """The rows of marks as they are stored."""
    try:
        table = read_table(raw)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(where, 0, f"not marks: {error}") from None
    if not table.schema.equals(SCHEMA, check_metadata=True):
        raise Corrupt(where, 0, "its columns are not those of marks")
    return table


def decode_marks(raw: bytes, where: str) -> Marks:
    table = open_marks(raw, where)
    live: list[int] = []
    dead: dict[int, list[int]] = {}
    for kind, log, first, last in zip(*(c.to_pylist() for c in table.columns), strict=True):
        held = live if kind == LIVE else dead.setdefault(log, [])
        if kind not in (LIVE, DEAD) or first > last or (held and first <= held[-1]):
            raise Corrupt(where, 0, f"not a mark: {kind} {log} {first} {last}")
        held += first, last
    return Marks(live, dict(dead))
