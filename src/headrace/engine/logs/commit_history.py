"""What is remembered of transactions: the last commit of each, for as long as somebody might send a
batch again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator

from headrace.core.cap import Cap, add_to
from headrace.core.limits import (
    TRANSACTION_KEPT_MS,
    TRANSACTION_ONCE_MS,
    TRANSACTION_ONCE_MS_MIN,
    TRANSACTIONS_MAX,
    TRANSACTIONS_PER_KEY_MAX,
)
from headrace.core.transaction import Commit

_PER_KEY = Cap("transactions_per_key", TRANSACTIONS_PER_KEY_MAX)
_TOTAL = Cap("transactions", TRANSACTIONS_MAX)


class CommitHistory:
    """The newest commit of every transaction."""

    def __init__(self) -> None:
        self._newest: dict[str, Commit] = {}
        """Those that were committed longest ago come first."""
        self._counts: Counter[str] = Counter()
        """How many there are, by key."""

    def get(self, transaction: str) -> Commit | None:
        return self._newest.get(transaction)

    def has(self, transaction: str, batch: int) -> bool:
        """Whether a batch is committed; refuses one that later ones passed over."""
        newest = self._newest.get(transaction)
        return newest is not None and newest.has(batch)

    def note(self, commit: Commit) -> None:
        self.forget(commit.transaction)
        self._newest[commit.transaction] = commit
        add_to(self._counts, commit.key, 1)

    def forget(self, transaction: str) -> None:
        known = self._newest.pop(transaction, None)
        if known is not None:
            add_to(self._counts, known.key, -1)

    def past(self, now_ms: int) -> list[Commit]:
        """Those that nobody will ask about again."""
        return [
            commit
            for commit in self._newest.values()
            if now_ms - commit.at_ms > (TRANSACTION_ONCE_MS if commit.once else TRANSACTION_KEPT_MS)
        ]

    def make_room(self, key: str, now_ms: int, busy: Container[str]) -> Commit | None:
        """Refuse another transaction where there are too many, unless one can be forgotten: it.

        Of one batch that is an hour old nobody waits for an answer any more.
        """
        count, total = self._counts[key], len(self._newest)
        if _PER_KEY.has_room(count) and _TOTAL.has_room(total):
            return None
        oldest = next(self._spent(key, now_ms, busy), None)
        if oldest is None:
            _PER_KEY.check(count)
            _TOTAL.check(total)
        return oldest

    def _spent(self, key: str, now_ms: int, busy: Container[str]) -> Iterator[Commit]:
        for commit in self._newest.values():
            if (
                commit.once
                and commit.key == key
                and commit.transaction not in busy
                and now_ms - commit.at_ms > TRANSACTION_ONCE_MS_MIN
            ):
                yield commit
