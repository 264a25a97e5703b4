"""Manifests: the list of segments, and how it changes."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.errors import Corrupt
from headrace.formats.manifest import (
    Build,
    Manifest,
    Named,
    Segment,
    decode_root,
    dropped,
    encode_root,
    replaced,
    sealed,
)


def test_a_manifest_comes_back() -> None:
    manifest = Manifest(version=3, next_number=2, sealed_to=500)
    raw = encode_root(manifest)
    assert decode_root(raw, "m") == manifest


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"version":"x"}', b"\xff", b'{"format":99}'])
def test_anything_else_is_damage(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_root(raw, "m")


def test_a_manifest_cut_short_is_damage() -> None:
    raw = encode_root(Manifest(version=3))
    for stop in range(len(raw.rstrip())):
        with pytest.raises(Corrupt):
            decode_root(raw[:stop], "m")


def made(name: str, number: int = 0, start: int = 0, stop: int = 1) -> Segment:
    return Segment(
        number=number, name=name, index=name + ".i", tags=None, journal_start=start,
        journal_stop=stop, logs=1, rows=1, record_bytes=1, file_bytes=1, checksum="", since=1,
        index_checksum="", tags_checksum=None,
    )  # fmt: skip


def build_of(*numbers: int) -> Build:
    return Build(
        segments=numbers, name=f"builds/{numbers}", checksum="", plans=1, rows=1, file_bytes=1
    )


FOUR = Manifest(
    version=7,
    next_number=5,
    sealed_to=40,
    segments=tuple(made(f"s{n}", n, n * 10 - 10, n * 10) for n in (1, 2, 3, 4)),
    builds=(build_of(2), build_of(3, 4), build_of(1)),
)


def test_old_manifests_without_builds_plans_and_marks_are_read() -> None:
    raw = b'{"format":1,"version":2,"next_number":3,"sealed_to":9,"segments":[]}'
    assert decode_root(raw, "m") == Manifest(version=2, next_number=3, sealed_to=9)


def test_everything_in_a_manifest_comes_back() -> None:
    named = Named(name="plans/1.json", checksum="ab", generation=1)
    full = msgspec.structs.replace(FOUR, plans=named, marks=named)
    assert decode_root(encode_root(full), "m") == full


def test_a_sealed_segment_gets_the_next_number_and_comes_last() -> None:
    after = sealed(FOUR, made("s5", 99, 40, 50), 50)
    assert after is not None
    assert after.segments[:-1] == FOUR.segments
    assert after.segments[-1] == msgspec.structs.replace(
        made("s5", 5, 40, 50), since=FOUR.version + 1
    )
    assert (after.sealed_to, after.next_number) == (50, 6)
    assert sealed(after, made("again", 0, 40, 50), 50) is None


def test_sealing_nothing_moves_on() -> None:
    after = sealed(FOUR, None, 50)
    assert after == msgspec.structs.replace(FOUR, sealed_to=50)


def test_replaced_segments_leave_their_place_to_what_they_became() -> None:
    after = replaced(FOUR, [3, 2], [made("p-a"), made("p-b")])
    assert after is not None
    assert [s.number for s in after.segments] == [1, 5, 6, 4]
    assert [s.name for s in after.segments] == ["s1", "p-a", "p-b", "s4"]
    for output in after.segments[1:3]:
        assert (output.journal_start, output.journal_stop) == (10, 30)
        assert (output.sources, output.since) == ((2, 3), 8)
    assert after.next_number == 7
    assert after.builds == (build_of(3, 4), build_of(1))
    assert replaced(after, [2, 3], [made("p-c")]) is None


def test_segments_apart_are_not_replaced_together() -> None:
    with pytest.raises(ValueError, match="neighbours"):
        replaced(FOUR, [1, 3], [made("p-a")])


def test_dropped_segments_take_their_builds_with_them() -> None:
    after = dropped(FOUR, {3, 4, 17})
    assert after is not None
    assert [s.number for s in after.segments] == [1, 2]
    assert after.builds == (build_of(2), build_of(1))
    assert dropped(after, {3}) is None
