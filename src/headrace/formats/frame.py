"""A frame is an entry on disk: header, then the entry's bytes.

    length u32 · checksum u64 · synced u64 · kind u8 · log u64 · body

`length` counts the body. The checksum (XXH3-64) covers everything behind it and is seeded with the
frame's position in the journal, so that a stale or moved frame never passes for a valid one.
`synced` is the position the writer knew to be on stable storage when it made the frame: damage
below a `synced` that a later frame carries is damage; a bad frame that no later frame vouches for
is a torn tail.

Entries that must come true together or not at all share one frame: of kind `GROUP`, of no log, its
body a list of (kind, entry).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Iterator, Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from headrace.core.entry import KINDS, Append, Delete, Drop, Entry, Forward, Trim
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import FRAME_BYTES_MAX

_PREFIX = struct.Struct("<IQ")
_REST = struct.Struct("<QBQ")
_PREFIX_BYTES = _PREFIX.size
HEADER_BYTES = _PREFIX_BYTES + _REST.size
_ZEROES = bytes(64 << 10)
_MANY = 4096

GROUP = 11
RECORD_KINDS = {Append.KIND, Forward.KIND}
"""Kinds of entries that bring records to a log."""
_FATE_KINDS = RECORD_KINDS | {Delete.KIND, Trim.KIND, Drop.KIND}
"""Those, and kinds that take records away."""

_Group = list[tuple[int, msgspec.Raw]]

_encoder = msgspec.msgpack.Encoder()
_encode, _encode_into = _encoder.encode, _encoder.encode_into
_DECODERS = {number: msgspec.msgpack.Decoder(kind) for number, kind in KINDS.items()}
_group = msgspec.msgpack.Decoder(_Group)


class Frame(msgspec.Struct, gc=False):
    """One frame as found in a journal; the body is decoded only when asked for."""

    position: int
    size: int
    synced: int
    kind: int
    log: int
    body: memoryview

    @property
    def entries(self) -> list[Entry]:
        return self._decode(None)

    @property
    def record_entries(self) -> list[Entry]:
        """Only those entries of a group that bring records or take them away."""
        return self._decode(_FATE_KINDS)

    def _decode(self, of_group: Container[int] | None) -> list[Entry]:
        try:
            if self.kind != GROUP:
                return [_DECODERS[self.kind].decode(self.body)]
            return [
                _DECODERS[kind].decode(body)
                for kind, body in _group.decode(self.body)
                if of_group is None or kind in of_group
            ]
        except (KeyError, msgspec.MsgspecError) as error:
            raise Corrupt("journal", self.position, f"not an entry: {error}") from None


def encode_frame(entry: Entry, position: int, synced: int) -> bytearray:
    """The bytes of the frame at this position; refuses what no frame can hold.

    Encoded in place: a batch is copied once, not thrice.
    """
    frame = bytearray(HEADER_BYTES)
    _encode_into(entry, frame, HEADER_BYTES)
    return _finish(frame, entry.KIND, entry.log, position, synced)


def encode_group(entries: Sequence[Entry], position: int, synced: int) -> bytearray:
    """The bytes of one frame for all these entries, each encoded where it comes to lie."""
    frame = bytearray(HEADER_BYTES)
    # (Nothing takes one byte: what comes before it in a list or a pair is what we want.)
    frame += _encode([None] * len(entries))[: -len(entries)]
    for entry in entries:
        frame += _encode((entry.KIND, None))[:-1]
        _encode_into(entry, frame, len(frame))
    return _finish(frame, GROUP, 0, position, synced)


def _finish(frame: bytearray, kind: int, log: int, position: int, synced: int) -> bytearray:
    """The frame with its header, whose place comes first in it."""
    length = len(frame) - HEADER_BYTES
    if length > FRAME_BYTES_MAX:
        raise _too_large(len(frame))
    _REST.pack_into(frame, _PREFIX_BYTES, synced, kind, log)
    checksum = xxh3_64_intdigest(memoryview(frame)[_PREFIX_BYTES:], position)
    _PREFIX.pack_into(frame, 0, length, checksum)
    return frame


def check_append(entry: Append, beside_bytes: int = 0) -> None:
    """Refuse an append that no frame can hold with so much beside it, before anything is done.

    Only a large one is measured: nothing else of a record is as long as its data may be.
    """
    block = entry.block
    if len(block.data) > FRAME_BYTES_MAX // 8 or block.count > _MANY:
        size = len(_encode(entry))
        if size + beside_bytes > FRAME_BYTES_MAX:
            raise _too_large(size + beside_bytes)


def _too_large(size: int) -> Refused:
    return Refused(
        Code.BODY_TOO_LARGE,
        f"this would be {size} bytes in one piece; the journal takes {FRAME_BYTES_MAX}",
        max=FRAME_BYTES_MAX,
    )


def decode_frame(buffer: memoryview, offset: int, position: int) -> Frame | None:
    """The valid frame at this offset, or None when there is none.

    However large: one whose checksum is right was written, and is no damage.
    """
    body_at = offset + HEADER_BYTES
    if body_at > len(buffer):
        return None
    length, checksum = _PREFIX.unpack_from(buffer, offset)
    stop = body_at + length
    if stop > len(buffer):
        return None
    if xxh3_64_intdigest(buffer[offset + _PREFIX.size : stop], position) != checksum:
        return None
    synced, kind, log = _REST.unpack_from(buffer, offset + _PREFIX.size)
    return Frame(position, stop - offset, synced, kind, log, buffer[body_at:stop])


def read_frames(buffer: memoryview, start: int, where: str, *, final: bool) -> Iterator[Frame]:
    """The frames of a journal file that starts at position `start`.

    In the final file a torn tail ends the log; damage that a later frame vouches was synced is
    reported. Any other file was synced before the next one began, so a bad frame in it is damage.
    """
    offset = 0
    while offset < len(buffer):
        frame = decode_frame(buffer, offset, start + offset)
        if frame is None:
            if not final:
                raise Corrupt(where, offset, "damaged frame in a file that was synced")
            _check_torn(buffer, offset, start, where)
            return
        yield frame
        offset += frame.size


def blank_from(buffer: memoryview, offset: int) -> int:
    """Where the zeroes at the end begin, from `offset` on: a journal file may be made of them."""
    stop = len(buffer)
    while stop > offset:
        piece = bytes(buffer[max(offset, stop - len(_ZEROES)) : stop])
        if piece != _ZEROES[: len(piece)]:
            return stop - len(piece) + len(piece.rstrip(b"\0"))
        stop -= len(piece)
    return offset


def _check_torn(buffer: memoryview, offset: int, start: int, where: str) -> None:
    """Refuse to take damage for a torn tail: look for a later frame that vouches for its bytes."""
    for later in _candidates(buffer, offset, start):
        synced = _REST.unpack_from(buffer, later + _PREFIX.size)[0]
        if not start + offset < synced <= start + later:
            continue
        if decode_frame(buffer, later, start + later) is not None:
            raise Corrupt(where, offset, f"damaged frame; the journal goes on at byte {later}")


def _candidates(buffer: memoryview, offset: int, start: int) -> Iterator[int]:
    """Offsets behind `offset` at which the header of such a frame may begin.

    Its `synced` lies inside the file and so begins as all positions in it do, and a kind follows:
    a search for those bytes is many times faster than a look at each offset.
    """
    stop = blank_from(buffer, offset)
    low, high = start + offset, start + stop
    loose = ((low ^ high).bit_length() + 7) // 8
    known = high.to_bytes(8, "little")[loose:]
    pattern = re.compile(b"(?=%s[^\0])" % re.escape(known), re.DOTALL)
    skipped = _PREFIX.size + loose
    for found in pattern.finditer(buffer, offset + 1 + skipped, stop):
        later = found.start() - skipped
        if later + HEADER_BYTES <= len(buffer):
            yield later
