"""How long a reader of a feed waits for what, and how often it tries again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

_DOUBLINGS_MAX = 32


class FollowPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a reader behaves; the defaults are for a server with its own."""

    wait_s: int = 30
    """Without hints: how long one request waits for an event, up to 60; 0: it does not, and the
    next one comes `poll_s` later.
    """
    poll_s: float = 60.0
    """How long to trust hints, or to pause between requests that do not wait."""
    limit: int = 500
    """Events of a page, up to 1000."""
    fetch_s: float = 30.0
    """For one request, beside what it is asked to wait."""
    pause_s: float = 0.5
    pause_s_max: float = 30.0
    """Between two tries: doubled with every failure, with jitter, up to the maximum."""
    unknown_s: float = 5.0
    """When a tenant without events is asked for again."""
    heartbeat_s: float = 15.0
    """How often to tell the server of hints that we live; it takes a minute for dead."""
    silence_s: float = 45.0
    """Hints are dead when nothing came for so long; a server says something every 15 s."""
    connect_s: float = 10.0
    """Until hints must have been confirmed."""

    def __post_init__(self) -> None:
        if not 0 <= self.wait_s <= 60 or not 1 <= self.limit <= 1000:
            raise ValueError("wait_s is at most 60, limit is 1 to 1000")

    def pause(self, failures: int, random: Callable[[], float]) -> float:
        """How long to wait behind so many failures in a row: between half and all of a step."""
        step = self.pause_s * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS_MAX)
        return min(step, self.pause_s_max) * (0.5 + random() / 2)
