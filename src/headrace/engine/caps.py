"""What the whole instance may hold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.entry import Append
from headrace.core.errors import Code, Refused
from headrace.core.state import State


class Caps(msgspec.Struct, frozen=True):
    """Limits of the whole instance; 0 means none."""

    logs: Mapping[str, int] = {}
    """Most logs, by owner."""
    routers: int = 0
    total_bytes: int = 0
    tail_bytes: int = 256 << 20

    def check_logs(self, state: State, owner: str, more: int = 1) -> None:
        """Refuse when this owner would have more logs than it may have."""
        limit = self.logs.get(owner, 0)
        if more and limit and state.count_of(owner) + more > limit:
            raise _too_many(owner, limit)

    def check_routers(self, count: int) -> None:
        """Refuse another router when there are so many."""
        if self.routers and count >= self.routers:
            raise _too_many("routers", self.routers)

    def check_total(self, state: State, entry: Append) -> None:
        """Refuse what would take the stored records over the limit of the instance."""
        if self.total_bytes:
            shed = entry.trim.size_bytes if entry.trim else 0
            self.check_growth(state, entry.block.size_bytes - shed)

    def check_growth(self, state: State, size_bytes: int) -> None:
        """Refuse when the stored records may not grow by so much."""
        limit = self.total_bytes
        if limit and state.size_bytes + size_bytes > limit:
            raise Refused(
                Code.THROTTLED,
                f"this write would take the stored records over {limit} bytes",
                limit="max_total_bytes",
                max=limit,
            )


def _too_many(what: str, limit: int) -> Refused:
    return Refused(
        Code.THROTTLED,
        f"there are {limit} {what} already, the most this server keeps",
        limit=f"max_{what}",
        max=limit,
    )
