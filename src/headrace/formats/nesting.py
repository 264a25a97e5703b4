"""How deep a JSON text is nested, without taking it apart.

Whatever goes down into a document asks here first. The text is looked at in blocks, by functions
that are as fast as copying: some milliseconds for a megabyte of nothing but brackets.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.limits import NESTING_MAX

_BLOCK_BYTES = 256 << 10
_SIGNS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""One up, one down: as signed bytes."""
_OTHERS = bytes(set(range(256)) - set(b"[{]}"))


def is_too_deep(json: bytes) -> bool:
    """Whether valid JSON nests deeper than we take. Cheap for anything small or flat."""
    if len(json) <= 2 * NESTING_MAX:
        return False
    if json.count(b"[") + json.count(b"{") <= NESTING_MAX:
        return False
    if b"\\" in json:  # what is escaped ends no string
        json = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = inside = 0
    for start in range(0, len(json), _BLOCK_BYTES):
        parts = json[start : start + _BLOCK_BYTES].split(b'"')
        signs = b"".join(parts[inside::2]).translate(_SIGNS, _OTHERS)
        inside ^= (len(parts) - 1) & 1
        ups = signs.count(1)
        if depth + ups > NESTING_MAX and depth + _highest(signs) > NESTING_MAX:
            return True
        depth += 2 * ups - len(signs)
    return False


def _highest(signs: bytes) -> int:
    """The largest sum of the first of these, however many."""
    steps = pa.Array.from_buffers(pa.int8(), len(signs), [None, pa.py_buffer(signs)])
    return int(pc.max(pc.cumulative_sum(steps.cast(pa.int32()))).as_py())
