"""The two dialects: the few answers in which they differ, as a table.

`NATIVE` is that of our own contract, `BASE` that of the base protocol, whose public clients and
conformance tests speak it. Streams, storage and rules are the same.
"""

from __future__ import annotations

import msgspec

from headrace.core.stream_state import BYTES


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one mount answers."""

    appended: int
    """Status of an append."""
    deletes_unknown: bool
    """Whether deleting what is not there is a success."""
    json_by_default: bool
    """Whether a JSON stream is read as an array unless asked otherwise."""
    default_type: str | None
    """The content type that creating without one stands for when the stream exists; None: any."""
    settled: str
    """Cache-Control of a page that can never change."""
    open: str
    """Cache-Control of a page that may be another one later."""
    arrived: str
    """Cache-Control of what a long-poll brought."""
    shows_deadline: bool
    """Whether a stream with a TTL says when it would end."""
    subscriptions: bool
    """Whether there are subscriptions, below `__ds`."""

    def private(self) -> Dialect:
        """The same for a server with keys: what one caller was given is not for others."""
        return msgspec.structs.replace(
            self,
            settled=_private(self.settled),
            open=_private(self.open),
            arrived=_private(self.arrived),
        )


def _private(caching: str) -> str:
    """Cache-Control for the cache of the caller alone."""
    if caching == "no-store":
        return caching
    return "private, " + caching.removeprefix("public, ")


NATIVE = Dialect(
    appended=200,
    deletes_unknown=True,
    json_by_default=False,
    default_type=None,
    settled="immutable, max-age=31536000",
    open="no-cache",
    arrived="no-store",
    shows_deadline=True,
    subscriptions=False,
)
_SHARED = "public, max-age=60, stale-while-revalidate=300"
BASE = Dialect(
    appended=204,
    deletes_unknown=False,
    json_by_default=True,
    default_type=BYTES,
    settled=_SHARED,
    open=_SHARED,
    arrived=_SHARED,
    shows_deadline=False,
    subscriptions=True,
)
DIALECTS = {"native": NATIVE, "base": BASE}
