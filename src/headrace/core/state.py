"""All logs together. `apply` is the one way state changes, live and in replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge

from headrace.core.apply import apply as apply_to_log
from headrace.core.cap import add_to
from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.entry import (
    Append,
    Configure,
    Create,
    Drop,
    Entry,
    Issue,
    Retire,
    Revoke,
    Start,
    Stop,
)
from headrace.core.errors import Code, Refused
from headrace.core.limits import RESERVE_SEQS_MIN, RETIRED_MAX, SHARED_MAX
from headrace.core.log import Log
from headrace.core.names import SortedNames
from headrace.core.owners import DATED, check_name
from headrace.core.retention import Ledger
from headrace.core.supersession import check_config
from headrace.core.token import Token


class State:
    """The catalog of logs, by id and by name, with running totals."""

    def __init__(self) -> None:
        self.logs: dict[int, Log] = {}
        self.by_name: dict[str, Log] = {}
        self.next_id = 1
        self.count = 0
        self.size_bytes = 0
        self.retired: dict[str, int] = {}
        """Name → epoch of the last stream that had it and is gone; oldest first."""
        self.epoch_floor = 0
        """The lowest epoch of a stream whose name nobody remembers."""
        self.tokens: dict[str, Token] = {}
        """By id, oldest first."""
        self.tokens_by_digest: dict[bytes, Token] = {}
        self.tokens_by_tenant: dict[str, dict[str, Token]] = {}
        """Those that are bound to a tenant, by its name and by id."""
        self.census: Counter[tuple[str, Durability, Kind]] = Counter()
        """How many logs there are of each owner, class and kind: nobody has to go and count."""
        self.created: Counter[tuple[str, str]] = Counter()
        """How many logs of each owner a key made that are there now."""
        self.queues: set[int] = set()
        self._names: dict[str, SortedNames] = {}  # by owner
        self._texts: dict[str, str] = {}
        self._config = LogConfig()
        self._configs: dict[LogConfig, LogConfig] = {self._config: self._config}

    def put(self, log: Log) -> None:
        """Take in a log as it is: from a snapshot, or new."""
        log.config = self.share(log.config)
        log.owner = self.share_text(log.owner)
        log.created_by = self.share_text(log.created_by)
        self.logs[log.id] = log
        self.by_name[log.name] = log
        self.next_id = max(self.next_id, log.id + 1)
        self.count += log.count
        self.size_bytes += log.size_bytes
        self._names.setdefault(log.owner, SortedNames()).add(log.name)
        self._enrol(log)
        self._credit(log, 1)
        if log.stream is not None:
            log.stream.content_type = self.share_text(log.stream.content_type)

    def remove(self, log: Log) -> None:
        del self.logs[log.id]
        del self.by_name[log.name]
        self.count -= log.count
        self.size_bytes -= log.size_bytes
        self._names[log.owner].remove(log.name)
        self._strike(log)
        self._credit(log, -1)

    def configured(self, log: Log, before: LogConfig) -> None:
        """A log was given another config."""
        self._strike(log, before)
        log.config = self.share(log.config)
        self._enrol(log)

    def _enrol(self, log: Log) -> None:
        self.census[log.owner, log.config.durability, log.config.kind] += 1
        if log.config.kind is Kind.QUEUE:
            self.queues.add(log.id)

    def _credit(self, log: Log, number: int) -> None:
        """Count a log for the key that made it."""
        if log.created_by:
            add_to(self.created, (log.owner, log.created_by), number)

    def _strike(self, log: Log, config: LogConfig | None = None) -> None:
        config = log.config if config is None else config
        self.census[log.owner, config.durability, config.kind] -= 1
        self.queues.discard(log.id)

    def share(self, config: LogConfig) -> LogConfig:
        """One object for equal configs: most logs have one of a few."""
        # Nearly always it is the same as the last one, and comparing is far cheaper than hashing.
        if config != self._config:
            if len(self._configs) >= SHARED_MAX:
                self._configs.clear()  # (they stay with the logs that have them)
            self._config = self._configs.setdefault(config, config)
        return self._config

    def share_text(self, text: str) -> str:
        """One object for equal texts of which there are few: owners, content types."""
        if len(self._texts) >= SHARED_MAX:
            self._texts.clear()
        return self._texts.setdefault(text, text)

    def names(self, after: str, prefix: str, owner: str | None = None) -> Iterator[str]:
        """Names with this prefix that sort after `after`, ascending; of one owner or of all."""
        if owner is not None:
            known = self._names.get(owner)
            return known.range(after, prefix) if known is not None else iter(())
        return merge(*(names.range(after, prefix) for names in self._names.values()))

    def ids(self) -> Sequence[int]:
        """The ids of all logs there are now, and of some that are gone, ascending.

        No list when nearly every id is in use: with a million logs it would take a while to make.
        """
        if self.next_id <= 2 * len(self.logs):
            return range(1, self.next_id)
        return sorted(self.logs)

    def count_of(self, owner: str) -> int:
        """How many logs this owner has."""
        known = self._names.get(owner)
        return len(known) if known is not None else 0

    def next_epoch(self, name: str) -> int:
        """The epoch of the next stream of this name."""
        return max(self.retired.get(name, -1) + 1, self.epoch_floor)

    def retire(self, name: str, epoch: int) -> None:
        """Remember that there was such a stream. Saying it twice changes nothing."""
        self.retired[name] = max(epoch, self.retired.pop(name, 0))
        if len(self.retired) > RETIRED_MAX:
            oldest = next(iter(self.retired))
            self.epoch_floor = max(self.epoch_floor, self.retired.pop(oldest) + 1)

    def issue(self, token: Token) -> None:
        """Keep a token. Saying it twice changes nothing."""
        self.tokens[token.id] = self.tokens_by_digest[token.digest] = token
        for tenant in token.grants.tenants:
            self.tokens_by_tenant.setdefault(tenant, {})[token.id] = token

    def revoke(self, id: str) -> None:
        """Forget a token; one that is gone already may be named."""
        if (token := self.tokens.pop(id, None)) is not None:
            del self.tokens_by_digest[token.digest]
            for tenant in token.grants.tenants:
                of_tenant = self.tokens_by_tenant[tenant]
                del of_tenant[id]
                if not of_tenant:
                    del self.tokens_by_tenant[tenant]


def not_found(name: str) -> Refused:
    """There is no log of this name."""
    return Refused(Code.LOG_NOT_FOUND, f'log "{name}" does not exist', topic=name)


def create(
    state: State, name: str, owner: str, config: LogConfig, now_ms: int, created_by: str = ""
) -> Create:
    """A new log under a free name, or a refusal: some names are for other owners.

    Its first seqs are promised with it, so its first append need not.
    """
    assert name not in state.by_name, name
    check_name(name, owner)
    check_config(None, config)
    check_dead_letter(state, owner, config)
    reserved = 0 if config.synced else RESERVE_SEQS_MIN
    return Create(state.next_id, name, owner, config, now_ms, reserved, created_by)


def check_dead_letter(state: State, owner: str, config: LogConfig) -> None:
    """Refuse a config whose dead letters would need a log that this owner cannot make."""
    if config.dead_letter is not None and config.dead_letter not in state.by_name:
        check_name(config.dead_letter, owner)


def new_log(entry: Create) -> Log:
    """The log as its creation leaves it; also to decide on before it is one."""
    log = Log(
        entry.log,
        entry.name,
        entry.owner,
        entry.config,
        reserved=entry.reserved,
        created_by=entry.created_by,
        created_at_ms=entry.at_ms if entry.owner in DATED else 0,
    )
    if entry.config.trims:
        log.ledger = Ledger()
    return log


def apply(state: State, entry: Entry) -> None:
    """Make the entry true."""
    match entry:
        case Append():  # first: of most kinds there are few
            _apply_to_log(state, entry)
        case Create():
            state.put(new_log(entry))
        case Drop():
            state.remove(state.logs[entry.log])
        case Retire():
            state.retire(entry.name, entry.epoch)
        case Issue():
            state.issue(entry.token)
        case Revoke():
            state.revoke(entry.id)
        case Start() | Stop():
            pass
        case Configure():
            log = state.logs[entry.log]
            before = log.config
            _apply_to_log(state, entry)
            state.configured(log, before)
        case _:
            _apply_to_log(state, entry)


def _apply_to_log(state: State, entry: Entry) -> None:
    log = state.logs[entry.log]
    count, size_bytes = log.count, log.size_bytes
    apply_to_log(log, entry)
    state.count += log.count - count
    state.size_bytes += log.size_bytes - size_bytes
