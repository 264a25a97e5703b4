"""Why the server ends a connection; each protocol has its own words for it."""

from __future__ import annotations

import msgspec


class ShuttingDown(msgspec.Struct, frozen=True):
    """The server is about to stop."""


class SlowConsumer(msgspec.Struct, frozen=True):
    """The peer did not take what was sent for too long."""


class Replaced(msgspec.Struct, frozen=True):
    """A newer connection took its place."""


class Over(msgspec.Struct, frozen=True):
    """There is nothing left to send, ever."""


class Expired(msgspec.Struct, frozen=True):
    """It was to last no longer."""


class StreamFailed(msgspec.Struct, frozen=True):
    """It cannot go on: a status as HTTP has it, and what happened."""

    status: int
    message: str


Ending = ShuttingDown | SlowConsumer | Replaced | Over | Expired | StreamFailed


def describe(ending: Ending) -> tuple[int, str] | None:
    """The status and message of an ending; nothing when there is nothing to say."""
    match ending:
        case ShuttingDown():
            return 503, "the server is shutting down"
        case SlowConsumer():
            return 408, "the connection was blocked for too long; connect again to go on"
        case Replaced():
            return 409, "a newer connection took over this session"
        case StreamFailed(status, message):
            return status, message
        case Over() | Expired():
            return None
