"""When something that failed is tried again."""

from __future__ import annotations

import msgspec

_JITTER = 0.2
"""How much longer than planned a wait may be, so that not all who failed together come together."""


class RetrySchedule(msgspec.Struct, frozen=True):
    """How long to wait behind each failure."""

    waits_s: tuple[int, ...]
    """Behind the first failure, the second, and so on."""
    ends: bool
    """Whether there is an end to it; else the last wait is that of all further failures."""

    def wait_ms(self, failures: int, spread: float, at_least_ms: int = 0) -> int | None:
        """How long to wait when so many attempts have failed; None when all are used up.

        `spread`, from 0 to 1, says how much longer than planned; a wait is never shorter than that,
        nor than the receiver asked for.
        """
        assert failures > 0, failures
        if failures > len(self.waits_s) and self.ends:
            return None
        planned_s = self.waits_s[min(failures, len(self.waits_s)) - 1]
        return int(max(planned_s * 1000, at_least_ms) * (1 + _JITTER * spread))


WAKES = RetrySchedule((1, 2, 4, 8, 16, 32, 60), ends=False)
"""Of wakes of subscriptions."""
DELIVERIES = RetrySchedule((5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400), ends=True)
"""Of deliveries to webhooks, as Standard Webhooks suggests: ten attempts in some three days."""
