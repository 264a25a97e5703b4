"""Connections that are pushed to, and long polls, by who opened them: whose credential ends, theirs
end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.delivery.endings import Ending, StreamFailed

REVOKED = StreamFailed(401, "the credential that opened this was revoked")


class Live(Protocol):
    """What lasts for as long as something new may come: a sink, or a long poll."""

    def end(self, ending: Ending) -> None: ...


class LiveConnections:
    """What is open of each principal."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, set[Live]] = {}

    def join(self, principal_id: str, live: Live, on_end: Callable[[], None]) -> Callable[[], None]:
        """Note one; returns what is to be called when it ends, in place of `on_end`."""
        others = self._open.setdefault(principal_id, set())
        others.add(live)

        def leave() -> None:
            others.discard(live)
            if not others and self._open.get(principal_id) is others:
                del self._open[principal_id]
            on_end()

        return leave

    def count(self, principal_id: str) -> int:
        return len(self._open.get(principal_id, ()))

    def end(self, principal_id: str) -> None:
        """End all that is open of a principal whose credential was revoked."""
        for live in tuple(self._open.get(principal_id, ())):
            live.end(REVOKED)
