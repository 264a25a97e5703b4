"""The body of a write as drafts: one record of bytes, or one for each JSON message."""

from __future__ import annotations

from array import array
from itertools import accumulate

import msgspec
from msgspec import Raw

from headrace.core.errors import Code, Refused
from headrace.core.limits import NESTING_MAX
from headrace.core.record import Drafts
from headrace.core.stream_state import JSON, media_type
from headrace.formats.nesting import is_too_deep
from headrace.web.bodies import check_utf8

_array = msgspec.json.Decoder(list[Raw])
_value = msgspec.json.Decoder(Raw)
_SPACE = b" \t\r\n"


def parse_drafts(body: bytes, content_type: str, key: str | None) -> Drafts | None:
    """The records of a body; None for a JSON array without elements."""
    if content_type != JSON and media_type(content_type) != JSON:
        keys: list[str | None] | None = None if key is None else [key]
        ends = array("I", [len(body)]).tobytes()
        return Drafts(body, ends, keys=keys, media=content_type)
    messages = _parse_messages(body)
    if not messages:
        return None
    lengths = [*map(len, messages)]
    if max(lengths) > 2 * NESTING_MAX and any(is_too_deep(bytes(each)) for each in messages):
        raise Refused(Code.INVALID, f"JSON nests at most {NESTING_MAX} levels")
    ends = array("I", accumulate(lengths)).tobytes()
    return Drafts(b"".join(messages), ends, keys=None if key is None else [key] * len(messages))


def _parse_messages(body: bytes) -> list[Raw]:
    """One level of an array is taken apart; anything else is one message."""
    check_utf8(body)
    try:
        if body.lstrip(_SPACE)[:1] == b"[":
            return _array.decode(body)
        return [Raw(bytes(_value.decode(body)).strip(_SPACE))]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refused(Code.INVALID, f"the body is not JSON: {error}") from None
