"""Small logs to talk about: built by deciding and applying, as the engine does."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core import supersession
from headrace.core.apply import apply as apply_to_log
from headrace.core.config import LogConfig
from headrace.core.entry import Append, Delete
from headrace.core.log import Log
from headrace.core.record import Block, draft
from headrace.core.state import State, apply, create

RECORD_BYTES = 26
"""What one of the records below counts for: ten bytes of data and the overhead."""


def new_log(**config: object) -> Log:
    """A log named "a", alone in its state."""
    state = State()
    apply(state, create(state, "a", "topics", LogConfig(**config), 0))  # type: ignore[arg-type]
    return state.by_name["a"]


def block_at(first: int, count: int, ts_ms: int = 1, **columns: object) -> Block:
    drafts = draft([f"{first + n:010d}".encode() for n in range(count)], **columns)  # type: ignore[arg-type]
    return Block(
        first, first + count - 1, ts_ms, drafts.data, drafts.ends,
        drafts.metas, drafts.tags, drafts.nodes,
    )  # fmt: skip


def add(log: Log, count: int, now_ms: int = 1, key: str | None = None) -> Append:
    """Append this many records of ten bytes each."""
    entry = supersession.append(log, None, draft([b"0123456789"] * count), key, now_ms).append
    apply_to_log(log, entry)
    return entry


def remove(log: Log, ranges: Sequence[int]) -> None:
    """Delete these live ranges of ten-byte records."""
    count = sum(last - first + 1 for first, last in zip(ranges[::2], ranges[1::2], strict=True))
    apply_to_log(log, Delete(log.id, list(ranges), count, count * RECORD_BYTES))
