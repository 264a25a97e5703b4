"""Concurrency caps: a slot is held for a request or a stream and freed however that ends."""

from __future__ import annotations

from types import TracebackType

from headrace.core.cap import Cap
from headrace.web.credentials import LOCAL, NO_SCOPE, Principal

UNCAPPED = Cap("", 0)


class Slots:
    """Counts what is held in all and by each key. Belongs to one event loop; not for threads."""

    __slots__ = ("_by_key", "_held", "_per_key", "_total")

    def __init__(self, *, total: Cap = UNCAPPED, per_key: Cap = UNCAPPED) -> None:
        self._total = total
        self._per_key = per_key
        self._held = 0
        self._by_key: dict[str, int] = {}

    def __len__(self) -> int:
        """How many slots are held now."""
        return self._held

    def check(self, principal: Principal) -> None:
        """Refuse one more when there are too many."""
        if self._total.max:
            self._total.check(self._held)
        # Without keys there is nobody to tell apart, so only the total counts.
        if self._per_key.max and principal is not LOCAL:
            self._per_key.check(self._by_key.get(principal.id, 0))

    def take(self, principal: Principal) -> Slot:
        """Take a slot, or refuse; it is freed by `with`, by `free()` or by dropping it."""
        self.enter(principal)
        return Slot(self, principal)

    def take_share(self, name: str) -> Slot:
        """The same for something else that many keys may share, such as a tenant."""
        return self.take(Principal(name, NO_SCOPE))

    def enter(self, principal: Principal) -> None:
        """Count one more, or refuse; `leave` must follow."""
        self.check(principal)
        self._held += 1
        if principal is not LOCAL:
            key = principal.id
            self._by_key[key] = self._by_key.get(key, 0) + 1

    def leave(self, principal: Principal) -> None:
        """Count one less."""
        self._held -= 1
        if principal is not LOCAL:
            key = principal.id
            left = self._by_key[key] - 1
            if left:
                self._by_key[key] = left
            else:
                del self._by_key[key]


class Slot:
    """One held slot."""

    __slots__ = ("_principal", "_slots")

    def __init__(self, slots: Slots, principal: Principal) -> None:
        self._slots: Slots | None = slots
        self._principal = principal

    def free(self) -> None:
        """Give the slot back; doing so again changes nothing."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.leave(self._principal)

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    # A stream whose generator never started runs no `finally`; dropping the slot must do.
    def __del__(self) -> None:
        self.free()
