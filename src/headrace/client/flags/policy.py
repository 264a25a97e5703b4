"""How long a group waits for what, and how often it tries again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core.limits import (
    FLAGS_CLIENT_PAUSE_S_MAX,
    FLAGS_CLIENT_SNAPSHOT_BYTES,
    FLAGS_CLIENT_TREE_BYTES,
)

_DOUBLINGS_MAX = 32


class RefreshPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a group behaves; the defaults are for a server with its own defaults."""

    pause_s: float = 0.5
    pause_s_max: float = 30.0
    """Between two tries: doubled with every failure, with jitter, up to the maximum."""
    connect_s: float = 10.0
    """Until a stream must have begun."""
    silence_s: float = 75.0
    """A stream that says nothing for so long is dead; a server says something every 30 s."""
    stable_s: float = 60.0
    """A stream that lasted for so long begins a new series of failures when it ends."""
    fetch_s: float = 30.0
    """For one snapshot, from connecting to its last byte."""
    error_after_s: float = 10.0
    """A namespace is stale for so long before it is an error."""
    readmit_s: float = 60.0
    """When a namespace that the server did not know is asked for again."""

    snapshot_bytes_max: int = FLAGS_CLIENT_SNAPSHOT_BYTES
    """Of a snapshot as it is sent."""
    tree_bytes_max: int = FLAGS_CLIENT_TREE_BYTES
    """Of all files of a namespace."""

    def pause(self, failures: int, random: Callable[[], float]) -> float:
        """How long to wait behind so many failures in a row: between half and all of a step."""
        step = self.pause_s * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS_MAX)
        return min(step, self.pause_s_max, FLAGS_CLIENT_PAUSE_S_MAX) * (0.5 + random() / 2)
