"""Where a request's time went."""

from __future__ import annotations

import msgspec


class Timings(msgspec.Struct):
    """Where a request's time went, for the answer."""

    append_ms: float = 0.0
    sync_ms: float = 0.0
    throttle_ms: float = 0.0
