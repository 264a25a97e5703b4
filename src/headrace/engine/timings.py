"""Where a request's time went."""

from __future__ import annotations

import msgspec

from headrace.core.config import LogConfig


class Timings(msgspec.Struct):
    """Where a request's time went, for the answer."""

    append_ms: float = 0.0
    sync_ms: float = 0.0
    throttle_ms: float = 0.0

    def note_wait(self, config: LogConfig, waited_ms: float) -> None:
        """A commit to a log that is configured like this took so long."""
        if config.synced:
            self.sync_ms = waited_ms
        elif config.journaled:
            self.append_ms = waited_ms
