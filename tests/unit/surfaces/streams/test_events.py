from __future__ import annotations

from headrace.core.read import Page, Slice
from headrace.core.record import block, draft
from headrace.surfaces.streams.events import pieces_array, pieces_raw, render_array, render_raw


def page(*batches: list[bytes]) -> Page:
    """All records but the first of each batch."""
    slices, first = [], 1
    for batch in batches:
        slices.append(Slice(block(draft(batch), first, 0), range(1, len(batch))))
        first += len(batch)
    return Page(slices, first - 1, first - 1, 1, None, 0)


def test_large_blocks_are_sent_as_they_are() -> None:
    large = b"x" * 40_000
    assert pieces_raw(page([b"0", large, large], [b"0", large])) == [large + large, large]


def test_small_blocks_are_joined() -> None:
    small = page([b"0", b"1", b"2"], [b"0", b"3"])
    assert pieces_raw(small) == [b"123"] == [render_raw(small)]
    assert render_array(small) == b"[1,2,3]" == b"".join(pieces_array(small))


def test_an_empty_page_is_empty() -> None:
    assert pieces_raw(page()) == [b""]
    assert render_array(page()) == b"[]"
