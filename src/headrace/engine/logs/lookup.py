"""Looking logs up by name."""

from __future__ import annotations

from headrace.core import state as core_state
from headrace.core.errors import Code, Refused
from headrace.core.owners import is_hidden
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.expiry import StreamExpiry


class LogLookup:
    """Finds logs that can be used now."""

    def __init__(self, kernel: Kernel, expiry: StreamExpiry) -> None:
        self._kernel = kernel
        self._expiry = expiry

    def live(self, name: str) -> OpenLog:
        """A log whose records are JSON: a topic, or a stream of JSON."""
        log = self._kernel.state.by_name.get(name)
        if (
            log is None
            or is_hidden(name)
            or (log.stream is not None and not self._expiry.is_there(log))
        ):
            raise core_state.not_found(name)
        if log.stream is not None and not log.stream.is_json:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{name}" is a stream of {log.stream.content_type}, not of JSON',
                topic=name,
            )
        return self._kernel.open_logs[log.id]

    def state_of(self, name: str) -> OpenLog:
        """A log with its floors as of now. Whoever tells of it must `settle` before."""
        live = self.live(name)
        self._kernel.expire_now(live)
        return live
