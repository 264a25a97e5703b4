"""The bulk surface: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from headrace.core.errors import Code
from headrace.surfaces.bulk import wire
from headrace.surfaces.bulk.routes import ARROW, Bulk
from headrace.web.credentials import Scope
from headrace.web.envelope import ErrorReply, close, refuser
from headrace.web.surface import (
    Described,
    Parameter,
    Refusals,
    Route,
    Surface,
    with_refusals,
)

LOGS = "/v0/logs"
TRANSACTIONS = "/v0/transactions"


def surface(bulk: Bulk, refusals: Refusals) -> Surface:
    """The surface; in whose words it refuses is told by who joins it."""
    return Surface(
        name="bulk",
        title="Bulk",
        prefixes=(LOGS, TRANSACTIONS),
        routes=_routes(bulk, refusals),
        refusals=refusals,
        refuse=refuser(refusals),
        finish=close,
        compresses=True,
    )


def _routes(bulk: Bulk, refusals: Refusals) -> list[Route]:
    def replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
        return with_refusals(ok, (Code.INVALID, *codes), refusals, ErrorReply)

    transaction = Parameter("transaction", str, "1 to 64 of A-Z a-z 0-9 _ -", place="path")
    batch = Parameter("batch", int, "Its number; higher ones come later", place="path")
    return [
        Route(
            "GET", LOGS, bulk.list, "What there is to read",
            replies({200: Described(wire.LogsReply, "One page")}, Code.LOG_NOT_FOUND),
            parameters=(
                Parameter("name", str, "Only this log; may be repeated"),
                Parameter("prefix", str, "Only names that start with this"),
                Parameter("extents", bool, "Which seqs lie in segments, and which are gone",
                          default=False),
                Parameter("page_size", int, "1 to 1000", default=100),
                Parameter("cursor", str, "`next_cursor` of the page before"),
            ),
            scope=Scope.READ, group="Bulk",
            description="Logs of every surface. `sealed` lists, segment by segment, which live "
            "records lie in the object store; it is empty where too much between them was deleted. "
            "`store` is the `owner.directory` of the manifest there, once there is one.",
        ),
        Route(
            "GET", f"{LOGS}/records", bulk.records, "Read records as Arrow",
            replies({200: Described(str, "An Arrow stream", media=ARROW)}, Code.LOG_NOT_FOUND),
            parameters=(
                Parameter("name", str, "The log"),
                Parameter("after", int, "Records behind this seq", default=0),
                Parameter("upto", int, "And no further than to this one"),
                Parameter("epoch", int, "Which instance of the name is meant"),
                Parameter("limit", int, "Records, 1 to 16384", default=16384),
                Parameter("max_bytes", int, "Of data and meta; up to 8 MiB"),
            ),
            scope=Scope.READ, group="Bulk",
            description="The columns of a segment. Headers: `Headrace-Next-Seq` is the next "
            "`after`, `Headrace-Head-Seq`, `Headrace-Earliest-Seq`, `Headrace-Epoch`, and "
            "`Headrace-Gap` (`first-last reason`) for what was lost on the way.",
        ),
        Route(
            "POST", f"{LOGS}/seal", bulk.seal, "Seal what waits",
            replies(
                {200: Described(wire.SealReply, "All that was written before is in segments")},
                Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY, Code.STORAGE_UNAVAILABLE,
            ),
            request=wire.SealRequest, scope=Scope.ADMIN, group="Bulk",
            description="Of all logs, so keys with prefixes are refused. Answered when the "
            "segments are published and what is dead in them is marked; after a minute "
            "with 503, and sealing goes on. With `retire_journal` no file of the journal holds "
            "what was written before, either.",
            example={"retire_journal": False},
        ),
        Route(
            "POST", f"{LOGS}/delete", bulk.erase, "Delete records by their seqs",
            replies(
                {200: Described(wire.DeleteReply, "How many were there")},
                Code.LOG_NOT_FOUND, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.DeleteRequest, scope=Scope.ADMIN, group="Bulk",
            description="Of any log, also of those that another surface writes: for erasure on "
            "request. Up to 10,000 ranges at once. What is not there counts as deleted.",
            example={"log": "orders", "epoch": 7, "ranges": [[3, 3], [8, 12]]},
        ),
        Route(
            "GET", f"{TRANSACTIONS}/{{transaction}}", bulk.get, "How far a transaction has come",
            replies({200: Described(wire.TransactionReply, "The highest batch that is committed")}),
            parameters=(transaction,), scope=Scope.WRITE, group="Bulk",
            description="A transaction belongs to the key that staged for it first; others are "
            "refused here and below.",
        ),
        Route(
            "PUT", f"{TRANSACTIONS}/{{transaction}}/{{batch}}/{{chunk}}", bulk.put, "Stage a chunk",
            replies(
                {
                    200: Described(wire.ChunkReply, "The batch is committed already; nothing is kept"),
                    201: Described(wire.ChunkReply, "The chunk waits for its commit"),
                },
                Code.BATCH_TOO_LARGE, Code.RECORD_TOO_LARGE, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
                Code.READ_ONLY,
            ),
            parameters=(
                transaction, batch,
                Parameter("chunk", str, "PART-ATTEMPT-INDEX, three numbers", place="path"),
                Parameter("log", str, "Where its records are to go"),
            ),
            scope=Scope.WRITE, group="Bulk",
            description=f"The body is {ARROW} with the columns data and, if wanted, meta, tag, "
            "node and key. Nobody sees the records before the commit. A chunk that nobody commits "
            "is removed after a day.",
        ),
        Route(
            "POST", f"{TRANSACTIONS}/{{transaction}}/{{batch}}", bulk.post, "Commit a batch",
            replies(
                {200: Described(wire.CommitReply, "It is in its logs, and synced")},
                Code.LOG_NOT_FOUND, Code.LOG_INCOMPATIBLE, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
                Code.LOG_FULL, Code.READ_ONLY,
            ),
            request=wire.CommitRequest, parameters=(transaction, batch), scope=Scope.WRITE,
            group="Bulk",
            description="At least one chunk. The first commit of a batch wins: another one changes "
            "nothing and says `repeated`; a batch that a higher one passed over is refused. What "
            "the logs do not take is refused before the decision; what is decided comes into them, "
            "whatever crashes.",
            example={"chunks": ["0-0-0", "1-0-0"]},
        ),
        Route(
            "DELETE", f"{TRANSACTIONS}/{{transaction}}/{{batch}}", bulk.delete, "Drop a batch",
            replies({200: Described(wire.AbortReply, "Its chunks are gone")}),
            parameters=(transaction, batch), scope=Scope.WRITE, group="Bulk",
            description="Unless it is committed.",
        ),
        Route(
            "DELETE", f"{TRANSACTIONS}/{{transaction}}", bulk.give_up, "Give a transaction up",
            replies({200: Described(wire.GiveUpReply, "It is forgotten")}),
            parameters=(transaction,), scope=Scope.ADMIN, group="Bulk",
            description="For operators, whoever's transaction it is; keys with prefixes give up "
            "only their own. Its chunks go and what it "
            "committed is forgotten, also a batch that is decided and cannot come into its logs "
            "because a chunk cannot be read. Who sends that batch again brings all of it again.",
        ),
    ]  # fmt: skip
