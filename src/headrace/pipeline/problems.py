"""What an audit found, by kind: how often, and a few examples with their places.

A store can be broken in a million places. Tasks count them and keep examples, so neither the driver
nor whoever reads the report gets a million lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headrace.pipeline.errors import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ProblemKind(StrEnum):
    """Kinds of problems, the worst first: lost records, then what says where they are, then what
    can be made again from them.
    """

    SEGMENT = "segments that are missing or damaged"
    MISSING = "seqs that are missing and not marked as dead"
    TWICE = "records that are there twice, or in the wrong order of segments"
    ROWS = "rows of segments that are not what they should be"
    PUBLISHED = "manifests, marks and plans that are missing, damaged or wrong"
    COMPANION = "indexes and tags of segments that are missing, damaged or wrong"
    BUILD = "builds of which something is missing, damaged or wrong"
    POSTINGS = "search indexes that say something else than the records"
    ROLLUP = "rollups that say something else than the records"


class Tally(msgspec.Struct):
    """Problems by kind."""

    examples_max: int
    counts: dict[ProblemKind, int] = msgspec.field(default_factory=dict)
    examples: dict[ProblemKind, list[str]] = msgspec.field(default_factory=dict)

    def add(self, kind: ProblemKind, what: str, times: int = 1) -> None:
        """What Arrow says about bytes may have several lines; a problem has one."""
        self.counts[kind] = self.counts.get(kind, 0) + times
        held = self.examples.setdefault(kind, [])
        if len(held) < self.examples_max:
            held.append(" ".join(what.split()))

    def join(self, other: Tally) -> None:
        for kind, number in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + number
            held = self.examples.setdefault(kind, [])
            held += other.examples[kind][: self.examples_max - len(held)]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def lines(self) -> Iterator[str]:
        """A line for each kind, and below it one for each example."""
        for kind in ProblemKind:
            if kind in self.counts:
                number, held = self.counts[kind], self.examples[kind]
                more = "" if len(held) == number else f", {len(held)} of them"
                yield f"{kind}: {number}{more}"
                yield from (f"  {what}" for what in held)


Tell = Callable[[dict[str, Any]], tuple[ProblemKind, str] | None]
"""The kind of problem that a row is, and what to say of it; nothing if it is none."""


def tally_rows(rows: DataFrame, tell: Tell, examples_max: int) -> Tally:
    """The problems that these rows are; each task brings a few examples of each kind."""
    from pyspark.sql import functions as F  # noqa: N812

    found = rows.mapInArrow(_Tallying(tell, examples_max), "kind string, what string, n long")
    # In one row: when that is lost on its way, nobody takes it for no problems.
    row = found.agg(F.collect_list(F.struct("kind", "what", "n")).alias("found")).first()
    if row is None:
        raise JobFailed("the problems that were found were lost on their way to the driver")
    tally = Tally(examples_max)
    for kind, what, n in row.found:
        tally.join(
            Tally(examples_max, {ProblemKind(kind): n}, {ProblemKind(kind): what.splitlines()})
        )
    return tally


class _Tallying:
    """The task that counts problems."""

    def __init__(self, tell: Tell, examples_max: int) -> None:
        self._tell = tell
        self._examples_max = examples_max

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(self._examples_max)
        for batch in batches:
            for row in batch.to_pylist():
                told = self._tell(row)
                if told is not None:
                    tally.add(*told)
        kinds = list(tally.counts)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([str(kind) for kind in kinds], pa.string()),
                pa.array(["\n".join(tally.examples[kind]) for kind in kinds], pa.string()),
                pa.array([tally.counts[kind] for kind in kinds], pa.int64()),
            ],
            ["kind", "what", "n"],
        )
