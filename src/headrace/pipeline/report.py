"""What a job says about itself: progress while it works, a table when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from tqdm import tqdm

from headrace.printing import table

T = TypeVar("T")
Progress = Callable[[Sequence[T], str], Iterable[T]]


def show_progress(items: Sequence[T], unit: str) -> Iterable[T]:
    """The items, with a bar for whoever watches a terminal."""
    quiet = not sys.stderr.isatty()
    bar: Iterable[T] = tqdm(items, unit=f" {unit}", file=sys.stderr, disable=quiet, leave=False)
    return bar


def no_progress(items: Sequence[T], unit: str) -> Iterable[T]:
    """The items alone."""
    return items


class Report(msgspec.Struct):
    """A table of what was done, a last line, and whether all is well."""

    titles: str
    rows: list[tuple[object, ...]]
    summary: str
    problems: list[str] = msgspec.field(default_factory=list)

    def lines(self) -> list[str]:
        shown = [*table(self.titles, self.rows), ""] if self.rows else []
        return [*self.problems, *shown, self.summary]
