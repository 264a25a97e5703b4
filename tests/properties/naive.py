"""A log as anybody would write it: a list of records, and the rules word for word."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.config import Discard, LogConfig
from headrace.core.read import Gap, Loss


@dataclass(frozen=True)
class Record:
    seq: int
    ts_ms: int
    data: bytes
    meta: bytes | None = None
    tag: str | None = None
    node: str | None = None

    @property
    def size(self) -> int:
        return len(self.data) + len(self.meta or b"") + 16


class Full(Exception):
    """The naive log says no."""


@dataclass
class NaiveLog:
    config: LogConfig
    head: int = 0
    last_ts_ms: int = 0
    live: list[Record] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    """Seqs a restart took."""
    holes: set[int] = field(default_factory=set)
    """Seqs for what a router's source had lost."""
    floor_cap: int = 1
    floor_ttl: int = 1
    floor_lost: int = 1
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(record.size for record in self.live)

    @property
    def floor(self) -> int:
        """Behind the highest seq that was lost against the users' will, with all before it."""
        return max(self.floor_cap, self.floor_ttl, self.floor_lost)

    @property
    def earliest(self) -> int:
        return self.live[0].seq if self.live else self.head + 1

    # --- writing ---

    def append(self, drafts: list[Record], now_ms: int) -> list[Record]:
        """The drafts with their seqs and time; Full when they do not fit and nothing may go."""
        config = self.config
        if config.discard is Discard.REJECT:
            size = self.size_bytes + sum(draft.size for draft in drafts)
            if config.cap_records and len(self.live) + len(drafts) > config.cap_records:
                raise Full
            if config.cap_bytes and size > config.cap_bytes:
                raise Full
        self.last_ts_ms = max(now_ms, self.last_ts_ms)
        added = []
        for draft in drafts:
            self.head += 1
            added.append(
                Record(
                    self.head, self.last_ts_ms, draft.data, draft.meta, draft.tag, draft.node
                )
            )  # fmt: skip
        self.live.extend(added)
        self.evict()
        return added

    def evict(self) -> None:
        config = self.config
        if config.discard is Discard.REJECT:
            return
        while (config.cap_records and len(self.live) > config.cap_records) or (
            config.cap_bytes and self.size_bytes > config.cap_bytes
        ):
            self.floor_cap = self.live.pop(0).seq + 1

    def expire(self, now_ms: int) -> None:
        while self.config.ttl_ms and self.live:
            if now_ms - self.live[0].ts_ms <= self.config.ttl_ms:
                return
            self.floor_ttl = self.live.pop(0).seq + 1

    def configure(self, config: LogConfig, now_ms: int) -> None:
        self.config = config
        self.expire(now_ms)
        self.evict()

    def delete(self, seqs: set[int]) -> None:
        self.deleted |= seqs
        self.live = [record for record in self.live if record.seq not in seqs]

    def lose(self, seqs: set[int], head: int) -> None:
        self.lost |= seqs
        self.head = max(self.head, head)
        self.live = [record for record in self.live if record.seq not in seqs]
        while self.floor in self.lost:
            self.floor_lost = self.floor + 1
        self.keys = {k: v for k, v in self.keys.items() if v[0] not in seqs}

    # --- reading ---

    def read(
        self, after: int, visible: int, records: int, size_bytes: int, exclude: set[str]
    ) -> tuple[list[Record], int, Gap | None]:
        """One page: its records, the next cursor, and the loss it reports."""
        gap, seq = self._resume(after, visible)
        by_seq = {record.seq: record for record in self.live}
        page: list[Record] = []
        room = size_bytes
        while seq <= visible and seq not in self.lost and seq not in self.holes:
            record = by_seq.get(seq)
            if record is not None and not (self.config.dedupe_node and record.node in exclude):
                if page and record.size > room:
                    break
                page.append(record)
                room -= record.size
                if len(page) == records:
                    return page, seq, gap
            seq += 1
        return page, seq - 1, gap

    def _resume(self, after: int, visible: int) -> tuple[Gap | None, int]:
        earliest = min(self.earliest, visible + 1)
        if after > visible:
            return Gap(1, visible, Loss.RECREATED), earliest
        first = after + 1
        if first < self.floor:
            gap = Gap(first, earliest - 1, self._reason(first)) if first < earliest else None
            return gap, earliest
        gap = None
        seq = first
        while seq <= visible:
            if seq in self.deleted:
                seq += 1
                continue
            taken, why = (self.lost, Loss.RESTART)
            if seq in self.holes:
                taken, why = (self.holes, Loss.SOURCE_TRIM)
            if seq not in taken or gap:
                break
            last = seq
            while last + 1 in taken and last < visible:
                last += 1
            gap = Gap(seq, last, why)
            seq = last + 1
        return gap, seq

    def _reason(self, first: int) -> Loss:
        cap, ttl = self.floor_cap > first, self.floor_ttl > first
        if cap and ttl:
            return Loss.MIXED
        return Loss.CAP if cap else Loss.TTL if ttl else Loss.RESTART
