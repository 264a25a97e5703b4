"""Which task reads what: every live record once, by one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from headrace.core import ranges
from headrace.core.name_patterns import NamePatterns
from headrace.formats.log_plan import LogPlan, Span
from headrace.formats.segment import Piece
from headrace.spark import splits
from headrace.spark.catalog import Placed
from headrace.spark.options import SEQ_MAX, TS_MAX, TS_MIN, RecordSelection
from headrace.spark.splits import (
    Bundle,
    Part,
    SegmentPart,
    ServerPart,
    Want,
    bundled,
    split,
    wants_of,
)


def plan(
    head: int,
    sealed: list[Span],
    deleted: list[Span],
    earliest: int = 1,
    lost: Sequence[Span] = (),
) -> LogPlan:
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
        lost=list(lost),
    )


def piece(first: int, last: int, group: int = 0, last_ts: int = 0, size: int = 0) -> Piece:
    return Piece(3, first, last, group, 0, last - first + 1, size, last_ts)


def spans(seqs: set[int]) -> list[Span]:
    return [*ranges.pairs(ranges.from_seqs(sorted(seqs)))]


class World(msgspec.Struct):
    """A log, where its records lie, and what somebody wants of it."""

    plan: LogPlan
    rows: dict[tuple[str, int], list[int]]
    """(segment, row group) → the seqs of its rows, one after the other."""
    pieces: list[Placed]
    live: dict[int, int]
    """Seq → time in milliseconds, of every record that is to be read if it is wanted."""
    wanted: RecordSelection


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Seqs in segments, those in row groups; some deleted, some lost, some only in memory.

    Spans of the plan are those of segments as they were, and pieces those of segments as they are:
    since the server told, neighbours may have become one.
    """
    head = draw(st.integers(0, 60))
    seqs = range(1, head + 1)
    some = st.sets(st.sampled_from(seqs)) if head else st.just(set[int]())
    lost, deleted, memory = draw(some), draw(some), draw(some)
    deleted -= lost
    in_segments = draw(st.integers(0, head))
    rewritten = draw(st.booleans())
    cuts = st.sets(st.integers(2, max(2, in_segments)))
    segment_cuts, group_cuts, extent_cuts = draw(cuts), draw(cuts), draw(cuts)
    rows: dict[tuple[str, int], list[int]] = {}
    segment = group = 0
    for seq in range(1, in_segments + 1):
        if seq in segment_cuts:
            segment, group = segment + 1, 0
        elif seq in group_cuts:
            group += 1
        if seq not in lost and seq not in memory and not (rewritten and seq in deleted):
            rows.setdefault((f"s{segment}", group), []).append(seq)
    stamps: dict[int, int] = {}
    at = 0
    for seq in seqs:
        at += draw(st.integers(0, 2))
        stamps[seq] = at
    earliest = draw(st.integers(1, head + 1))
    outside = {seq for seq in range(earliest, in_segments + 1) if seq not in memory}
    told = plan(
        head,
        [
            span
            for low, high in _cut(in_segments, extent_cuts)
            for span in spans(outside & {*range(low, high + 1)})
        ],
        spans({seq for seq in deleted if seq >= earliest}),
        earliest,
        spans({seq for seq in lost if seq >= earliest}),
    )
    bound = st.integers(0, head + 2)
    wanted = RecordSelection(
        NamePatterns(("a",)),
        first=max(1, draw(bound)),
        last=draw(st.one_of(bound, st.just(SEQ_MAX))),
        since_us=draw(st.one_of(st.just(TS_MIN), st.integers(-1, at * 1000 + 1))),
        until_us=draw(st.one_of(st.just(TS_MAX), st.integers(-1, at * 1000 + 1))),
    )
    pieces = [
        Placed(name, Piece(3, held[0], held[-1], group, 0, len(held), 10, stamps[held[-1]]))
        for (name, group), held in rows.items()
    ]
    live = {
        seq: stamps[seq]
        for seq in range(earliest, head + 1)
        if seq not in lost and seq not in deleted
    }
    return World(told, rows, pieces, live, wanted)


def _cut(stop: int, cuts: set[int]) -> list[Span]:
    """[1, stop], cut before these seqs."""
    edges = [1, *sorted(cut for cut in cuts if cut <= stop), stop + 1]
    return [(low, high - 1) for low, high in itertools.pairwise(edges) if low < high]


def brought(world: World, parts: Iterable[Part], want: Want) -> list[int]:
    """What the tasks bring; each of them must be well made."""
    found: list[int] = []
    for part in parts:
        if isinstance(part, ServerPart):
            assert want.first <= part.first <= part.last <= want.last
            found += [seq for seq in range(part.first, part.last + 1) if seq in world.live]
            continue
        assert part.rows
        for rows in part.rows:
            held = world.rows[part.segment, rows.group]
            assert 0 <= rows.start < rows.start + rows.count <= len(held)
            there = held[rows.start : rows.start + rows.count]
            assert want.first <= rows.first <= rows.last <= want.last
            assert there[0] <= rows.first
            assert rows.last <= there[-1]
            counted = [
                seq
                for seq in there
                if rows.first <= seq <= rows.last and not ranges.contains(rows.gone, seq)
            ]
            assert not rows.whole or counted == there
            assert next(ranges.outside(rows.gone, rows.first, rows.last), None), "nothing in it"
            found += counted
    return found


@settings(max_examples=300)
@given(worlds(), st.booleans(), st.integers(1, 3))
def test_every_wanted_record_is_read_once(world: World, served: bool, page: int) -> None:
    """By one task, from one place: whatever lies where, and whatever is asked for."""
    wants = wants_of([world.plan], world.wanted)
    assert all(want.first <= want.last for want in wants)
    with patch.object(splits, "PAGE_SEQS_MAX", page):
        parts = split(wants, {3: world.pieces}, world.wanted, served=served)
    tasks = bundled(parts, 2)
    assert sorted(map(id, parts)) == sorted(
        id(part) for task in tasks for part in (task.parts if isinstance(task, Bundle) else [task])
    )
    found = [seq for want in wants for seq in brought(world, parts, want)]
    asked = {
        seq
        for part in parts
        if isinstance(part, ServerPart)
        for seq in range(part.first, part.last + 1)
    }
    in_time = [
        seq
        for seq in found
        if world.wanted.since_us <= world.live[seq] * 1000 <= world.wanted.until_us
    ]
    held = {seq for seqs in world.rows.values() for seq in seqs}
    spans_held = ranges.from_pairs(world.plan.sealed or [])  # type: ignore[arg-type]
    expected = [
        seq
        for seq, at in world.live.items()
        if world.wanted.first <= seq <= world.wanted.last
        and world.wanted.since_us <= at * 1000 <= world.wanted.until_us
        and (served or (seq in held and ranges.contains(spans_held, seq)))
    ]
    assert sorted(in_time) == expected
    assert len(set(found)) == len(found)
    assert not {seq for seq in asked & held if ranges.contains(spans_held, seq)}, (
        "the server is asked for what lies in the object store"
    )


def test_what_the_server_cannot_tell_comes_from_it() -> None:
    """Too much of a log is dead to say what: no segment of it is read."""
    told = plan(20, [], [])
    told.deleted = told.lost = UNSET
    parts = split(
        [Want(told, 3, 20)], {3: [Placed("s", piece(1, 20))]}, RecordSelection(), served=True
    )
    assert [(part.first, part.last) for part in parts if isinstance(part, ServerPart)] == [(3, 20)]
    assert len(parts) == 1


def test_a_later_row_group_of_a_span_is_none_of_an_earlier_range() -> None:
    """Several row groups of a log in one span, and only some of its seqs wanted."""
    pieces = [Placed("s", piece(n * 10 + 1, n * 10 + 10, group=n)) for n in range(4)]
    parts = split(
        [Want(plan(40, [(1, 40)], []), 12, 18)], {3: pieces}, RecordSelection(), served=True
    )
    (part,) = parts
    assert isinstance(part, SegmentPart)
    assert [(rows.group, rows.first, rows.last) for rows in part.rows] == [(1, 12, 18)]


def test_times_leave_out_whole_pieces() -> None:
    places = [Placed("s1", piece(1, 10, last_ts=100)), Placed("s2", piece(11, 20, last_ts=200)),
              Placed("s3", piece(21, 30, last_ts=300))]  # fmt: skip
    want = Want(plan(30, [(1, 30)], []), 1, 30)

    def segments(**bounds: int) -> list[str]:
        parts = split([want], {3: places}, RecordSelection(**bounds), served=False)  # type: ignore[arg-type]
        return [part.segment for part in parts if isinstance(part, SegmentPart)]

    assert segments() == ["s1", "s2", "s3"]
    assert segments(since_us=100_500) == ["s1", "s2", "s3"]
    assert segments(since_us=101_000) == ["s2", "s3"]
    assert segments(until_us=199_999) == ["s1", "s2"]
    assert segments(until_us=99_999) == ["s1"]


def test_many_row_groups_are_several_tasks() -> None:
    pieces = [Placed("s", piece(n * 10 + 1, n * 10 + 10, group=n)) for n in range(20)]
    want = Want(plan(200, [(1, 200)], []), 1, 200)
    parts = split([want], {3: pieces}, RecordSelection(), served=False)
    assert [len(part.rows) for part in parts if isinstance(part, SegmentPart)] == [8, 8, 4]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 4))
def test_tasks_are_large_but_not_too_few(mebibytes: list[int], cores: int) -> None:
    pieces = [
        Placed(f"s{n}", piece(n * 10 + 1, n * 10 + 10, size=size << 20))
        for n, size in enumerate(mebibytes)
    ]
    head = len(pieces) * 10
    want = Want(plan(head + 5, [(1, head)] if head else [], []), 1, head + 5)
    parts = split([want], {3: pieces}, RecordSelection(), served=True)
    tasks = bundled(parts, cores)
    bundles = [task.parts for task in tasks if isinstance(task, Bundle)]
    assert len(bundles) == len(tasks)
    assert [part for bundle in bundles for part in bundle] == parts
    served = [part for part in parts if isinstance(part, ServerPart)]
    assert [(part.first, part.last) for part in served] == [(head + 1, head + 5)]
    sizes = [sum(part.size_bytes for part in bundle) / (1 << 20) for bundle in bundles]
    enough = min(max(sum(mebibytes) / cores / 2, 4), 64)
    assert all(size >= enough for size in sizes[:-1])
    assert all(size < enough + 100 for size in sizes)


def test_many_small_segments_are_bundled_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that gets a record now and then has thousands: each is weighed a few times."""
    weighed: list[SegmentPart] = []

    def weigh(part: SegmentPart) -> int:
        weighed.append(part)
        return 100

    monkeypatch.setattr(SegmentPart, "size_bytes", property(weigh))
    pieces = [Placed(f"s{n}", piece(n + 1, n + 1, size=100)) for n in range(1000)]
    want = Want(plan(1000, [(1, 1000)], []), 1, 1000)
    (bundle,) = bundled(split([want], {3: pieces}, RecordSelection(), served=True), 2)
    assert isinstance(bundle, Bundle)
    assert len(bundle.parts) == 1000
    assert len(weighed) <= 2 * 1000


@pytest.mark.parametrize("sealed", [True, False])
def test_many_small_logs_are_few_tasks(sealed: bool) -> None:
    """Wherever their records are; a task costs more than a small log."""
    told = [
        msgspec.structs.replace(plan(10, [(1, 10)] if sealed else [], []), log=f"log-{n}", epoch=n)
        for n in range(2000)
    ]
    placed = {
        n: [Placed("s", msgspec.structs.replace(piece(1, 10, size=100), log=n, row_start=n * 10))]
        for n in range(2000)
        if sealed
    }
    parts = split([Want(each, 1, 10) for each in told], placed, RecordSelection(), served=True)
    assert len(parts) == (1 if sealed else 2000)
    assert len(bundled(parts, 2)) == (1 if sealed else 4)


def test_one_large_log_is_many_tasks() -> None:
    """In one segment and in what no segment has: by bytes, not by log."""
    pieces = [Placed("s", piece(n * 10 + 1, n * 10 + 10, n, size=40 << 20)) for n in range(10)]
    told = plan(1_000_100, [(1, 100)], [])
    told.bytes = 1000 * told.count
    parts = split([Want(told, 1, 1_000_100)], {3: pieces}, RecordSelection(), served=True)
    tasks = bundled(parts, 2)
    sizes = [sum(part.size_bytes for part in task.parts) for task in tasks]  # type: ignore[attr-defined]
    assert len(tasks) >= 13
    assert max(sizes) < 3 * splits.TASK_BYTES_MAX
