"""How fast watchers are found for notifications, in this process: by the index, and by a loop."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from headrace.core.config import LogConfig
from headrace.core.record import Block, block
from headrace.core.selector_index import SelectorIndex
from headrace.surfaces.notifications.handlers import (
    EnumHandler,
    FieldHandler,
    IntHandler,
    PolygonHandler,
)
from headrace.surfaces.notifications.identifiers import parse_notified, parse_wanted
from headrace.surfaces.notifications.records import make_drafts
from headrace.surfaces.notifications.schema import EventType, IdentifierField
from headrace.surfaces.notifications.selector import NotificationSelector
from headrace_bench import notices
from headrace_bench.errors import BenchError

_HANDLERS: dict[str, FieldHandler] = {
    "region": EnumHandler(tuple(f"r{region}" for region in range(notices.REGIONS))),
    "severity": IntHandler((0, notices.PLACES_MAX * notices.BAND)),
    "polygon": PolygonHandler(),
}
_TYPE = EventType(
    name=notices.EVENT_TYPE,
    base=notices.EVENT_TYPE,
    key_order=("region", "severity"),
    fields={name: IdentifierField(name, each, required=False) for name, each in _HANDLERS.items()},
)
_PAYLOAD = b'{"file":"%b"}' % (b"x" * 100)
_WANTED = notices.CONSTRAINED + notices.SHAPED


class Matching:
    """A thousand watchers, and notifications as appends bring them: each in a block of its own."""

    def __init__(self) -> None:
        self._selectors = [
            NotificationSelector(parse_wanted(_TYPE, _TYPE.name, each))
            for each in notices.all_watchers()
        ]
        self._index = SelectorIndex()
        for selector in self._selectors:
            self._index.add(selector)
        self._blocks = [_block(place, place + 1) for place in range(notices.PLACES)]
        self._config = LogConfig()

    def index_rate(self, window_s: float) -> float:
        """Notifications a second for which the index finds all who want them."""
        return _rate(self._find, self._blocks, window_s)

    def loop_rate(self, window_s: float) -> float:
        """The same, asking every watcher."""
        return _rate(self._ask_each, self._blocks, window_s)

    def _find(self, one: Block) -> int:
        return len(self._index.find(one, range(1), self._config))

    def _ask_each(self, one: Block) -> int:
        return sum(1 for selector in self._selectors if selector.pick(one, range(1)))


def _block(place: int, seq: int) -> Block:
    parsed = parse_notified(_TYPE, _TYPE.name, notices.notified(place))
    return block(make_drafts(parsed, _PAYLOAD), seq, 0)


def _rate(find: Callable[[Block], int], blocks: list[Block], window_s: float) -> float:
    done, start = 0, perf_counter()
    stop = start + window_s
    while perf_counter() < stop:
        for one in blocks:
            if (found := find(one)) != _WANTED:
                raise BenchError(f"{found} watchers were found, not {_WANTED}")
        done += len(blocks)
    return done / (perf_counter() - start)
