"""What goes out: pages as bytes or as a JSON array, their tags, and the cursors of live readers."""

from __future__ import annotations

from urllib.parse import quote

from headrace.core.digits import parse_digits
from headrace.core.read import Page, Slice

_CURSOR_EPOCH_S = 1_728_432_000
"""2024-10-09T00:00:00Z, from which on the intervals of cursors are counted."""
_CURSOR_INTERVAL_S = 20
_CURSOR_MAX = 10**64 - 1
CURSOR_JITTER_S = 3600
_PIECE_BYTES = 16 << 10
"""What a piece must have on average to be sent as it is: each one costs a few microseconds."""


def pieces_raw(page: Page) -> list[bytes]:
    """The payloads one behind the other, in as few pieces as there are blocks.

    Neighbours in a block are neighbours in memory: nothing is copied unless pieces are small.
    """
    pieces = [_run(piece) for piece in page.slices]
    if sum(map(len, pieces)) <= _PIECE_BYTES * len(pieces):
        return [b"".join(pieces)]
    return pieces


def render_raw(page: Page) -> bytes:
    """The payloads one behind the other."""
    return b"".join(pieces_raw(page))


def _run(piece: Slice) -> bytes:
    block, picks = piece.block, piece.picks
    if isinstance(picks, range):
        cuts = block.cuts()
        start = cuts[picks.start - 1] if picks.start else block.base
        return block.data[start : cuts[picks.stop - 1]]
    return b"".join([block.data_at(index) for index in picks])


def pieces_array(page: Page) -> list[bytes]:
    """The payloads as a JSON array."""
    return [b"[", b",".join([data for piece in page.slices for data in _payloads(piece)]), b"]"]


def render_array(page: Page) -> bytes:
    return b"".join(pieces_array(page))


def _payloads(piece: Slice) -> list[bytes]:
    block, picks = piece.block, piece.picks
    if not isinstance(picks, range):
        return [block.data_at(index) for index in picks]
    data, cuts = block.data, block.cuts()
    ends = cuts[picks.start : picks.stop]
    starts = [cuts[picks.start - 1] if picks.start else block.base, *ends[:-1]]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def format_tag(
    start: str,
    next: str,
    key: str | None,
    format: str,
    *,
    filter: str | None = None,
    plan: str | None = None,
    closed: bool,
    version: int = 0,
) -> str:
    """What a page is: the same tag means the same bytes under the same headers."""
    slice = f"slice:{start}:{next}:key={quote(key or '', safe='')}:fmt={format}"
    slice += f":filter={quote(filter or '', safe='')}"
    if plan is not None:  # what a filter finds depends on how the stream can be searched
        slice += f":plan={plan}"
    promoted = f":version={version}" if version > 1 else ""
    return f'W/"{slice}{promoted}{":closed" if closed else ""}"'


def next_cursor(sent: str | None, now_ms: int, jitter_s: int) -> str:
    """The interval of now; one beyond the client's when that is not behind."""
    current = (now_ms // 1000 - _CURSOR_EPOCH_S) // _CURSOR_INTERVAL_S
    known = parse_digits(sent, _CURSOR_MAX) if sent else None
    if known is None or known < current:
        return str(current)
    return str(known + max(1, jitter_s // _CURSOR_INTERVAL_S))
