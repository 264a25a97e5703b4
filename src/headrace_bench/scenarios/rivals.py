"""Headrace against several servers at once, of which some may not be installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace_bench.arena import Arena, rest
from headrace_bench.daemon import Daemon
from headrace_bench.report import Reach, Row, Unit

OURS = "Headrace"

T = TypeVar("T")
Rounds = Mapping[str, tuple[T, ...]]


@dataclass(frozen=True, slots=True)
class Side(Generic[T]):
    """A server and what is measured of it."""

    daemon: Daemon
    measure: Callable[[], T]

    def take_turn(self) -> T:
        result = self.measure()
        rest(self.daemon)
        return result


def take_turns(arena: Arena, what: str, sides: Mapping[str, Side[T]]) -> Rounds[T]:
    """The rounds of each side, by its name."""
    rounds = arena.take_turns(what, *(side.take_turn for side in sides.values()))
    return dict(zip(sides, rounds, strict=True))


def map_rounds(rounds: Rounds[T], measure: Callable[[T], float]) -> Rounds[float]:
    return {name: tuple(measure(value) for value in values) for name, values in rounds.items()}


def make_rows(
    what: str,
    unit: Unit,
    rounds: Rounds[float],
    installs: Mapping[str, str],
    reaches: Mapping[str, Reach] | None = None,
    silences: Mapping[str, str] | None = None,
) -> list[Row]:
    """A row for each rival; one that took no part says why, or how to install it."""
    return [
        Row(
            what=what,
            unit=unit,
            headrace=rounds[OURS],
            baseline=rounds.get(name, ()),
            baseline_is=name,
            reach=(reaches or {}).get(name),
            install="" if name in rounds else install,
            silence=(silences or {}).get(name, ""),
        )
        for name, install in installs.items()
    ]
