"""How hard pressed the server is, from 0 to 1, and what follows from that."""

from __future__ import annotations

from headrace.core.limits import (
    COALESCE_FROM,
    COALESCE_MS_MAX,
    LAG_CEILING_MS,
    SEVERE_FROM,
    SEVERE_TICKS,
    SEVERE_UNTIL,
)

_SMOOTHING = 0.3


class Pressure:
    """The worst of three signals: work that waits, how late the loop is, how busy the pool is."""

    def __init__(self) -> None:
        self.level = 0.0
        self.severe = False
        """Held up for a while: the least important waits until it is over."""
        self._lag_ms = 0.0
        self._ticks_high = 0

    def update(self, *, waiting: float, lag_ms: float, busy: float) -> None:
        """Take a new sample; `waiting` and `busy` are shares of what would be full."""
        self._lag_ms += _SMOOTHING * (lag_ms - self._lag_ms)
        self.level = min(1.0, max(waiting, self._lag_ms / LAG_CEILING_MS, busy))
        self._ticks_high = self._ticks_high + 1 if self.level > SEVERE_FROM else 0
        if self._ticks_high >= SEVERE_TICKS:
            self.severe = True
        elif self.level < SEVERE_UNTIL:
            self.severe = False

    @property
    def window_ms(self) -> float:
        """How long pushes gather before they go out: nothing while there is no pressure."""
        over = (self.level - COALESCE_FROM) / (1.0 - COALESCE_FROM)
        return COALESCE_MS_MAX * over if over > 0 else 0.0
