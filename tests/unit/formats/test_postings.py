from __future__ import annotations

import numpy as np

from headrace.formats.postings import (
    decode_positions,
    decode_postings,
    encode_positions,
    encode_postings,
)


def test_postings_come_back() -> None:
    groups = [[5], [7, 8, 9], [1, 3, 1000, 2**40], [2**62], [4, 6]]
    starts = np.cumsum([0] + [len(g) for g in groups[:-1]])
    columns = encode_postings(np.array([seq for found in groups for seq in found]), starts)
    rows = zip(*(columns[name].to_pylist() for name in ("n", "first", "last", "post")), strict=True)
    raw = list(rows)
    assert [decode_postings(*row).tolist() for row in raw] == groups
    assert raw[1] == (3, 7, 9, None)
    assert raw[4] == (2, 4, 6, b"\2")


def test_positions_come_back() -> None:
    # Two words; the first in two records, twice in the second of them.
    places = np.array([4, 0, 70_000, 1])
    firsts = np.array([True, True, False, True])
    found = encode_positions(places, firsts, np.array([0, 3])).to_pylist()
    records, back = decode_positions(found[0])
    assert records.tolist() == [0, 1, 1]
    assert back.tolist() == [4, 0, 70_000]
    assert [part.tolist() for part in decode_positions(found[1])] == [[0], [1]]
