"""Index companions of segments: what their files hold, and in which form.

The companions of one segment, or of several that were merged, are a build: a descriptor (JSON) and
one Parquet file for each family that has rows. Rows of all logs are in the same files, sorted by
`k`: the log's id in eight bytes, big-endian, then the name of a field, NUL, and a value.
Beside the families that are looked up by value lies a sorted list of hashes of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from headrace.core.errors import Corrupt

FORMAT = 1

KEY_VALUE_BYTES_MAX = 1024
"""Longer values are in a key with their beginning and a digest; statistics hold keys whole."""
KEY_VALUE_KEPT_BYTES = 1000
KEY_PREFIX_BYTES_MAX = 900
"""Longer prefixes of values may reach into what their keys leave out."""
_CUT = b"\xff"
"""No UTF-8 has this byte."""

NUL = b"\0"
Hashes = NDArray[np.uint64]


class Family(StrEnum):
    """A kind of companion."""

    LEX = "lex"
    """The keys of records."""
    EXACT = "exact"
    """Values of fields, presence of fields, and all records."""
    TYPED = "typed"
    """Numbers, dates and bools in the order of records."""
    TEXT = "text"
    """Words of text fields, with positions."""
    ROLL = "roll"
    """Rollups."""


HASHED = (Family.LEX, Family.EXACT, Family.TEXT)

_K = pa.field("k", pa.binary(), nullable=False)
_POSTINGS = [
    _K,
    pa.field("n", pa.int64(), nullable=False),
    pa.field("first", pa.int64(), nullable=False),
    pa.field("last", pa.int64(), nullable=False),
    pa.field("post", pa.binary()),
]
SCHEMAS = {
    Family.LEX: pa.schema(_POSTINGS),
    Family.EXACT: pa.schema(_POSTINGS),
    Family.TYPED: pa.schema(
        [
            _K,
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("i64", pa.int64()),
            pa.field("f64", pa.float64()),
        ]
    ),
    Family.TEXT: pa.schema([*_POSTINGS, pa.field("pos", pa.binary(), nullable=False)]),
    Family.ROLL: pa.schema(
        [
            _K,
            pa.field("start", pa.int64(), nullable=False),
            pa.field("dims", pa.string(), nullable=False),
            pa.field("count", pa.int64(), nullable=False),
            pa.field("sum", pa.float64()),
            pa.field("min", pa.float64()),
            pa.field("max", pa.float64()),
            pa.field("hist", pa.binary()),
        ]
    ),
}
ROW_GROUP_ROWS = {
    Family.LEX: 8192,
    Family.EXACT: 8192,
    Family.TYPED: 65_536,
    Family.TEXT: 2048,
    Family.ROLL: 8192,
}
ROW_GROUP_BYTES = 256 << 10
"""Of postings and positions: readers take whole row groups, and long lists lie beside short."""

_BY_POSTINGS: dict[str, Any] = {
    "use_dictionary": False,
    "write_statistics": ["k"],
    "column_encoding": {
        "k": "DELTA_BYTE_ARRAY",
        "n": "DELTA_BINARY_PACKED",
        "first": "DELTA_BINARY_PACKED",
        "last": "DELTA_BINARY_PACKED",
    },
}
_WRITE: dict[Family, dict[str, Any]] = {
    Family.LEX: _BY_POSTINGS,
    Family.EXACT: _BY_POSTINGS,
    Family.TYPED: {
        "use_dictionary": ["k"],
        "write_statistics": ["k", "seq", "i64", "f64"],
        "column_encoding": {"seq": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED"},
    },
    Family.TEXT: _BY_POSTINGS,
    Family.ROLL: {"use_dictionary": ["k", "dims"], "write_statistics": ["k", "start"]},
}


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a build."""

    family: str
    """A family, or with `.hash` behind it the hashes of its keys."""
    name: str
    rows: int
    file_bytes: int
    checksum: str
    """XXH3-64 of the bytes, in hex."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log in a build: its records, and what was indexed of them."""

    log: int
    hash: str
    """Of the plan."""
    spans: tuple[tuple[int, int], ...]
    """The seqs that were indexed, first and last, ascending; outside of them nothing is known."""
    rows: int
    exact: tuple[str, ...] = ()
    """The fields whose values are in `exact`: of typed ones, only those whose values repeat."""
    several: tuple[str, ...] = ()
    """The fields of which some record has more than one value."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A build."""

    format: int = FORMAT
    segments: tuple[int, ...]
    level: int = 0
    plans: int
    """The generation of plans it was made by."""
    rows: int
    """Of the segments; the keys of all of them are in `lex`."""
    parts: tuple[Part, ...]
    """The logs with a plan, by ascending id."""
    files: tuple[File, ...]

    def file(self, family: str) -> File | None:
        return next((f for f in self.files if f.family == family), None)

    @property
    def file_bytes(self) -> int:
        return sum(f.file_bytes for f in self.files)


def encode_descriptor(descriptor: Descriptor) -> bytes:
    return msgspec.json.encode(descriptor) + b"\n"


def decode_descriptor(raw: bytes, where: str) -> Descriptor:
    try:
        descriptor = msgspec.json.decode(raw, type=Descriptor)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not a build: {error}") from None
    if descriptor.format != FORMAT:
        raise Corrupt(where, 0, f"format {descriptor.format} is not one this version reads")
    return descriptor


def encode_family(family: Family, tables: Iterable[pa.Table]) -> tuple[pa.Buffer, int]:
    """The Parquet file of a family, from tables that are sorted and come in order; and its rows."""
    sink = pa.BufferOutputStream()
    rows = 0
    with pq.ParquetWriter(
        sink,
        SCHEMAS[family],
        compression="zstd",
        compression_level=1,
        store_schema=False,
        **_WRITE[family],
    ) as writer:
        for table in tables:
            for group in _row_groups(table.combine_chunks(), ROW_GROUP_ROWS[family]):
                rows += len(group)
                writer.write_table(group, row_group_size=len(group))
    return sink.getvalue(), rows


def _row_groups(table: pa.Table, rows: int) -> Iterable[pa.Table]:
    """The table in row groups of at most so many rows and not much more than the bytes allowed."""
    sizes = np.zeros(len(table), np.int64)
    for name in ("post", "pos"):
        if name in table.column_names:
            lengths = pc.fill_null(pc.binary_length(table.column(name)), 0)
            sizes += lengths.to_numpy()
    ends = np.cumsum(sizes)
    start = 0
    while start < len(table):
        before = int(ends[start - 1]) if start else 0
        full = int(np.searchsorted(ends, before + ROW_GROUP_BYTES, "right"))
        stop = min(start + rows, max(full, start + 1), len(table))
        yield table.slice(start, stop - start)
        start = stop


def log_key(log: int) -> bytes:
    """Begins the keys of a log; as a key of `exact`: all its records."""
    return log.to_bytes(8, "big")


def field_key(log: int, name: str) -> bytes:
    """As a key of `exact`: the records that have the field; of `typed`: its values."""
    return log_key(log) + name.encode()


def value_key(log: int, name: str, value: bytes) -> bytes:
    """A value of a field, as `short`, `sortable_int` or `sortable_float` make it."""
    return field_key(log, name) + NUL + value


def short(value: bytes) -> bytes:
    """A value as it is in keys."""
    if len(value) <= KEY_VALUE_BYTES_MAX:
        return value
    return value[:KEY_VALUE_KEPT_BYTES] + _CUT + xxh3_128_digest(value)


def is_cut(value: bytes) -> bool:
    """Whether a value in a key is only the beginning of the one it stands for."""
    return len(value) > KEY_VALUE_BYTES_MAX or _CUT in value


def shorts(values: pa.Array) -> pa.Array:
    """The same for an array of binary."""
    if not len(values) or pc.max(pc.binary_length(values)).as_py() <= KEY_VALUE_BYTES_MAX:
        return values
    return pa.array([short(value) for value in values.to_pylist()], pa.binary())


def upper(prefix: bytes) -> bytes | None:
    """The least key above all that start with this; None when there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def sortable(values: NDArray[np.int64] | NDArray[np.float64]) -> pa.Array:
    """Numbers as eight bytes each that sort as they do."""
    bits, sign = values.view(np.uint64), np.uint64(1 << 63)
    falling = (bits & sign != 0) & (values.dtype == np.float64)
    bits = np.where(falling, ~bits, bits ^ sign)
    raw = pa.py_buffer(np.ascontiguousarray(bits.astype(">u8")))
    fixed = pa.Array.from_buffers(pa.binary(8), len(values), [None, raw])
    return fixed.cast(pa.binary())


def sortable_one(value: int | float) -> bytes:
    one = np.array([value], np.float64 if isinstance(value, float) else np.int64)
    found: bytes = sortable(one)[0].as_py()  # type: ignore[arg-type]
    return found


def hash_key(key: bytes) -> int:
    return xxh3_64_intdigest(key)


def encode_hashes(keys: Iterable[pa.Array]) -> pa.Buffer:
    """Hashes of keys, sorted, as unsigned 64-bit numbers."""
    parts = [
        np.fromiter(map(xxh3_64_intdigest, part.to_pylist()), np.uint64, len(part)) for part in keys
    ]
    hashes = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    hashes.sort()
    return pa.py_buffer(hashes.astype("<u8").tobytes())


def decode_hashes(raw: Any) -> Hashes:
    return np.frombuffer(raw, "<u8")


def has_hash(hashes: Hashes, key: bytes) -> bool:
    """False when the key is certainly not there."""
    wanted = np.uint64(hash_key(key))
    at = int(np.searchsorted(hashes, wanted))
    return at < len(hashes) and bool(hashes[at] == wanted)
