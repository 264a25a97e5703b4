"""The stamps of a dead letter, in its meta: where it failed, how often, and as which job."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw

FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SOURCE_SEQ = "$dead_letter_src_seq"
_STAMPS = (FROM, DELIVERIES, SOURCE_SEQ)
_MARK = b'"$dead_letter_'

_meta = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.encode


def stamp(meta: bytes | None, queue: str, deliveries: int, seq: int) -> bytes:
    """The meta with new stamps; what else is in it stays as it was sent.

    They come last: of two members with one name, the last counts.
    """
    fresh = _encode({FROM: queue, DELIVERIES: str(deliveries), SOURCE_SEQ: str(seq)})
    rest, _ = strip(meta)
    inner = b"" if rest is None else rest.strip()[1:-1].strip()
    return b"{" + inner + b"," + fresh[1:] if inner else fresh


def strip(meta: bytes | None) -> tuple[bytes | None, str | None]:
    """The meta without stamps, nothing if nothing is left; and the queue that stands in them."""
    if meta is None or _MARK not in meta:
        return meta, None
    fields = _meta.decode(meta)
    queue = _text(fields.get(FROM))
    left = {name: value for name, value in fields.items() if name not in _STAMPS}
    return (_encode(left) if left else None), queue


def queues_named(metas: Iterable[bytes | None] | None) -> set[str]:
    """The queues to which stamps in these metas would lead a re-drive: anybody can write a meta."""
    marked = [meta for meta in metas or () if meta is not None and _MARK in meta]
    return {queue for meta in marked if (queue := strip(meta)[1]) is not None}


def _text(raw: Raw | None) -> str | None:
    """A string, if it is one."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None
