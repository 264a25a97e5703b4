"""How deep JSON is nested: the same as by walking along it, and looked at in blocks."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from headrace.core.limits import NESTING_MAX
from headrace.formats import nesting
from headrace.formats.nesting import is_too_deep


def depth_of(value: Any) -> int:
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def nested(depth: int, inner: Any, dice: random.Random) -> Any:
    for _ in range(depth):
        beside = dice.choice(("", "]", '"[', "\\", '\\"[{', "ü[", 1, [], {}, [[]]))
        inner = [beside, inner, beside] if dice.random() < 0.5 else {"a[\\": inner, '"': beside}
    return inner


def test_as_deep_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(7)
    for _ in range(200):
        monkeypatch.setattr(nesting, "_BLOCK_BYTES", dice.choice((1, 7, 64, 1000, 1 << 18)))
        depth = dice.choice(
            (3, NESTING_MAX - 3, NESTING_MAX - 1, NESTING_MAX, NESTING_MAX + 1, 300)
        )
        document = [nested(depth // 2, nested(depth - depth // 2, 1, dice), dice), []]
        if dice.random() < 0.5:
            document = document[0]
        raw = json.dumps(document, ensure_ascii=dice.random() < 0.5).encode()
        assert is_too_deep(raw) is (depth_of(document) > NESTING_MAX and len(raw) > 2 * NESTING_MAX)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * 300_000 + b"[]]",
        b"[" + b'"[",' * 200_000 + b"1]",
        b'["' + b'\\"[' * 300_000 + b'"]',
        b"[" + (b"[" * 127 + b"]" * 127 + b",") * 4000 + b"1]",
    ],
)
def test_wide_is_not_deep(raw: bytes) -> None:
    assert not is_too_deep(raw)
    assert is_too_deep(b"[" * NESTING_MAX + raw + b"]" * NESTING_MAX)


def test_a_large_text_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    real = nesting._highest
    monkeypatch.setattr(nesting, "_highest", lambda signs: looked.append(len(signs)) or real(signs))
    raw = b"[" + b"[]," * 300_000 + b"[]]"
    assert not is_too_deep(raw)
    assert sum(looked) <= raw.count(b"[") + raw.count(b"]")
