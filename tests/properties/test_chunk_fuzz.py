"""Chunks of Arrow that somebody damaged: they are refused, or are no more than their bytes."""

from __future__ import annotations

import string
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from headrace.core.errors import Refused
from headrace.surfaces.bulk.chunks import ChunkLimits, parse_chunk

LIMITS = ChunkLimits(records=100, record_bytes=4096, meta_bytes=256, tag_bytes=64, node_bytes=64)
GOOD = ("1", '"ü"', "[1,[2]]", '{"a":null}')
WORDS = (*GOOD, "", "{", "x" * 70)
NUMBERS = (0, 1, -1, 2, 8, 127, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1)
TYPES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def table(dice: Random) -> pa.Table:
    rows = dice.choice((0, 1, 2, 5, 30))
    columns: dict[str, pa.Array] = {}
    for name in ("data", *dice.sample(("meta", "tag", "node", "key", "x"), dice.randint(0, 2))):
        nulls, words = dice.random() < 0.1, dice.choice((GOOD, GOOD, WORDS))
        texts = [None if nulls and dice.random() < 0.5 else dice.choice(words) for _ in range(rows)]
        column = pa.array(texts, dice.choice(TYPES))
        match dice.randrange(12):
            case 0 if column.type in (pa.string(), pa.binary()):
                column = column.dictionary_encode()
            case 1:
                column = pa.nulls(rows)
            case 2:
                column = pa.array(range(rows))
        columns[name] = column
    return pa.table(columns)


def encode(dice: Random) -> bytearray:
    made = table(dice)
    options = pa.ipc.IpcWriteOptions(compression=dice.choice((*[None] * 8, "zstd", "lz4")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema, options=options) as writer:
        writer.write_table(made, max_chunksize=dice.choice((1, 3, 1000)))
    return bytearray(sink.getvalue().to_pybytes())


def damage(body: bytearray, dice: Random) -> bytes:
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        at = dice.randrange(len(body))
        match dice.randrange(6):
            case 0:
                body[at] = dice.randrange(256)
            case 1:
                width = dice.choice((1, 2, 4, 8))
                at -= at % width
                number = dice.choice(NUMBERS) % (1 << 8 * width)
                body[at : at + width] = number.to_bytes(width, "little")
            case 2:
                del body[at : at + dice.choice((1, 8, 64))]
            case 3:
                body[at:at] = body[max(0, at - 64) : at]
            case 4:
                body[at] ^= 1 << dice.randrange(8)
            case 5:
                body[at : at + 4] = dice.choice(string.printable).encode() * 4
        if not body:
            break
    return bytes(body)


def fuzz(seed: int, rounds: int) -> int:
    """Parse damaged chunks; returns how many were taken."""
    dice = Random(seed)
    taken = 0
    for _ in range(rounds):
        body = damage(encode(dice), dice)
        pool = pa.proxy_memory_pool(_POOL)
        pa.set_memory_pool(pool)
        try:
            drafts = parse_chunk(body, LIMITS, dice.choice((None, "text/plain")))
        except Refused:
            pass
        else:
            taken += 1
            assert 0 < drafts.count <= LIMITS.records
            assert len(drafts.data) <= len(body)
        finally:
            pa.set_memory_pool(_POOL)
        assert pool.max_memory() <= 4 * len(body) + (1 << 16)
    return taken


_POOL = pa.default_memory_pool()


@pytest.mark.parametrize("seed", [11, 12])
def test_damaged_chunks_in_short(seed: int) -> None:
    assert fuzz(seed, 300) > 10


@pytest.mark.soak
def test_damaged_chunks(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        fuzz(seed, 1000)
