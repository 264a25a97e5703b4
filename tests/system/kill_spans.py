"""Spans of seqs, values that only rise, and how the oracle writes both down."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

import msgspec

from .kill_history import Gap, Page, Payload

Span = tuple[int, int]
"""Seqs from the first to the last, both included."""


class Reading(msgspec.Struct, frozen=True):
    """A value that must not fall from one reading to a later one."""

    started: int
    ended: int
    value: int


class Rising:
    """The highest value that was already known at a moment."""

    def __init__(self, start: int, readings: Iterable[Reading]) -> None:
        self._ended = [0]
        self._highest = [start]
        for reading in sorted(readings, key=lambda reading: reading.ended):
            self._ended.append(reading.ended)
            self._highest.append(max(reading.value, self._highest[-1]))

    def before(self, moment: int) -> int:
        return self._highest[bisect.bisect_left(self._ended, moment) - 1]

    @property
    def last(self) -> int:
        return self._highest[-1]


def covered(gaps: list[Gap]) -> list[tuple[int, int, str]]:
    """Gaps as they add up, however many answers it took to report them."""
    merged: list[tuple[int, int, str]] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if merged and merged[-1][2] == gap.reason and gap.first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], gap.last), gap.reason)
        else:
            merged.append((gap.first, gap.last, gap.reason))
    return merged


def format_payload(payload: Payload) -> str:
    return f"({payload.data[:80]!r}, tag {payload.tag!r}, meta {payload.meta!r})"


def format_page(page: Page) -> str:
    return (
        f"a read after {page.after} to {page.next} with {len(page.records)} records, "
        f"earliest {page.earliest}, head {page.head}, {page.gap}"
    )


def split(span: Span, gaps: list[Gap]) -> Iterator[tuple[Span, bool]]:
    """The parts of a span, each with whether a gap covers it."""
    start, last = span
    while start <= last:
        covering = [gap.last for gap in gaps if gap.first <= start <= gap.last]
        if covering:
            stop = min(last, max(covering))
        else:
            stop = min([gap.first - 1 for gap in gaps if start < gap.first] + [last])
        yield (start, stop), bool(covering)
        start = stop + 1


def format_spans(spans: list[Span]) -> str:
    text = ", ".join(
        f"{first}" if first == last else f"{first}–{last}" for first, last in spans[:8]
    )
    count = sum(last - first + 1 for first, last in spans)
    return f"[{text}{', …' if len(spans) > 8 else ''}] ({count})"


def format_seqs(seqs: Iterable[int]) -> str:
    ordered = sorted(seqs)
    text = ", ".join(map(str, ordered[:8]))
    return f"[{text}{', …' if len(ordered) > 8 else ''}] ({len(ordered)})"
