from __future__ import annotations

from pathlib import Path

import msgspec

from headrace_bench.arena import QUICK, Arena


def test_sides_alternate_who_goes_first() -> None:
    order: list[str] = []

    def side(name: str) -> int:
        order.append(name)
        return len(order)

    arena = Arena(Path(), msgspec.structs.replace(QUICK, rounds=3), False, lambda _: None)
    ours, theirs = arena.take_turns("x", lambda: side("ours"), lambda: side("theirs"))
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert ours == (1, 4, 5)
    assert theirs == (2, 3, 6)
