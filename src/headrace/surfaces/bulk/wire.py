"""The JSON of the bulk surface."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from headrace.formats.log_plan import LogPlan


class LogsReply(msgspec.Struct, kw_only=True):
    logs: list[LogPlan]
    next_cursor: str | UnsetType = UNSET
    store: str | UnsetType = UNSET
    """With extents: whose object store they lie in, as its manifest says it (`owner.directory`)."""


class SealRequest(msgspec.Struct, kw_only=True):
    retire_journal: bool = False
    """Whether the journal lets go of what is sealed, so that no file of it holds it any more."""


class SealReply(msgspec.Struct, kw_only=True):
    records: int
    """Sealed since the call began; 0 when nothing waited."""
    segments: int
    manifest: int
    """The version that names them."""


class DeleteRequest(msgspec.Struct, kw_only=True):
    log: str
    epoch: int
    """Which instance of the name: one that was made since has other records."""
    ranges: list[tuple[int, int]]
    """First and last seqs, ascending and apart."""


class DeleteReply(msgspec.Struct, kw_only=True):
    log: str
    deleted: int


class ChunkReply(msgspec.Struct, kw_only=True):
    transaction: str
    batch: int
    chunk: str
    records: int
    staged: bool
    """False: the batch is committed already, and nothing was kept."""


class CommitRequest(msgspec.Struct, kw_only=True):
    chunks: list[str] = []
    """In the order in which they are to come into their logs; at least one."""
    create: bool = True
    """Whether topics that are not there are created."""
    once: bool = False
    """Whether this is the only batch of its transaction; it is remembered for a week then."""


class CommitReply(msgspec.Struct, kw_only=True):
    transaction: str
    batch: int
    committed: int
    """The highest batch that is committed."""
    records: int
    repeated: bool
    """This batch was committed before: nothing changed."""


class TransactionReply(msgspec.Struct, kw_only=True):
    transaction: str
    committed: int | None


class GiveUpReply(msgspec.Struct, kw_only=True):
    transaction: str
    removed: int
    """Chunks that were staged."""
    batch: int | None
    """The batch that was decided and not wholly in its logs, if there was one."""
    missing: int
    """How many of its records are in no log."""


class AbortReply(msgspec.Struct, kw_only=True):
    transaction: str
    batch: int
    removed: int
