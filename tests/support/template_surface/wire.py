"""The JSON of diaries."""

from __future__ import annotations

import msgspec


class WriteRequest(msgspec.Struct):
    """One line of a diary."""

    text: str


class WriteReply(msgspec.Struct):
    line: int
