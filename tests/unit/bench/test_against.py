from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace_bench.against import compare
from headrace_bench.arena import QUICK, Arena
from headrace_bench.checkout import Checkout, check_out
from headrace_bench.errors import BenchError
from headrace_bench.report import RatioAtLeast, RatioAtMost, Row

THEIRS = Checkout("1234567", Path("elsewhere/src"), "python")


def test_rounds_of_both_commits_alternate_and_become_one_row() -> None:
    order: list[str] = []

    def scenario(arena: Arena) -> Iterator[Row]:
        assert arena.sizes.rounds == 1
        assert not arena.with_redis
        assert not arena.with_peers
        order.append(arena.checkout.commit if arena.checkout else "ours")
        number = float(len(order))
        yield Row("appends", "/s", (number,), baseline_is="a peer", install="apt-get")
        yield Row("appends", "/s", (number,), baseline_is="another", install="apt-get")
        yield Row("wait", "ms", (number,), (1.0,), baseline_is="idle")
        yield Row("memory", "MB", (number,))

    arena = Arena(Path(), msgspec.structs.replace(QUICK, rounds=2), True, lambda _: None)
    assert compare(arena, scenario, THEIRS) == [
        Row("appends", "/s", (1, 4), (2, 3), "1234567", RatioAtLeast(0.97)),
        Row("wait", "ms", (1, 4), (2, 3), "1234567", RatioAtMost(1.03)),
        Row("memory", "MB", (1, 4), (2, 3), "1234567"),
    ]
    assert order == ["ours", "1234567", "1234567", "ours"]


def test_a_commit_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchError, match=r"git .*no-such-commit") as refused,
        check_out("no-such-commit", tmp_path / "checkout"),
    ):
        pass
    assert "\n" not in str(refused.value)
