"""Which log is served first under pressure: a manual value, or how recently someone read it."""

from __future__ import annotations

from headrace.core.config import LogConfig
from headrace.core.limits import (
    PRIORITY_AUTO_TOP,
    PRIORITY_FORGET_MS,
    PRIORITY_HALF_LIFE_MS,
)


def effective(config: LogConfig, last_read_at_ms: int | None, now_ms: int) -> int:
    """The priority the scheduler uses right now."""
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or last_read_at_ms is None:
        return 0
    idle_ms = max(0, now_ms - last_read_at_ms)
    if idle_ms >= PRIORITY_FORGET_MS:
        return 0
    decay: float = 0.5 ** (idle_ms / PRIORITY_HALF_LIFE_MS)
    return round(PRIORITY_AUTO_TOP * decay)
