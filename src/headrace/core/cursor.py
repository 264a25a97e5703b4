"""Opaque list cursors: where a listing goes on, readable by nobody but us."""

from __future__ import annotations

import base64

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import CURSOR_LENGTH_MAX


class _After(msgspec.Struct, forbid_unknown_fields=True):
    after: str


def encode_cursor(after: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_After(after))).decode()


def parse_cursor(text: str) -> str:
    """The name to go on after; a cursor we did not make is refused."""
    try:
        if len(text) > CURSOR_LENGTH_MAX:
            raise ValueError(text)
        raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=_After).after
    except (ValueError, msgspec.MsgspecError):
        raise Refused(Code.INVALID, "this cursor is not one of ours", field="cursor") from None
