"""Blocks and payloads: columns of one length, and JSON in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from headrace.core.record import Block

_json = msgspec.json.Decoder(msgspec.Raw)


def is_json(raw: bytes) -> bool:
    """Whether this is one JSON value in UTF-8, as surfaces accept it."""
    try:
        _json.decode(raw)
        if not raw.isascii():
            raw.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def bad_json(raws: Iterable[bytes | None]) -> Iterator[int]:
    """The indices of those that are there and are not JSON."""
    return (at for at, raw in enumerate(raws) if raw is not None and not is_json(raw))


def block_problems(block: Block) -> Iterator[str]:
    """What is wrong with a block as an append journals it; nothing more is said of a bad shape."""
    count = block.last - block.first + 1
    if count < 1 or block.first < 1 or block.seqs is not None or block.stamps is not None:
        yield f"seqs {block.first} to {block.last} are not those of one append"
        return
    if len(block.ends) != 4 * count:
        yield f"{len(block.ends)} bytes of payload ends for {count} records"
        return
    cuts = list(block.cuts())
    if cuts != sorted(cuts) or not block.base <= cuts[0] or cuts[-1] != len(block.data):
        yield "payload ends do not cut the payload bytes into records"
        return
    columns = ("metas", "tags", "nodes", "keys")
    for title, column in ((name, getattr(block, name)) for name in columns):
        if column is not None and len(column) != count:
            yield f"{len(column)} {title} for {count} records"
            return
    spans = pairwise((block.base, *cuts))
    if block.media is None:
        for at in bad_json(bytes(block.data[start:stop]) for start, stop in spans):
            yield f"data of seq {block.first + at} is not JSON"
    for at in bad_json(block.metas or ()):
        yield f"meta of seq {block.first + at} is not JSON"
