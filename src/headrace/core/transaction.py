"""Transactions: batches of chunks that come into logs once, however often they are sent.

A batch is decided in one step: the first commit of its number wins. Its chunks are appended one
after another, each together with a note in the log of how far the transaction has come there, so
that whoever goes on after a crash knows what is left to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container

import msgspec

from headrace.core.entry import Arrive
from headrace.core.errors import Code, Refused
from headrace.core.limits import ARRIVALS_MAX, BATCH_SPANS_MAX, TRANSACTION_NAME_LENGTH_MAX
from headrace.core.record import Drafts

Arrived = dict[str, tuple[int, int]]
"""transaction → (batch, chunk) that came last, the one that wrote longest ago first"""

Spans = tuple[tuple[int, int], ...]
"""First and last of runs of batches, ascending"""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{TRANSACTION_NAME_LENGTH_MAX - 1}}}\Z")


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Records of one log that wait for their commit."""

    log: str
    drafts: Drafts
    is_json: bool = True


class CommitPart(msgspec.Struct, frozen=True, array_like=True):
    """A chunk as a commit names it."""

    chunk: str
    """As its file is called."""
    log: int
    rows: int


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """A batch that is decided: these chunks, in this order, and no others."""

    transaction: str
    batch: int
    parts: list[CommitPart]
    at_ms: int
    once: bool = False
    """There will be no other batch, so it need not be remembered for long."""
    key: str = ""
    """Whose transaction it is; nothing: it is from before that was noted."""
    earlier: Spans = ()
    """Batches that were committed before, as far as anybody remembers."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def batches(self) -> Spans:
        """All batches that are committed with this one, those that are forgotten left out."""
        spans, batch = self.earlier, self.batch
        if spans and spans[-1][1] == batch - 1:
            return (*spans[:-1], (spans[-1][0], batch))
        return (*spans, (batch, batch))[-BATCH_SPANS_MAX:]

    def has(self, batch: int) -> bool:
        """Whether this batch is committed; refuses one that later ones passed over."""
        if batch > self.batch:
            return False
        if not any(first <= batch <= last for first, last in self.batches):
            raise Refused(
                Code.INVALID,
                f"batch {batch} was passed over: {self.batch} is committed, and batches are "
                "committed in ascending order",
                field="batch",
                committed=self.batch,
            )
        return True


class Caller(msgspec.Struct, frozen=True):
    """Who stages and commits: the id of a key, and which logs it may write to."""

    key: str
    may_write: Callable[[str], bool] = lambda log: True


LOCAL = Caller("local")
"""Everyone, while no key is configured."""


def parse_transaction(text: str) -> str:
    if _NAME.match(text) is None:
        raise Refused(
            Code.INVALID,
            f"a transaction's name has 1 to {TRANSACTION_NAME_LENGTH_MAX} characters of "
            "A-Z a-z 0-9 _ - and starts with a letter or digit",
            name=text[:300],
        )
    return text


def has_arrived(arrived: Arrived | None, transaction: str, batch: int, chunk: int) -> bool:
    """Whether a log has this chunk already."""
    return arrived is not None and arrived.get(transaction, (-1, -1)) >= (batch, chunk)


def arrive(arrived: Arrived | None, entry: Arrive) -> Arrived:
    """How far transactions have come once this chunk is there."""
    held: Arrived = {} if arrived is None else arrived
    held.pop(entry.transaction, None)
    held[entry.transaction] = (entry.batch, entry.chunk)
    if len(held) > ARRIVALS_MAX:
        del held[next(iter(held))]
    return held


def notes(arrived: Arrived | None, entry: Arrive, needed: Container[str]) -> list[Arrive]:
    """The note that a chunk is there, behind those that it would push out and that are needed.

    Said again, a note is among the last to go. Transactions in `needed` are still on their way.
    """
    renewed: list[Arrive] = []
    if arrived is not None and len(arrived) >= ARRIVALS_MAX and entry.transaction not in arrived:
        for transaction, (batch, chunk) in arrived.items():
            if transaction not in needed:
                break
            renewed.append(Arrive(entry.log, transaction, batch, chunk))
    return [*renewed, entry]
