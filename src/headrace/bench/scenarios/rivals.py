"""Headrace against several servers at once, of which some may not be installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from headrace.bench.arena import Arena
from headrace.bench.report import Reach, Row, Unit

OURS = "Headrace"

T = TypeVar("T")
Rounds = Mapping[str, tuple[T, ...]]


def take_turns(arena: Arena, what: str, sides: Mapping[str, Callable[[], T]]) -> Rounds[T]:
    """The rounds of each side, by its name."""
    return dict(zip(sides, arena.take_turns(what, *sides.values()), strict=True))


def map_rounds(rounds: Rounds[T], measure: Callable[[T], float]) -> Rounds[float]:
    return {name: tuple(measure(value) for value in values) for name, values in rounds.items()}


def make_rows(
    what: str,
    unit: Unit,
    rounds: Rounds[float],
    installs: Mapping[str, str],
    reaches: Mapping[str, Reach] | None = None,
) -> list[Row]:
    """A row for each rival; one that took no part says how to install it."""
    return [
        Row(
            what=what,
            unit=unit,
            headrace=rounds[OURS],
            baseline=rounds.get(name, ()),
            baseline_is=name,
            reach=(reaches or {}).get(name),
            install="" if name in rounds else install,
        )
        for name, install in installs.items()
    ]
