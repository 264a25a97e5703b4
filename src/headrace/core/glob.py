"""Globs over names of segments: `*` is a part of a segment, `**` any number of segments.

Stars are matched by looking for what stands between them, from the left, and never again to the
left of what was found: the first place is as good as any later one. So the work is at most the
length of the glob times that of the name, whatever both are, with no regular expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile

from headrace.core.errors import Code, Refused
from headrace.core.limits import GLOB_LENGTH_MAX, GLOB_STARS_MAX

_ANY = "**"


def check_glob(glob: str) -> None:
    """Refuse a glob that is empty, too long, or has too many stars; kept ones are not asked."""
    if not 0 < len(glob) <= GLOB_LENGTH_MAX:
        raise Refused(
            Code.INVALID,
            f"a pattern has 1 to {GLOB_LENGTH_MAX} characters",
            field="pattern",
            max=GLOB_LENGTH_MAX,
        )
    if glob.count("*") > GLOB_STARS_MAX:
        raise Refused(
            Code.INVALID,
            f"a pattern has at most {GLOB_STARS_MAX} stars",
            field="pattern",
            max=GLOB_STARS_MAX,
        )


class Glob:
    """A glob, ready to be asked."""

    __slots__ = ("_last", "_runs", "prefix")

    def __init__(self, glob: str) -> None:
        segments = glob.split("/")
        self._runs = [
            [_Segment(segment) for segment in run]
            for any_number, run in groupby(segments, _ANY.__eq__)
            if not any_number
        ]
        """What stands before, between and behind `**`."""
        if segments[0] == _ANY:
            self._runs.insert(0, [])
        self._last = [] if segments[-1] == _ANY else self._runs.pop() if _ANY in segments else None
        """What ends the name; None: there is no `**`, and the first run is all of it."""
        self.prefix = _prefix(segments)
        """What every name that matches begins with."""

    def matches(self, name: str) -> bool:
        segments = name.split("/")
        first, *between = self._runs
        if self._last is None:
            return len(segments) == len(first) and _fits(first, segments, 0)
        stop = len(segments) - len(self._last)
        if stop < len(first) or not (
            _fits(first, segments, 0) and _fits(self._last, segments, stop)
        ):
            return False
        at = len(first)
        for run in between:
            while at + len(run) <= stop and not _fits(run, segments, at):
                at += 1
            at += len(run)
        return at <= stop


def _prefix(segments: list[str]) -> str:
    literal = list(takewhile(lambda segment: "*" not in segment, segments))
    rest = segments[len(literal) :]
    if rest and set(rest) != {_ANY}:
        literal.append(rest[0].partition("*")[0])
    return "/".join(literal)  # nothing behind it, not even a slash, where `**` may be nothing


def _fits(run: Sequence[_Segment], segments: Sequence[str], at: int) -> bool:
    return all(part.matches(segments[at + n]) for n, part in enumerate(run))


class _Segment:
    """One segment of a glob: literal parts with anything between them."""

    __slots__ = ("_between", "_first", "_last")

    def __init__(self, glob: str) -> None:
        first, *rest = glob.split("*")
        self._first = first
        self._last = rest.pop() if rest else None
        """None: there is no star."""
        self._between = [part for part in rest if part]

    def matches(self, segment: str) -> bool:
        if self._last is None:
            return segment == self._first
        if not (segment.startswith(self._first) and segment.endswith(self._last)):
            return False
        at, stop = len(self._first), len(segment) - len(self._last)
        for part in self._between:
            found = segment.find(part, at, stop)
            if found < 0:
                return False
            at = found + len(part)
        return at <= stop
