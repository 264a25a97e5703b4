"""Bodies that bring no events: small JSON, as the document of the surface describes it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from headrace.core.errors import Refused
from headrace.core.limits import FEED_COMMAND_BYTES_MAX
from headrace.surfaces.feeds.errors import VENDOR
from headrace.web.calls import Call, decode

T = TypeVar("T")


async def read_command(call: Call, decoder: msgspec.json.Decoder[T], default: bytes = b"") -> T:
    """What a body says; `default` is for none at all."""
    body = await call.command(FEED_COMMAND_BYTES_MAX, VENDOR) or default
    try:
        return decode(decoder, body)
    except Refused as refused:
        if "`float`" not in refused.message:
            raise
    # A whole number is one in JSON Schema whether or not it is written with a point.
    whole = decode(msgspec.json.Decoder(), body)
    return decode(decoder, msgspec.json.encode(_with_whole_numbers(whole)))


def _with_whole_numbers(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_whole_numbers(item) for name, item in value.items()}
        case list():
            return [_with_whole_numbers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
