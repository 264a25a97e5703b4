"""What the whole instance may hold, and what one key may hold of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.cap import Cap
from headrace.core.owners import FEEDS
from headrace.core.state import State
from headrace.core.supersession import Admitted

_LIMITS = {FEEDS: "max_tenants"}
"""What the setting is called where it is not by the owner."""


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
        if more:
            limit = _LIMITS.get(owner, f"max_{owner}")
            Cap(limit, self.logs.get(owner, 0)).check(state.count_of(owner), more)
            per_key = Cap(f"{limit}_per_key", self.per_key.logs.get(owner, 0))
            per_key.check(state.created[owner, created_by], more)

    def check_routers(self, count: int, of_key: int) -> None:
        """Refuse another router when there are so many, or so many that this key made."""
        Cap("max_routers", self.routers).check(count)
        Cap("max_routers_per_key", self.per_key.routers).check(of_key)

    def check_total(self, state: State, admitted: Admitted) -> None:
        """Refuse what would take the stored records over the limit of the instance."""
        if self.total_bytes:
            self.check_growth(state, admitted.growth_bytes)

    def check_growth(self, state: State, size_bytes: int) -> None:
        """Refuse when the stored records may not grow by so much."""
        Cap("max_total_bytes", self.total_bytes).check(state.size_bytes, size_bytes)
