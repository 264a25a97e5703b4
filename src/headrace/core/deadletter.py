"""The stamps of a dead letter, in its meta: where it failed, how often, and as which job."""

from __future__ import annotations

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
    fresh = _encode({FROM: queue, DELIVERIES: deliveries, SOURCE_SEQ: seq})
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


def _text(raw: Raw | None) -> str | None:
    """A string, if it is one: anybody can write a meta."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None
