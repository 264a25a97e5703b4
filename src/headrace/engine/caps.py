"""What the whole instance may hold, and what one key may hold of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.entry import Append
from headrace.core.errors import Code, Refused
from headrace.core.state import State


class KeyCaps(msgspec.Struct, frozen=True):
    """Limits of one key; 0 means none. Without keys nobody is told apart, and there are none."""

    logs: Mapping[str, int] = {}
    """Most logs that a key made, by owner."""
    routers: int = 0
    webhooks: int = 0
    """Most calls of webhooks at a time."""


class Caps(msgspec.Struct, frozen=True):
    """Limits of the whole instance; 0 means none."""

    logs: Mapping[str, int] = {}
    """Most logs, by owner."""
    per_key: KeyCaps = KeyCaps()
    routers: int = 0
    total_bytes: int = 0
    tail_bytes: int = 256 << 20

    def check_logs(self, state: State, owner: str, created_by: str, more: int = 1) -> None:
        """Refuse when there would be more logs of this owner than may be, in all or of a key."""
        limit = self.logs.get(owner, 0)
        if more and limit and state.count_of(owner) + more > limit:
            raise _too_many(owner, limit)
        limit = self.per_key.logs.get(owner, 0)
        if more and limit and state.created[owner, created_by] + more > limit:
            raise _too_many_of_a_key(owner, limit)

    def check_routers(self, count: int, of_key: int) -> None:
        """Refuse another router when there are so many, or so many that this key made."""
        if self.routers and count >= self.routers:
            raise _too_many("routers", self.routers)
        if self.per_key.routers and of_key >= self.per_key.routers:
            raise _too_many_of_a_key("routers", self.per_key.routers)

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


def _too_many_of_a_key(what: str, limit: int) -> Refused:
    return Refused(
        Code.THROTTLED,
        f"this key has made {limit} {what} already, the most that one may have",
        limit=f"max_{what}_per_key",
        max=limit,
    )
