"""The windows of a build as arrays: read once, then kept as long as there is room."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.formats.companion import Family, roll_key
from headrace.formats.leb128 import Ints
from headrace.search.companions import Companions
from headrace.search.histogram import Histograms, decode_many

Numbers = NDArray[np.float64]
Dims = tuple[Any, ...]

_COLUMNS = ("k", "start", "dims", "count", "sum", "min", "max", "hist")
_DIMS_BYTES = 200
"""What a combination of dimensions takes as objects."""


class Rolled(NamedTuple):
    """The windows of one measure, one row for each window and combination of dimensions."""

    starts: Ints
    codes: Ints
    """Which of `dims` a row has."""
    dims: list[Dims]
    counts: Ints
    sums: Numbers
    mins: Numbers
    maxs: Numbers
    histograms: Histograms

    @property
    def nbytes(self) -> int:
        arrays = (self.starts, self.codes, self.counts, self.sums, self.mins, self.maxs)
        held = sum(array.nbytes for array in arrays) + self.histograms.nbytes
        return held + _DIMS_BYTES * len(self.dims)


def read_rolled(
    companions: Companions, log: int, rollup: str, interval_ms: int, measure: str
) -> Rolled | None:
    """What a build has of a measure; None when it has nothing."""
    key = roll_key(log, rollup, interval_ms, measure)
    held: Rolled | None = companions.cache.get((Family.ROLL, key))
    if held is not None:
        companions.used(Family.ROLL)
        return held
    file = companions.file(Family.ROLL)
    tables = list(file.rows(key, key + b"\0", _COLUMNS)) if file is not None else []
    if not tables:
        return None
    found = _rolled(pa.concat_tables(tables).combine_chunks())
    companions.cache.put((Family.ROLL, key), found, found.nbytes)
    return found


def _rolled(table: pa.Table) -> Rolled:
    dims = table.column("dims").chunk(0).dictionary_encode()
    return Rolled(
        table.column("start").to_numpy(),
        dims.indices.to_numpy().astype(np.int64),
        [tuple(msgspec.json.decode(text)) for text in dims.dictionary.to_pylist()],
        table.column("count").to_numpy(),
        table.column("sum").to_numpy(),
        table.column("min").to_numpy(),
        table.column("max").to_numpy(),
        decode_many(table.column("hist").chunk(0)),
    )
