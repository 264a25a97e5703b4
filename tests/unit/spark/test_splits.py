"""Which task reads what: every live record once, by one of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core import ranges
from headrace.formats.plan import LogPlan, Span
from headrace.formats.segment import Piece
from headrace.spark.catalog import Placed
from headrace.spark.options import Wanted
from headrace.spark.splits import (
    Bundle,
    SegmentPart,
    ServerPart,
    Want,
    bundled,
    split,
    wants_of,
)


def plan(head: int, sealed: list[Span], deleted: list[Span], earliest: int = 1) -> LogPlan:
    return LogPlan(
        log="a",
        epoch=3,
        owner="topics",
        media=None,
        head_seq=head,
        earliest_seq=earliest,
        floor_seq=earliest,
        count=head,
        bytes=head * 10,
        sealed=sealed,
        deleted=deleted,
        lost=[],
    )


def piece(first: int, last: int, group: int = 0, last_ts: int = 0, size: int = 0) -> Piece:
    return Piece(3, first, last, group, 0, last - first + 1, size, last_ts)


def spans(seqs: set[int]) -> list[Span]:
    return [*ranges.pairs(ranges.from_seqs(sorted(seqs)))]


def seqs_of(parts: list[SegmentPart | ServerPart], gone: set[int]) -> list[int]:
    """What the tasks bring, in a world where the seqs that are gone are not sent by the server."""
    found: list[int] = []
    for part in parts:
        if isinstance(part, ServerPart):
            found += [seq for seq in range(part.first, part.last + 1) if seq not in gone]
            continue
        for rows in part.rows:
            found += [
                seq
                for seq in range(rows.first, rows.last + 1)
                if not ranges.contains(rows.gone, seq)
            ]
    return found


small = st.sets(st.integers(1, 40))


@given(st.integers(0, 40), small, st.lists(st.integers(1, 12), max_size=6), small, st.booleans())
def test_every_live_record_is_read_once(
    head: int, deleted: set[int], lengths: list[int], memory: set[int], known: bool
) -> None:
    pieces, at = [], 1
    for number, length in enumerate(lengths):
        pieces.append(Placed(f"s{number}", piece(at, at + length - 1)))
        at += length
    held = {seq for seq in range(1, at) if seq <= head and seq not in memory}
    told = plan(head, spans(held), spans({seq for seq in deleted if seq <= head}))
    wants = wants_of([told], Wanted(names=("a",)))
    placed = {3: pieces} if known else {}
    parts = split(wants, placed, Wanted(), served=True)
    live = [seq for seq in range(1, head + 1) if seq not in deleted]
    assert sorted(seqs_of(parts, deleted)) == live
    if known:
        asked = [part for part in parts if isinstance(part, ServerPart)]
        assert not any(seq in held for part in asked for seq in range(part.first, part.last + 1)), (
            "the server is asked for what lies in the object store"
        )


def test_times_leave_out_whole_pieces() -> None:
    places = [Placed("s1", piece(1, 10, last_ts=100)), Placed("s2", piece(11, 20, last_ts=200)),
              Placed("s3", piece(21, 30, last_ts=300))]  # fmt: skip
    want = Want(plan(30, [(1, 30)], []), 1, 30)

    def segments(**bounds: int) -> list[str]:
        parts = split([want], {3: places}, Wanted(**bounds), served=False)  # type: ignore[arg-type]
        return [part.segment for part in parts if isinstance(part, SegmentPart)]

    assert segments() == ["s1", "s2", "s3"]
    assert segments(since_us=100_500) == ["s1", "s2", "s3"]
    assert segments(since_us=101_000) == ["s2", "s3"]
    assert segments(until_us=199_999) == ["s1", "s2"]
    assert segments(until_us=99_999) == ["s1"]


def test_many_row_groups_are_several_tasks() -> None:
    pieces = [Placed("s", piece(n * 10 + 1, n * 10 + 10, group=n)) for n in range(20)]
    want = Want(plan(200, [(1, 200)], []), 1, 200)
    parts = split([want], {3: pieces}, Wanted(), served=False)
    assert [len(part.rows) for part in parts if isinstance(part, SegmentPart)] == [8, 8, 4]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 4))
def test_tasks_are_large_but_not_too_few(mebibytes: list[int], cores: int) -> None:
    pieces = [
        Placed(f"s{n}", piece(n * 10 + 1, n * 10 + 10, size=size << 20))
        for n, size in enumerate(mebibytes)
    ]
    head = len(pieces) * 10
    want = Want(plan(head + 5, [(1, head)], []), 1, head + 5)
    parts = split([want], {3: pieces}, Wanted(), served=True)
    tasks = bundled(parts, cores)
    bundles = [task.parts for task in tasks if isinstance(task, Bundle)]
    served = [task for task in tasks if isinstance(task, ServerPart)]
    assert [part for bundle in bundles for part in bundle] == [
        part for part in parts if isinstance(part, SegmentPart)
    ]
    assert [(part.first, part.last) for part in served] == [(head + 1, head + 5)]
    sizes = [sum(part.size_bytes for part in bundle) >> 20 for bundle in bundles]
    enough = min(max(sum(mebibytes) / cores / 2, 4), 64)
    assert all(size >= enough for size in sizes[:-1])
    assert all(size < enough + 100 for size in sizes)
