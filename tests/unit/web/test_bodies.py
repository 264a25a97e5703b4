"""Request bodies: what is unpacked on the loop, what beside it, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import INLINE_BYTES_MAX
from headrace.web import bodies
from headrace.web.bodies import Inflation, check_utf8, read_body, read_bytes


class Sent:
    """A request, as far as bodies look at it; it is its own stream."""

    content_type = "application/json"
    complete = False

    def __init__(self, raw: bytes, encoding: str | None = "gzip") -> None:
        self._raw, self._encoding = raw, encoding
        self.content_length = len(raw)

    async def read(self, size_max: int) -> bytes:
        return self._raw[: size_max + 1]

    def get_header(self, name: str) -> str | None:
        return self._encoding if name == "CONTENT-ENCODING" else None


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done beside the loop."""
    done: list[Any] = []

    async def note(work: Any, given: Any) -> None:
        done.append(work.__name__)
        work(given)

    monkeypatch.setattr(bodies, "_beside", note)
    return done


def read(sent: Sent, bytes_max: int = 64 << 20) -> bytes:
    return asyncio.run(read_bytes(sent, bytes_max))  # type: ignore[arg-type]


def test_a_small_body_is_unpacked_at_once(beside: list[Any]) -> None:
    plain = b'{"a":1}' * 1000
    assert read(Sent(gzip.compress(plain))) == plain
    assert read(Sent(plain, None)) == plain
    assert read(Sent(plain, "identity")) == plain
    assert not beside


def test_of_a_large_body_no_more_than_a_part_is_unpacked_on_the_loop(beside: list[Any]) -> None:
    plain = b"[" + b"[]," * 1_000_000 + b"[]]"
    inflation = Inflation(gzip.compress(plain), 64 << 20)
    assert not inflation.go_on(INLINE_BYTES_MAX)
    assert len(inflation.plain) == INLINE_BYTES_MAX
    assert read(Sent(gzip.compress(plain))) == plain
    assert beside == ["go_on"]


@pytest.mark.parametrize("bytes_max", [100, INLINE_BYTES_MAX - 1, INLINE_BYTES_MAX, 3 << 20])
def test_a_body_is_as_large_as_its_limit_at_most(bytes_max: int) -> None:
    assert len(read(Sent(gzip.compress(b"x" * bytes_max)), bytes_max)) == bytes_max
    for more in (1, 1 << 20):
        inflation = Inflation(gzip.compress(b"x" * (bytes_max + more)), bytes_max)
        if bytes_max >= INLINE_BYTES_MAX:
            assert not inflation.go_on(INLINE_BYTES_MAX)
        with pytest.raises(Refused) as refused:
            inflation.go_on(1 << 30)
        assert refused.value.code is Code.BODY_TOO_LARGE
        assert len(inflation.plain) == bytes_max + 1


@pytest.mark.parametrize("size", [3, 1 << 13])
def test_what_is_no_whole_gzip_is_refused(size: int) -> None:
    packed = gzip.compress(bytes(range(256)) * size)
    for raw in (packed[:-1], packed[: len(packed) // 2], packed + b"x", packed * 2, b"x" + packed):
        with pytest.raises(Refused, match="gzip") as refused:
            read(Sent(raw), 1 << 30)
        assert refused.value.code is Code.INVALID


def test_utf8_is_looked_at_in_parts(beside: list[Any]) -> None:
    for size in (1, INLINE_BYTES_MAX - 1, INLINE_BYTES_MAX, 2 * INLINE_BYTES_MAX + 1):
        check_utf8(b"x" * size + "ü€😀".encode())
        for bad in (b"\xff", b"\xc3", "€".encode()[:2], b"\xed\xa0\x80"):
            with pytest.raises(Refused, match=rf"byte {size}\)"):
                check_utf8(b"x" * size + bad)
    large = b'"' + "ü".encode() * INLINE_BYTES_MAX + b'"'
    assert asyncio.run(read_body(Sent(large, None), 64 << 20)) == large  # type: ignore[arg-type]
    assert beside == ["check_utf8"]
