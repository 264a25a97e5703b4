"""All logs together. `apply` is the one way state changes, live and in replay."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from headrace.core import log as one
from headrace.core.config import LogConfig
from headrace.core.entry import Configure, Create, Drop, Entry, Start, Stop
from headrace.core.limits import RESERVE_SEQS_MIN
from headrace.core.log import Log
from headrace.core.retention import Ledger


class State:
    """The catalog of logs, by id and by name, with running totals."""

    def __init__(self) -> None:
        self.logs: dict[int, Log] = {}
        self.by_name: dict[str, Log] = {}
        self.next_id = 1
        self.count = 0
        self.size_bytes = 0
        self._names: list[str] = []
        self._fresh: dict[str, None] = {}  # names not yet sorted into the list
        self._configs: dict[LogConfig, LogConfig] = {}

    def put(self, log: Log) -> None:
        """Take in a log as it is: from a snapshot, or new."""
        log.config = self.share(log.config)
        self.logs[log.id] = log
        self.by_name[log.name] = log
        self.next_id = max(self.next_id, log.id + 1)
        self.count += log.count
        self.size_bytes += log.size_bytes
        self._fresh[log.name] = None

    def remove(self, log: Log) -> None:
        del self.logs[log.id]
        del self.by_name[log.name]
        self.count -= log.count
        self.size_bytes -= log.size_bytes
        if log.name in self._fresh:
            del self._fresh[log.name]
        else:
            del self._names[bisect_left(self._names, log.name)]

    def share(self, config: LogConfig) -> LogConfig:
        """One object for equal configs: most logs have one of a few."""
        return self._configs.setdefault(config, config)

    def names(self, after: str, prefix: str) -> Iterator[str]:
        """Names with this prefix that sort after `after`, ascending."""
        names = self._names
        if self._fresh:
            names.extend(self._fresh)
            names.sort()
            self._fresh.clear()
        start = bisect_left(names, prefix)
        if after:
            start = max(start, bisect_left(names, after + "\0"))
        for at in range(start, len(names)):
            if not names[at].startswith(prefix):
                return
            yield names[at]


def create(state: State, name: str, owner: str, config: LogConfig, now_ms: int) -> Create:
    """A new log under a free name.

    Its first seqs are promised with it, so its first append need not.
    """
    assert name not in state.by_name, name
    reserved = 0 if config.synced else RESERVE_SEQS_MIN
    return Create(state.next_id, name, owner, config, now_ms, reserved)


def new_log(entry: Create) -> Log:
    """The log as its creation leaves it; also to decide on before it is one."""
    log = Log(entry.log, entry.name, entry.owner, entry.config, reserved=entry.reserved)
    if entry.config.trims:
        log.ledger = Ledger()
    return log


def apply(state: State, entry: Entry) -> None:
    """Make the entry true."""
    match entry:
        case Create():
            state.put(new_log(entry))
        case Drop():
            state.remove(state.logs[entry.log])
        case Start() | Stop():
            pass
        case _:
            log = state.logs[entry.log]
            count, size_bytes = log.count, log.size_bytes
            one.apply(log, entry)
            if isinstance(entry, Configure):
                log.config = state.share(log.config)
            state.count += log.count - count
            state.size_bytes += log.size_bytes - size_bytes
