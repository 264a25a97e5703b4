"""How often the object store was asked for each log, since the start.

An object may hold something of many logs: storing it counts for each of them, reading it for whom
it was read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from threading import Lock

import msgspec

from headrace.core.limits import REQUESTS_LOGS_MAX


class Artifact(StrEnum):
    """What an object is."""

    SEGMENT = "segment"
    INDEX = "segment_index"
    TAGS = "segment_tags"
    COMPANION = "companion"
    MANIFEST = "manifest"
    PLANS = "plans"


class RequestCounts(msgspec.Struct, frozen=True, gc=False):
    """How often, and what for."""

    puts: int = 0
    gets: int = 0
    heads: int = 0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(
            self.puts + other.puts, self.gets + other.gets, self.heads + other.heads
        )


PUT = RequestCounts(puts=1)
GET = RequestCounts(gets=1)
HEAD = RequestCounts(heads=1)
OPEN = RequestCounts(gets=1, heads=1)
"""How long a file is, and what its end says."""


class ObjectStoreStats:
    """Counts for the logs that were asked for last; any thread may."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: OrderedDict[int, dict[Artifact, RequestCounts]] = OrderedDict()

    def of(self, log: int) -> Mapping[Artifact, RequestCounts]:
        """What was asked for a log; nothing where that is long ago."""
        with self._lock:
            return dict(self._of.get(log, {}))

    def count(self, log: int, artifact: Artifact, asked: RequestCounts) -> None:
        with self._lock:
            counts = self._of.pop(log, {})
            counts[artifact] = counts.get(artifact, RequestCounts()) + asked
            self._of[log] = counts
            if len(self._of) > REQUESTS_LOGS_MAX:
                self._of.popitem(last=False)
