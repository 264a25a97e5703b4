"""What a build is made of: files that are stored, and parts that are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from headrace.formats.companion import HASHED, Family, File, Part, encode_family, encode_hashes

Write = Callable[[str, pa.Buffer], str]
"""Stores one file of a build, given what it is (`exact`, `exact.hash`…), and says its name."""


def store(family: Family, tables: Iterable[pa.Table], write: Write) -> Iterator[File]:
    """The files of a family, from sorted tables that come in order."""
    keys: list[pa.Array] = []

    def watched() -> Iterator[pa.Table]:
        for table in tables:
            if family in HASHED:
                keys.extend(table.column("k").chunks)
            yield table

    content, rows = encode_family(family, watched())
    yield _file(family, content, rows, write)
    if family in HASHED:
        yield _file(f"{family}.hash", encode_hashes(keys), rows, write)


def _file(family: str, content: pa.Buffer, rows: int, write: Write) -> File:
    return File(
        family=str(family),
        name=write(str(family), content),
        rows=rows,
        file_bytes=content.size,
        checksum=xxh3_64_hexdigest(memoryview(content)),
    )


def join_parts(parts: Sequence[Part]) -> Part:
    """One part of several of the same log and plan."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted(span for part in parts for span in part.spans):
        if spans and spans[-1][1] == first - 1:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    exact = set(parts[0].exact).intersection(*(part.exact for part in parts))
    return Part(
        log=parts[0].log,
        hash=parts[0].hash,
        spans=tuple(spans),
        rows=sum(part.rows for part in parts),
        exact=tuple(sorted(exact)),
        several=tuple(sorted({name for part in parts for name in part.several})),
    )
