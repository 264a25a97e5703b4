"""What followers of a diary are told: its lines, as events."""

from __future__ import annotations

import msgspec

from headrace.core.selector import EVERYTHING, Selector
from headrace.delivery.cohort import Follower
from headrace.delivery.events import Event, Records
from headrace.delivery.hub import Hub
from headrace.delivery.sse import EventStream, chunk, event
from headrace.engine.open_log import OpenLog


class Lines(msgspec.Struct, frozen=True):
    """A view of a diary."""

    selector: Selector = EVERYTHING
    records_max: int = 100
    bytes_max: int = 1 << 16
    strong: bool = False
    gets_superseded: bool = False
    heartbeat_s: float = 0.0

    def encode(self, name: str, told: Event, position: int) -> bytes:
        if not isinstance(told, Records):
            return b""
        lines = [one.block.data_at(at) for one in told.page.slices for at in one.picks]
        return chunk(b"".join(event(b"line", line) for line in lines))


class DiarySink(EventStream):
    """The connection of a reader."""

    __slots__ = ("_live",)

    def __init__(self, hub: Hub, live: OpenLog) -> None:
        super().__init__(hub, heartbeat_s=15.0)
        self._live = live

    def on_open(self) -> None:
        self.followers.add(Follower(self, self._live, Lines(), 0, self.transport.write))
