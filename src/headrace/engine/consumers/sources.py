"""Logs that consumers read: of JSON, by name when one begins, by id from then on."""

from __future__ import annotations

from headrace.engine.kernel import Kernel
from headrace.engine.logs.lookup import LogLookup
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.expiry import StreamExpiry


class Sources:
    """Finds the logs that trackers and webhooks are about."""

    def __init__(self, kernel: Kernel, lookup: LogLookup, expiry: StreamExpiry) -> None:
        self._kernel = kernel
        self._lookup = lookup
        self._expiry = expiry

    def open(self, name: str) -> OpenLog:
        """A log for a new consumer; refuses what is not there, or holds no JSON."""
        return self._lookup.state_of(name)

    def find(self, log: int) -> OpenLog | None:
        """The log of this id; None once it was deleted."""
        live = self._kernel.open_logs.get(log)
        if live is None or (live.log.stream is not None and not self._expiry.is_there(live.log)):
            return None
        return live
