"""Scenarios against another commit: both servers in turns, without anybody else."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from headrace_bench.arena import Arena
from headrace_bench.checkout import Checkout
from headrace_bench.report import RatioAtLeast, RatioAtMost, Reach, Row, Unit
from headrace_bench.scenarios.catalog import Scenario

NO_SLOWER = 0.97
"""What noise leaves of a ratio of equals."""
_REACHES: dict[Unit, Reach] = {
    "/s": RatioAtLeast(NO_SLOWER),
    "MB/s": RatioAtLeast(NO_SLOWER),
    "ms": RatioAtMost(round(1 / NO_SLOWER, 2)),
    "s": RatioAtMost(round(1 / NO_SLOWER, 2)),
}


def compare(arena: Arena, scenario: Scenario, checkout: Checkout) -> list[Row]:
    """The rows of a scenario, each against the same one of a server of that commit.

    Each round is the whole scenario with a fresh server: what it does once, it does once a round.
    """
    once = msgspec.structs.replace(arena.sizes, rounds=1)
    here = replace(arena, sizes=once, with_redis=False, with_peers=False, say=lambda _: None)
    there = replace(here, checkout=checkout)
    ours, theirs = arena.take_turns(
        f"against {checkout.commit}", lambda: list(scenario(here)), lambda: list(scenario(there))
    )
    return merge(ours, theirs, checkout.commit)


def merge(ours: tuple[list[Row], ...], theirs: tuple[list[Row], ...], commit: str) -> list[Row]:
    """Rows of equal names as one; a row that the other side has not is against nothing."""
    values, baselines = _gather(ours), _gather(theirs)
    units = {row.what: row.unit for row in ours[0]}
    return [
        Row(
            what=what,
            unit=unit,
            headrace=values[what],
            baseline=baselines.get(what, ()),
            baseline_is=commit,
            reach=_REACHES.get(unit),
        )
        for what, unit in units.items()
    ]


def _gather(rounds: tuple[list[Row], ...]) -> dict[str, tuple[float, ...]]:
    # There is a row for each peer of a server, with the same values of ours in all of them.
    by_name = [{row.what: row.headrace for row in rows} for rows in rounds]
    return {what: sum((rows[what] for rows in by_name), ()) for what in by_name[0]}
