"""The bytes of tar headers: USTAR as we write it, and what else others write (POSIX pax, GNU).

Reading is strict: a header that is not what the format says is no header.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.limits import U64_MAX

BLOCK_BYTES = 512
RECORD_BYTES = 20 * BLOCK_BYTES
"""An archive is filled up with zeroes to a multiple of this."""
ZERO_BLOCK = bytes(BLOCK_BYTES)

_HEADER = Struct("100s 8s 8s 8s 12s 12s 8s c 100s 6s 2s 32s 32s 8s 8s 155s 12x")
_CHECKSUM = slice(148, 156)
_USTAR = b"ustar\0"
_NAME_BYTES_MAX = 100

REGULAR = frozenset({b"0", b"\0"})
DIRECTORY = b"5"
LINKS = frozenset({b"1", b"2"})
PAX, PAX_GLOBAL = b"x", b"g"
GNU_LONG_NAME, GNU_LONG_LINK = b"L", b"K"


class NotTar(Exception):
    """Bytes that are no header of a tar archive."""


class TarHeader(msgspec.Struct, frozen=True):
    """What precedes the bytes of a member."""

    name: bytes
    type: bytes
    size: int


def format_header(name: str, size: int) -> bytes:
    """The header of a file: of no owner, of no time, readable by all."""
    raw = name.encode()
    if len(raw) > _NAME_BYTES_MAX:
        raise ValueError(f"{name[:80]!a} is too long for a tar header")
    fields = (
        raw, b"0000644", b"0000000", b"0000000", b"%011o" % size, b"%011o" % 0, b" " * 8, b"0",
        b"", _USTAR, b"00", b"", b"", b"", b"", b"",
    )  # fmt: skip
    block = bytearray(_HEADER.pack(*fields))
    block[_CHECKSUM] = b"%06o\0 " % sum(block)
    return bytes(block)


def parse_header(block: bytes) -> TarHeader:
    """The header in a block that is not all zeroes."""
    checksum = _octal(block[_CHECKSUM])
    summed = block[: _CHECKSUM.start] + b" " * 8 + block[_CHECKSUM.stop :]
    if checksum != sum(summed) and checksum != _signed_sum(summed):
        raise NotTar("the checksum of a header is wrong")
    fields = _HEADER.unpack(block)
    name = _text(fields[0])
    prefix = _text(fields[15]) if fields[9] == _USTAR else b""
    return TarHeader(prefix + b"/" + name if prefix else name, fields[7], _octal(fields[4]))


def parse_pax(records: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keywords and values of an extended header: `<length> <keyword>=<value>\\n` each."""
    at = 0
    while at < len(records):
        space = records.find(b" ", at, at + 8)
        length = parse_digits(records[at:space].decode("latin-1"), len(records) - at)
        if space < 0 or not length or length <= space - at + 1:
            raise NotTar("an extended header is malformed")
        keyword, equals, value = records[space + 1 : at + length].partition(b"=")
        if not (keyword and equals and value.endswith(b"\n")):
            raise NotTar("an extended header is malformed")
        yield keyword, value[:-1]
        at += length


def parse_pax_size(value: bytes) -> int:
    """The size of a member as an extended header has it."""
    size = parse_digits(value.decode("latin-1"), U64_MAX)
    if size is None:
        raise NotTar("the size of a member is malformed")
    return size


def padding_of(size: int) -> int:
    """How many zeroes follow so many bytes of a member."""
    return -size % BLOCK_BYTES


def _signed_sum(block: bytes) -> int:
    """What some old programs wrote as a checksum: they took bytes to be signed."""
    return sum(block) - 256 * sum(byte > 127 for byte in block)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        raise NotTar("a number in a header is not octal")
    return int(digits, 8)
