"""Ids of records: which record of a log has an id, and which of the ids of an append are new.

A log with `unique_ids` holds records that begin with an id, a UUID. What is known of them is made
of the records themselves, so no snapshot has to hold it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from headrace.core.log import Log
from headrace.core.record import Block

ID_BYTES = 16
OPENING = b'{"id":"'
"""How a record begins that has an id; 36 characters of it follow."""
_TEXT_BYTES = 36
_ROWS_MEAN = 32
"""Ids in a bucket, on average: to search so many bytes costs no more than to find the bucket."""


def read_id(payload: bytes) -> bytes | None:
    """The id of a record; None if it has none."""
    start = len(OPENING)
    if not payload.startswith(OPENING) or payload[start + _TEXT_BYTES : start + 37] != b'"':
        return None
    try:
        found = bytes.fromhex(payload[start : start + _TEXT_BYTES].replace(b"-", b"").decode())
    except ValueError:
        return None
    return found if len(found) == ID_BYTES else None


class RecordIds:
    """The ids of a log's records, each with its seq; some 35 bytes of memory for each.

    A hash table that grows bucket by bucket (linear hashing), so that no append waits for a larger
    one to be filled. In a bucket, rows ascend by seq: those that are forgotten are its first.
    """

    __slots__ = ("_floor", "_hand", "_ids", "_level", "_newest", "_seqs", "_split", "count")

    def __init__(self) -> None:
        self._clear()
        self._floor = 0
        """Records below are forgotten, wherever their rows still are."""

    def _clear(self) -> None:
        self.count = 0
        """Rows there are."""
        self._ids = [bytearray()]
        self._seqs = [array("q")]
        self._level = 1
        """Buckets there were when this round of splits began: a power of two."""
        self._split = 0
        """The next bucket to be split."""
        self._hand = 0
        """The next bucket in which to look for rows that are forgotten."""
        self._newest = 0

    def find(self, id: bytes) -> int | None:
        """The seq of the newest record of this id that is not forgotten."""
        bucket = self._bucket(hash(id))
        ids = self._ids[bucket]
        at = ids.rfind(id)
        while at % ID_BYTES > 0 and at >= 0:  # across two rows
            at = ids.rfind(id, 0, at + ID_BYTES - 1)
        if at < 0:
            return None
        seq = self._seqs[bucket][at // ID_BYTES]
        return seq if seq >= self._floor else None

    def add(self, block: Block) -> None:
        """New records, which are behind all others; those without an id are passed over."""
        for at, payload in enumerate(block.payloads()):
            if (id := read_id(payload)) is not None:
                self.put(id, block.seq_at(at))

    def put(self, id: bytes, seq: int) -> None:
        """A new record, which is behind all others."""
        bucket = self._bucket(hash(id))
        self._ids[bucket] += id
        self._seqs[bucket].append(seq)
        self._newest = seq
        self.count += 1
        if self.count > _ROWS_MEAN * len(self._ids):
            self._grow()
        if self._floor:
            self.sweep(1)

    def drop_below(self, floor: int) -> None:
        """Forget records below; `sweep` frees what they took, little by little."""
        self._floor = max(self._floor, floor)
        if self.count and self._newest < self._floor:
            self._clear()

    def sweep(self, buckets: int) -> None:
        """Free the rows of forgotten records in so many buckets."""
        for _ in range(min(buckets, len(self._ids))):
            hand = self._hand % len(self._ids)
            self._hand = hand + 1
            seqs = self._seqs[hand]
            if seqs and seqs[0] < self._floor:
                gone = bisect_left(seqs, self._floor)
                del seqs[:gone], self._ids[hand][: gone * ID_BYTES]
                self.count -= gone

    def _bucket(self, hashed: int) -> int:
        bucket = hashed & (self._level - 1)
        return hashed & (2 * self._level - 1) if bucket < self._split else bucket

    def _grow(self) -> None:
        """Split the next bucket in two."""
        ids, seqs = self._ids[self._split], self._seqs[self._split]
        stay, go = bytearray(), bytearray()
        stay_seqs, go_seqs = array("q"), array("q")
        for row, seq in enumerate(seqs):
            id = bytes(ids[row * ID_BYTES : (row + 1) * ID_BYTES])
            if hash(id) & self._level:
                go += id
                go_seqs.append(seq)
            else:
                stay += id
                stay_seqs.append(seq)
        self._ids[self._split], self._seqs[self._split] = stay, stay_seqs
        self._ids.append(go)
        self._seqs.append(go_seqs)
        self._split += 1
        if self._split == self._level:
            self._level, self._split = 2 * self._level, 0


class Placement(msgspec.Struct, frozen=True):
    """What becomes of records with ids that are to be appended."""

    seqs: list[int]
    """The seq of each: of its own, or of the record that has its id."""
    fresh: list[int]
    """Those that are new, by their places."""

    def is_duplicate(self) -> Iterator[bool]:
        """Of each, whether a record with its id is there already, or comes before it."""
        fresh = set(self.fresh)
        return (at not in fresh for at in range(len(self.seqs)))


def place(log: Log, known: RecordIds, ids: Iterable[bytes], now_ms: int) -> Placement:
    """Which of these are new, and the seqs of all; an id counts for as long as the window lasts."""
    known.drop_below(window_floor(log, now_ms))
    seqs: list[int] = []
    fresh: list[int] = []
    brought: dict[bytes, int] = {}
    for at, id in enumerate(ids):
        seq = brought.get(id) or known.find(id)
        if seq is None:
            seq = brought[id] = log.head + 1 + len(fresh)
            fresh.append(at)
        seqs.append(seq)
    return Placement(seqs, fresh)


def window_floor(log: Log, now_ms: int) -> int:
    """The first seq whose id counts: it is not older than the window, and not gone."""
    assert log.ledger is not None, "unique ids need a time to live"
    since = log.ledger.first_since(now_ms - log.config.idempotency_window_ms)
    return max(log.floor, log.head + 1 if since is None else since)
