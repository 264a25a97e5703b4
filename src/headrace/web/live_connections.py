"""Connections that are pushed to, by who opened them: whose credential ends, theirs end."""

from __future__ import annotations

from collections.abc import Callable

from headrace.delivery.endings import StreamFailed
from headrace.delivery.sink import Sink

REVOKED = StreamFailed(401, "the credential that opened this was revoked")


class LiveConnections:
    """The open sinks of each principal."""

    __slots__ = ("_sinks",)

    def __init__(self) -> None:
        self._sinks: dict[str, set[Sink]] = {}

    def join(self, principal_id: str, sink: Sink, on_end: Callable[[], None]) -> Callable[[], None]:
        """Note a sink; returns what is to be called when it ends, in place of `on_end`."""
        sinks = self._sinks.setdefault(principal_id, set())
        sinks.add(sink)

        def leave() -> None:
            sinks.discard(sink)
            if not sinks and self._sinks.get(principal_id) is sinks:
                del self._sinks[principal_id]
            on_end()

        return leave

    def count(self, principal_id: str) -> int:
        return len(self._sinks.get(principal_id, ()))

    def end(self, principal_id: str) -> None:
        """End all connections of a principal whose credential was revoked."""
        for sink in tuple(self._sinks.get(principal_id, ())):
            sink.end(REVOKED)
