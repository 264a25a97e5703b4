from __future__ import annotations

import pytest

from headrace_bench.watching import parse_stamps

FIRST = b"^0000000000000000007"
SECOND = b"^0000000000000000042"


@pytest.mark.parametrize(
    ("raw", "stamps_ns", "rest"),
    [
        (b"", [], b""),
        (b": hb 1748467205000\n\n", [], b""),
        (b"data: " + FIRST + b"ab\n\n", [7], b""),
        (b"\x81\x7e\x00\xc8" + FIRST + b'ab"},{' + SECOND, [7, 42], b""),
        (b"data: " + FIRST + b"ab\n\ndata: ^00000", [7], b"^00000"),
        (b"data: ^", [], b"^"),
    ],
)
def test_stamps_are_found_in_whatever_is_around_them(
    raw: bytes, stamps_ns: list[int], rest: bytes
) -> None:
    # What is behind the received bytes is older, and not to be looked at.
    buffer = bytearray(raw + SECOND)
    found, stop = parse_stamps(buffer, len(raw))
    assert found == stamps_ns
    assert buffer[stop : len(raw)] == rest


@pytest.mark.parametrize("cut", range(len(FIRST) + 1))
def test_a_stamp_cut_anywhere_is_found_once(cut: int) -> None:
    raw = b"data: " + FIRST + b"\n\n"
    at = len(b"data: ") + cut
    found, stop = parse_stamps(bytearray(raw[:at]), at)
    later, _ = parse_stamps(bytearray(raw[stop:]), len(raw) - stop)
    assert found + later == [7]
