"""What a follower of a log is told, before a surface has put it into words."""

from __future__ import annotations

from typing import Protocol

import msgspec

from headrace.core.limits import READ_BYTES_DEFAULT, READ_RECORDS_DEFAULT
from headrace.core.read import Gap, Page
from headrace.core.selector import Selector


class Records(msgspec.Struct, frozen=True, eq=False):
    """Records after `after`, up to where the page ends; what lies between is not wanted or deleted.

    A follower's batches join without holes: each begins where the last event left it.
    """

    after: int
    page: Page


class Lost(msgspec.Struct, frozen=True):
    """Records are missing. `late`: the follower itself came too late for them."""

    gap: Gap
    earliest: int
    head: int
    late: bool


class CaughtUp(msgspec.Struct, frozen=True):
    """There is nothing more for now."""

    head: int


class Ended(msgspec.Struct, frozen=True):
    """The log was closed, and this was all of it."""

    head: int


class Gone(msgspec.Struct, frozen=True):
    """The log was deleted."""

    head: int


class Held(msgspec.Struct, frozen=True):
    """The server is hard pressed; records of this log come later."""


Event = Records | Lost | CaughtUp | Ended | Gone | Held


class View(Protocol):
    """What a follower wants to see of a log and how it is written: equal views share bytes.

    Hashable. Made by a surface.
    """

    @property
    def selector(self) -> Selector: ...
    @property
    def records_max(self) -> int: ...
    @property
    def bytes_max(self) -> int: ...
    @property
    def strong(self) -> bool:
        """Whether records are shown only once they are synced."""
        ...

    @property
    def gets_superseded(self) -> bool:
        """Whether records are shown that newer ones of their key superseded meanwhile."""
        ...

    @property
    def heartbeat_s(self) -> float:
        """How often to tell of progress that brought no record; 0 for never."""
        ...

    def encode(self, name: str, event: Event, position: int) -> bytes:
        """The bytes for every follower of the log with this view; none if it says nothing of this.

        `position`: where it leaves them.
        """
        ...


class PlainView(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """What most views have in common: as much as a read brings unless it is asked for otherwise,
    as soon as it is shown to anybody, and nothing while there are no records.
    """

    records_max: int = READ_RECORDS_DEFAULT
    bytes_max: int = READ_BYTES_DEFAULT
    strong: bool = False
    gets_superseded: bool = False
    heartbeat_s: float = 0.0
