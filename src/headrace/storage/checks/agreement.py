"""Whether the state that recovery comes to and the records that are there say the same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

import msgspec
import pyarrow as pa

from headrace.core import ranges
from headrace.core.log import Log
from headrace.core.record import Block, Texts, live_parts
from headrace.formats.segment import Piece
from headrace.storage.checks.contents import content_problem, naming_problems
from headrace.storage.checks.findings import Finding, Problem
from headrace.storage.checks.findings import log as of_log
from headrace.storage.checks.routers import router_problems
from headrace.storage.checks.states import state_problems

RECOVERY = "recovery"
"""Where a problem is that no single file has."""


class _Found(msgspec.Struct):
    """The live records of one log that were found so far."""

    count: int = 0
    size_bytes: int = 0
    last: int = 0


class Agreement:
    """Counts live records, segment by segment and then in the journal, and compares."""

    def __init__(self, logs: dict[int, Log], blocks: dict[int, list[Block]]) -> None:
        self._logs = logs
        self._blocks = blocks
        self._found: dict[int, _Found] = {}
        self._spans: dict[int, tuple[int, int]] = {}  # of the logs live in the segment at hand
        self._doubtful: set[int] = set()

    def doubt(self, number: int) -> None:
        """This segment cannot be read: say nothing of the logs that lie in it."""
        self._doubtful.add(number)
        self._spans.clear()

    def doubts(self, number: int) -> bool:
        """Whether this segment could not be read."""
        return number in self._doubtful

    def holds_contents(self, log: int) -> bool:
        """Whether the records of this log are contents, with their digests as keys."""
        held = self._logs.get(log)
        return held is not None and held.contents is not None

    def _check_contents(self, log: Log, block: Block) -> Iterator[Finding]:
        if log.contents is not None:
            keys: Texts = block.keys or [None] * block.count
            for at, key in enumerate(keys):
                if what := content_problem(key, block.data_at(at)):
                    yield Problem(RECOVERY, of_log(log.name), f"seq {block.seq_at(at)}: {what}")

    def take(self, piece: Piece, rows: pa.Table, where: str) -> Iterator[Finding]:
        """Count what is live in the rows of one log; segments come in ascending order."""
        log = self._logs.get(piece.log)
        if log is None:
            return  # dropped since
        found = self._found.setdefault(log.id, _Found())
        if not found.last < piece.first <= piece.last <= log.head:
            what = (
                f"holds seqs {piece.first} to {piece.last}; segments before it reach "
                f"{found.last}, the head is {log.head}"
            )
            yield Problem(where, of_log(log.name), what)
        found.last = piece.last
        live = list(
            ranges.outside(log.gone, max(piece.first, log.floor), min(piece.last, log.head))
        )
        if not live:
            return
        first, _ = self._spans.get(log.id, (piece.first, 0))
        self._spans[log.id] = first, piece.last
        if live == [(piece.first, piece.last)]:
            found.count += piece.rows
            found.size_bytes += piece.record_bytes
        else:
            _count(found, live, rows)

    def close_segment(self, number: int, where: str) -> Iterator[Finding]:
        """All rows of this segment were taken: does recovery know that its live ones are here?"""
        for log, (first, last) in self._spans.items():
            held = self._logs[log]
            reach = next(((low, high) for n, low, high in held.extents if n == number), (1, 0))
            if not reach[0] <= first <= last <= reach[1]:
                what = f"holds live seqs {first} to {last}, and recovery does not look for them"
                yield Problem(where, of_log(held.name), what)
        self._spans.clear()

    def close(self) -> Iterator[Finding]:
        """Everything was taken: compare each log, and the logs with each other."""
        for log, what in (*router_problems(self._logs), *naming_problems(self._logs)):
            yield Problem(RECOVERY, of_log(log.name), what)
        for log in self._logs.values():
            for what in state_problems(log):
                yield Problem(RECOVERY, of_log(log.name), what)
            if self._doubtful.intersection(number for number, _, _ in log.extents):
                continue
            found = self._found.get(log.id, _Found())
            for block in self._blocks.get(log.id, ()):
                if block.first <= found.last:
                    what = f"seq {block.first} is in the journal behind seq {found.last}"
                    yield Problem(RECOVERY, of_log(log.name), what)
                found.last = block.last
                _count_parts(found, live_parts(block, log.gone, log.floor))
                yield from self._check_contents(log, block)
            if (found.count, found.size_bytes) != (log.count, log.size_bytes):
                what = (
                    f"{found.count} records of {found.size_bytes} bytes are there; "
                    f"the state counts {log.count} of {log.size_bytes}"
                )
                yield Problem(RECOVERY, of_log(log.name), what)


def _count(found: _Found, live: Iterable[tuple[int, int]], rows: pa.Table) -> None:
    seqs = rows.column("seq").to_pylist()
    ends = list(accumulate(rows.column("size").to_pylist(), initial=0))
    for first, last in live:
        start, stop = bisect_left(seqs, first), bisect_right(seqs, last)
        found.count += stop - start
        found.size_bytes += ends[stop] - ends[start]


def _count_parts(found: _Found, parts: Iterable[Block]) -> None:
    for part in parts:
        found.count += part.count
        found.size_bytes += part.size_bytes
