"""Composite cursors: where a reader stands in each of several topics, as the id of an event.

The id is a JSON map from topic to seq, in base64url. A topic that was deleted and created again
while it was watched goes by its name and its epoch, `jobs@57`. A map too long for a header is
replaced by a checkpoint, which only its own session understands: the seqs alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.core.base64url import decode_base64url, encode_base64url
from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    COMPOSITE_BYTES_MAX,
    CURSOR_BYTES_MAX,
    CURSOR_DEAD_MAX,
    CURSOR_ORDERS_MAX,
    U64_MAX,
)

_CHECKPOINT = "c."
_MORE = 0x80
_SEQ_BITS = 64
_AT = "@"

_seqs = msgspec.json.Decoder(dict[str, int])


class Checkpoint(msgspec.Struct, frozen=True):
    """A cursor without names; `tag` and `order` say which names belong to its seqs."""

    tag: str
    order: int
    seqs: list[int]


Composite = dict[str, int] | Checkpoint


def format_label(topic: str, epoch: int | None) -> str:
    """What a topic goes by in a cursor."""
    return topic if epoch is None else f"{topic}{_AT}{epoch}"


def parse_label(label: str) -> tuple[str, int | None]:
    """The topic, and its epoch if the label tells; ValueError for one that we did not make."""
    topic, at, digits = label.partition(_AT)
    if not at:
        return topic, None
    epoch = parse_digits(digits, U64_MAX)
    if epoch is None:
        raise ValueError(label)
    return topic, epoch


def encode_map(members: Iterable[bytes]) -> bytes:
    """The id made of what `encode_member` gives."""
    return encode_base64url(b"{" + b",".join(members) + b"}")


def encode_member(label: str, seq: int) -> bytes:
    return b'"%b":%d' % (label.encode(), seq)


def parse_composite(text: str) -> Composite:
    """The cursor; one that we did not make is refused."""
    try:
        if len(text) > CURSOR_BYTES_MAX:
            raise ValueError(text)
        if text.startswith(_CHECKPOINT):
            _, tag, order, packed = text.split(".", 3)
            return Checkpoint(tag, int(order), _parse_seqs(decode_base64url(packed)))
        seqs = _seqs.decode(decode_base64url(text))
        if not all(0 <= seq <= U64_MAX for seq in seqs.values()):
            raise ValueError(text)
        for label in seqs:
            parse_label(label)
        return seqs
    except (ValueError, msgspec.MsgspecError):
        raise Refused(Code.INVALID, "this cursor is not one of ours", field="cursor") from None


class CursorHistory:
    """How far a session's events have told, topic by topic: makes their ids."""

    __slots__ = ("_dead", "_members", "_orders", "_seqs", "_size", "_tag")

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._seqs: dict[str, int] = {}
        self._members: dict[str, bytes] = {}
        self._size = 0
        self._orders: dict[int, list[str]] = {0: []}
        """In which order the seqs of a checkpoint are; a new one when the last holds many dead."""
        self._dead = 0

    def tell(self, label: str, seq: int) -> None:
        """The reader is told that it stands here."""
        member = encode_member(label, seq)
        before = self._members.get(label)
        if before is None:
            self._size += len(member) + 1
            self._orders[max(self._orders)].append(label)
        else:
            self._size += len(member) - len(before)
        self._members[label] = member
        self._seqs[label] = seq

    def restart(self, seqs: dict[str, int]) -> None:
        """A reader begins to hear again: it stands here, and nothing else was told."""
        for label in [label for label in self._members if label not in seqs]:
            self.drop(label)
        for label, seq in seqs.items():
            self.tell(label, seq)

    def drop(self, label: str) -> None:
        """The topic is gone for good."""
        if label not in self._members:
            return
        self._size -= len(self._members.pop(label)) + 1
        del self._seqs[label]
        self._dead += 1
        if self._dead > CURSOR_DEAD_MAX + len(self._members):
            self._orders[max(self._orders) + 1] = list(self._members)
            self._dead = 0
            if len(self._orders) > CURSOR_ORDERS_MAX:
                del self._orders[min(self._orders)]

    def id(self) -> bytes:
        """The id of an event, now."""
        if self._size * 4 // 3 <= COMPOSITE_BYTES_MAX:
            return encode_map(self._members.values())
        order = max(self._orders)
        raw = _encode_seqs(self._seqs.get(label, 0) for label in self._orders[order])
        return f"{_CHECKPOINT}{self._tag}.{order}.".encode() + encode_base64url(raw)

    def resolve(self, cursor: Composite) -> dict[str, int] | None:
        """Labels and seqs of a cursor; nothing is known of a checkpoint that is too old."""
        if not isinstance(cursor, Checkpoint):
            return cursor
        order = self._orders.get(cursor.order)
        return None if order is None else dict(zip(order, cursor.seqs, strict=False))

    def is_foreign(self, cursor: Composite) -> bool:
        """Whether this is a checkpoint of another session."""
        return isinstance(cursor, Checkpoint) and cursor.tag != self._tag


def _encode_seqs(seqs: Iterable[int]) -> bytearray:
    raw = bytearray()
    for seq in seqs:
        while seq >= _MORE:
            raw.append(seq & (_MORE - 1) | _MORE)
            seq >>= 7
        raw.append(seq)
    return raw


def _parse_seqs(raw: bytes) -> list[int]:
    seqs, seq, shift = [], 0, 0
    for byte in raw:
        if shift >= _SEQ_BITS:
            raise ValueError(raw)
        seq |= (byte & (_MORE - 1)) << shift
        shift += 7
        if byte < _MORE:
            seqs.append(seq)
            seq, shift = 0, 0
    if shift or any(seq > U64_MAX for seq in seqs):
        raise ValueError(raw)
    return seqs
