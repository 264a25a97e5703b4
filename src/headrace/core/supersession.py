"""Rules by key: what new records supersede, so that a log keeps the newest few of each key.

Decided once, and written down as the deletion of seqs beside the append: applying it needs no rule,
and whoever sees records deleted sees these so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headrace.core import log as core_log
from headrace.core import ranges
from headrace.core.config import Discard, Kind, LogConfig
from headrace.core.entry import Append, Delete
from headrace.core.errors import Code, Refused
from headrace.core.keyed_records import KeyedRecords
from headrace.core.limits import KEEP_PER_KEY_MAX, KEYS_MAX, SUPERSEDED_MAX
from headrace.core.log import Log
from headrace.core.record import Block, Drafts

Sizes = dict[int, int]
"""Seq → size of records that go."""


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """An append, and what it supersedes; both come true together."""

    append: Append
    superseded: Delete | None = None

    @property
    def beside(self) -> tuple[Delete, ...]:
        return () if self.superseded is None else (self.superseded,)

    @property
    def growth_bytes(self) -> int:
        """How much larger the log is with it."""
        trim, gone = self.append.trim, self.superseded
        shed = (trim.size_bytes if trim else 0) + (gone.size_bytes if gone else 0)
        return self.append.block.size_bytes - shed


def check_config(log: Log | None, config: LogConfig) -> None:
    """Refuse a rule by key that cannot be: jobs end otherwise, and a stream has every record."""
    for field, number, number_max in (
        ("keep_per_key", config.keep_per_key, KEEP_PER_KEY_MAX),
        ("keys_max", config.keys_max, KEYS_MAX),
    ):
        if not 0 <= number <= number_max:
            raise Refused(Code.INVALID, f"{field} must be 0 to {number_max}", field=field)
    if not config.keyed:
        return
    if config.keys_max and not config.keep_per_key:
        raise Refused(Code.INVALID, "keys_max needs keep_per_key", field="keys_max")
    if config.kind is Kind.QUEUE or (log is not None and log.stream is not None):
        raise Refused(
            Code.LOG_INCOMPATIBLE, "queues and streams have no rule by key", field="keep_per_key"
        )


def append(
    log: Log, keyed: KeyedRecords | None, drafts: Drafts, key: str | None, now_ms: int
) -> Admitted:
    """Give the drafts their seqs, and say what they supersede."""
    return admit(log, keyed, core_log.numbered(log, drafts, now_ms), key)


def bring(log: Log, keyed: KeyedRecords | None, drafts: Drafts, now_ms: int) -> Admitted:
    """The same of drafts that were let in before: a log that is full by now takes them too."""
    new = core_log.numbered(log, drafts, now_ms)
    return _admitted(log, new, None, _superseded(keyed, log.config, new))


def admit(log: Log, keyed: KeyedRecords | None, new: Block, key: str | None = None) -> Admitted:
    """Take in records that have their seqs; a full log that rejects refuses."""
    if keyed is None and log.ledger is None and log.config.discard is not Discard.REJECT:
        return Admitted(Append(log.id, new, key, None))  # nothing has to go: as nearly always
    gone = _superseded(keyed, log.config, new)
    core_log.check_room(log, new.count - len(gone), new.size_bytes - sum(gone.values()))
    return _admitted(log, new, key, gone)


def _admitted(log: Log, new: Block, key: str | None, gone: Sizes) -> Admitted:
    found = ranges.from_seqs(sorted(gone))
    trim = core_log.overflow(log, new, found, sum(gone.values()))
    if trim is not None and gone:
        # What is superseded below the new floor goes with all that is there.
        below = [seq for seq in gone if seq < trim.floor_cap]
        trim = msgspec.structs.replace(
            trim,
            count=trim.count + len(below),
            size_bytes=trim.size_bytes + sum(gone.pop(seq) for seq in below),
        )
    return Admitted(Append(log.id, new, key, trim), deletion(log, gone))


def deletion(log: Log, gone: Sizes) -> Delete | None:
    """The end of these live records."""
    if not gone:
        return None
    return Delete(log.id, list(ranges.from_seqs(sorted(gone))), len(gone), sum(gone.values()))


def _superseded(keyed: KeyedRecords | None, config: LogConfig, new: Block) -> Sizes:
    """What goes with these records, some of themselves perhaps."""
    gone: Sizes = {}
    if keyed is None or new.keys is None or not config.keyed:
        return gone
    brought: dict[str, Sizes] = {}
    for at, (key, size) in enumerate(zip(new.keys, new.sizes(), strict=True)):
        if key is not None:
            brought.setdefault(key, {})[new.seq_at(at)] = size
    for key, sizes in brought.items():
        gone |= _surplus(keyed, key, sizes, config.keep_per_key, max(0, SUPERSEDED_MAX - len(gone)))
    if config.keys_max:
        excess = keyed.count + sum(key not in keyed for key in brought) - config.keys_max
        if excess > 0:
            for key in _oldest(keyed, brought, excess):
                room = SUPERSEDED_MAX - len(gone)
                if room <= 0:
                    break  # the next append goes on with it
                gone |= _sizes(keyed, keyed.of(key)[:room]) | brought.get(key, {})
    return gone


def _surplus(keyed: KeyedRecords, key: str, brought: Sizes, keep: int, held_max: int) -> Sizes:
    """The oldest records of a key, without which it has no more than it may; of those it held, so
    many at most.
    """
    held = keyed.of(key)
    surplus = len(held) + len(brought) - keep
    if surplus <= 0:
        return {}
    gone = _sizes(keyed, held[: min(surplus, held_max)])
    for seq, size in brought.items():
        if surplus <= len(held):
            break
        gone[seq] = size
        surplus -= 1
    return gone


def _sizes(keyed: KeyedRecords, seqs: Iterable[int]) -> Sizes:
    return {seq: keyed.size_of(seq) for seq in seqs}


def _oldest(keyed: KeyedRecords, brought: dict[str, Sizes], excess: int) -> Iterator[str]:
    """So many keys, whose newest records are the oldest; those just brought come last."""
    for key in keyed.oldest():
        if not excess:
            return
        if key not in brought:
            yield key
            excess -= 1
    last_of = {max(sizes): key for key, sizes in brought.items()}
    for last in sorted(last_of)[:excess]:
        yield last_of[last]


def surplus(
    log: Log, keyed: KeyedRecords, keys: Sequence[str], at: int, step: int
) -> tuple[Delete | None, int]:
    """What keys have too much from the one at this index on, when the rule is newer than their
    records; and at which one to go on, when so many were looked at or so many records are found.
    """
    keep, gone, stop = log.config.keep_per_key, Sizes(), min(at + step, len(keys))
    while at < stop:
        held = keyed.of(keys[at])
        excess = len(held) - keep if keep else 0
        gone |= _sizes(keyed, held[: min(max(0, excess), step - len(gone))])
        if excess > 0 and len(gone) >= step:
            break  # perhaps there is more of this key
        at += 1
    return deletion(log, gone), at


def surplus_keys(log: Log, keyed: KeyedRecords, step: int) -> Delete | None:
    """The end of the oldest keys where there are too many: of so many records at most."""
    excess = keyed.count - log.config.keys_max if log.config.keys_max else 0
    if excess <= 0:
        return None
    gone: Sizes = {}
    for key in _oldest(keyed, {}, excess):
        gone |= _sizes(keyed, keyed.of(key)[: step - len(gone)])
        if len(gone) >= step:
            break
    return deletion(log, gone)
