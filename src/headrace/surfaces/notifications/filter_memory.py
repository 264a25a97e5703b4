"""What filters of open streams take of memory: bounded for all of them together.

A filter lives as long as its stream. One that lists thousands of values takes a megabyte, with its
place in the index of watchers, and there may be ten thousand streams.
"""

from __future__ import annotations

from headrace.core.errors import Code, Refused
from headrace.core.limits import FILTER_BYTES_FREE, FILTERS_BYTES_MAX
from headrace.surfaces.notifications.constraints import OneOf
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.shapes import WantedPolygon

_VALUE_BYTES, _POINT_BYTES = 300, 170
"""Of a value that is listed, and of a point of a polygon; as measured with many watches."""


def weigh(wanted: NotificationFilter) -> int:
    """About how many bytes a filter takes while it is in use."""
    listed = (each for _, each in wanted.constraints if isinstance(each, OneOf))
    values = sum(len(each.values) for each in listed)
    shape = wanted.shape
    points = len(shape.polygon.ring) if isinstance(shape, WantedPolygon) else 0
    return _VALUE_BYTES * values + _POINT_BYTES * points


class FilterMemory:
    """Counts what filters take. Belongs to one event loop; not for threads."""

    __slots__ = ("_bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = FILTERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, wanted: NotificationFilter) -> TakenMemory:
        """Count a filter in, or refuse it; small ones are always taken."""
        size_bytes = weigh(wanted)
        if size_bytes > FILTER_BYTES_FREE and self.used_bytes + size_bytes > self._bytes_max:
            raise Refused(
                Code.THROTTLED,
                "other streams list so many values and points that there is no room for those of"
                " this one: ask for fewer, or try again later",
            )
        return TakenMemory(self, size_bytes)


class TakenMemory:
    """What one filter takes, until it is freed or dropped."""

    __slots__ = ("_memory", "_size_bytes")

    def __init__(self, memory: FilterMemory, size_bytes: int) -> None:
        self._memory: FilterMemory | None = memory
        self._size_bytes = size_bytes
        memory.used_bytes += size_bytes

    def free(self) -> None:
        """Give it back; doing so again changes nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.used_bytes -= self._size_bytes

    # A stream that is never opened does not end, either; dropping it must do.
    def __del__(self) -> None:
        self.free()
