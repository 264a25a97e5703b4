"""What was measured, what it is held against, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

from headrace_bench.stats import median_ratio

Unit = Literal["/s", "MB/s", "ms", "s", "MB", "bytes", "files", "closures", "%"]
Verdict = Literal["reached", "missed", "not compared", ""]

HEADINGS = ("what", "Headrace", "against", "ratio", "reach", "verdict")
_DECIMALS: dict[Unit, int] = {"ms": 2, "s": 2}
"""All others are told in whole numbers."""


class RatioAtLeast(msgspec.Struct, frozen=True, tag=True):
    limit: float


class RatioAtMost(msgspec.Struct, frozen=True, tag=True):
    limit: float


class ValueAtMost(msgspec.Struct, frozen=True, tag=True):
    limit: float


class ValueAtLeast(msgspec.Struct, frozen=True, tag=True):
    limit: float


Reach = RatioAtLeast | RatioAtMost | ValueAtMost | ValueAtLeast


class Row(msgspec.Struct, frozen=True):
    """One comparison: a value for each round, of Headrace and of what it is held against."""

    what: str
    unit: Unit
    headrace: tuple[float, ...]
    baseline: tuple[float, ...] = ()
    baseline_is: str = "Redis"
    reach: Reach | None = None
    # How to install what it would be held against, where that is missing.
    install: str = ""
    # Why it gave no answer, where it is there.
    silence: str = ""

    @property
    def ratio(self) -> float | None:
        return median_ratio(self.headrace, self.baseline) if self.baseline else None

    @property
    def verdict(self) -> Verdict:
        match self.reach, self.ratio:
            case None, _:
                return ""
            case ValueAtMost(limit), _:
                return _judge(statistics.median(self.headrace) <= limit)
            case ValueAtLeast(limit), _:
                return _judge(statistics.median(self.headrace) >= limit)
            case _, None:
                return "not compared"
            case RatioAtLeast(limit), float(ratio):
                return _judge(ratio >= limit)
            case RatioAtMost(limit), float(ratio):
                return _judge(ratio <= limit)
        raise AssertionError("every reach is judged above")


class Failure(msgspec.Struct, frozen=True):
    scenario: str
    message: str


class Report(msgspec.Struct, frozen=True):
    machine: dict[str, str]
    sizes: dict[str, float]
    rows: list[Row]
    failures: list[Failure]

    def missed(self) -> list[Row]:
        return [row for row in self.rows if row.verdict == "missed"]


def format_table(rows: Sequence[Row]) -> str:
    """The rows as aligned text: the median of the rounds, with the range they spread over."""
    lines = [HEADINGS, *(_format_row(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def encode_report(report: Report) -> bytes:
    """The report as JSON, with what follows from the rounds spelled out."""
    rows = [
        msgspec.to_builtins(row)
        | {
            "headrace_median": statistics.median(row.headrace),
            "baseline_median": statistics.median(row.baseline) if row.baseline else None,
            "ratio": row.ratio,
            "verdict": row.verdict,
        }
        for row in report.rows
    ]
    whole = msgspec.to_builtins(report) | {"rows": rows}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _format_row(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        _format_rounds(row.headrace, row.unit),
        _format_baseline(row),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        _format_reach(row.reach, row.unit),
        row.verdict,
    )


def _format_baseline(row: Row) -> str:
    if row.baseline:
        return f"{row.baseline_is}: {_format_rounds(row.baseline, row.unit)}"
    if row.silence:
        return f"{row.baseline_is}: {row.silence}"
    return f"{row.baseline_is} is missing: {row.install}" if row.install else ""


def _format_rounds(values: Sequence[float], unit: Unit) -> str:
    if not values:
        return ""
    middle, low, high = (
        f"{value:,.{_DECIMALS.get(unit, 0)}f}"
        for value in (statistics.median(values), min(values), max(values))
    )
    spread = f" ({low}–{high})" if len(values) > 1 else ""
    return f"{middle}{unit if unit == '/s' else f' {unit}'}{spread}"


def _format_reach(reach: Reach | None, unit: Unit) -> str:
    match reach:
        case None:
            return ""
        case RatioAtLeast(limit):
            return f"≥ {limit:g} ×"
        case RatioAtMost(limit):
            return f"≤ {limit:g} ×"
        case ValueAtMost(limit):
            return f"≤ {limit:,g} {unit}"
        case ValueAtLeast(limit):
            return f"≥ {limit:,g}{unit if unit == '/s' else f' {unit}'}"


def _judge(reached: bool) -> Verdict:
    return "reached" if reached else "missed"
