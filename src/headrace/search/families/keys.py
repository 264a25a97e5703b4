"""Keys of records: which records have one, and which keys a log has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.formats.companion import (
    KEY_VALUE_BYTES_MAX,
    Family,
    is_cut,
    log_key,
    short,
    shorts,
    upper,
)
from headrace.formats.leb128 import Ints
from headrace.search.companions import Companions, NotIndexed
from headrace.search.extraction import Column
from headrace.search.families.groups import FamilyRows, PlanRecords
from headrace.search.families.postings import POSTINGS, value_rows


def lex_key(log: int, key: str) -> bytes:
    """A key of records."""
    return log_key(log) + short(key.encode())


def key_piece(records: PlanRecords, keys: pa.Array) -> FamilyRows:
    """The keys of records that have one."""
    rows = np.flatnonzero(keys.is_valid())
    values = shorts(keys.drop_null().cast(pa.binary()))
    return value_rows(records, b"", Column(rows, values, False), values.dictionary_encode())


class RecordKey(NamedTuple):
    """A key of records: how many have it, the first and the last of them."""

    key: bytes
    n: int
    first: int
    last: int


class KeyReader:
    """Reads the keys of one log from one build."""

    def __init__(self, companions: Companions, log: int) -> None:
        self._companions = companions
        self._log = log

    def find(self, key: str) -> Ints:
        """The records with this key."""
        return self._companions.postings(Family.LEX, lex_key(self._log, key))

    def postings(self, key: RecordKey) -> Ints:
        """The records with a key that was read."""
        return self._companions.postings(Family.LEX, log_key(self._log) + key.key)

    def above(self, after: str | None) -> Iterator[RecordKey]:
        """The keys above one, ascending; `NotIndexed` when one is not in the build whole."""
        raw = b"" if after is None else after.encode("utf-8", "surrogatepass")
        if len(raw) > KEY_VALUE_BYTES_MAX:
            raise NotIndexed("keys that long are not in the build whole")
        for key in self.short_keys(raw):
            if is_cut(key.key):
                raise NotIndexed("keys that long are not in the build whole")
            if after is None or key.key != raw:
                yield key

    def short_keys(self, after: bytes = b"") -> Iterator[RecordKey]:
        """The keys above one, ascending; their bytes as `short` makes them."""
        file = self._companions.file(Family.LEX)
        low = log_key(self._log)
        if file is not None:
            for table in file.rows(low + after, upper(low), POSTINGS[:-1]):
                for k, *row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                    if k > low + after or not after:
                        yield RecordKey(k[len(low) :], *row)
