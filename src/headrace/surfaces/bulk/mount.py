"""The bulk surface, joined: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from typing import Any

import falcon.asgi

from headrace.core.errors import Code
from headrace.surfaces.bulk import wire
from headrace.surfaces.bulk.routes import ARROW, Bulk
from headrace.web.calls import Endpoint, Gate, Refusals
from headrace.web.credentials import Scope
from headrace.web.openapi import Errors, Parameter, Reply, Route, with_refusals

LOGS = "/v0/logs"
TRANSACTIONS = "/v0/transactions"


def mount(app: falcon.asgi.App[Any, Any], gate: Gate, refusals: Refusals, bulk: Bulk) -> None:
    """Put the surface's routes into the application."""
    app.add_route(LOGS, Endpoint(gate, refusals, get=bulk.list))
    app.add_route(f"{LOGS}/records", Endpoint(gate, refusals, get=bulk.records))
    app.add_route(f"{LOGS}/seal", Endpoint(gate, refusals, post=bulk.seal))
    transactions = Endpoint(
        gate, refusals, get=bulk.get, put=bulk.put, post=bulk.post, delete=bulk.delete
    )
    app.add_route(f"{TRANSACTIONS}/{{name:path}}", transactions)


def routes(errors: Errors, error_type: Any) -> list[Route]:
    """The documentation; how refusals look is told by who mounts us."""

    def replies(ok: dict[int, Reply], *codes: Code) -> dict[int, Reply]:
        return with_refusals(ok, (Code.INVALID, *codes), errors, error_type)

    transaction = Parameter("transaction", str, "1 to 64 of A-Z a-z 0-9 _ -", place="path")
    batch = Parameter("batch", int, "Its number; higher ones come later", place="path")
    return [
        Route(
            "GET", LOGS, "What there is to read",
            replies({200: Reply(wire.LogsReply, "One page")}, Code.LOG_NOT_FOUND),
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
            "GET", f"{LOGS}/records", "Read records as Arrow",
            replies({200: Reply(str, "An Arrow stream", media=ARROW)}, Code.LOG_NOT_FOUND),
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
            "POST", f"{LOGS}/seal", "Seal what waits",
            replies(
                {200: Reply(wire.SealReply, "All that was written before is in segments")},
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
            "GET", f"{TRANSACTIONS}/{{transaction}}", "How far a transaction has come",
            replies({200: Reply(wire.TransactionReply, "The highest batch that is committed")}),
            parameters=(transaction,), scope=Scope.WRITE, group="Bulk",
            description="A transaction belongs to the key that staged for it first; others are "
            "refused here and below.",
        ),
        Route(
            "PUT", f"{TRANSACTIONS}/{{transaction}}/{{batch}}/{{chunk}}", "Stage a chunk",
            replies(
                {
                    200: Reply(wire.ChunkReply, "The batch is committed already; nothing is kept"),
                    201: Reply(wire.ChunkReply, "The chunk waits for its commit"),
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
            "POST", f"{TRANSACTIONS}/{{transaction}}/{{batch}}", "Commit a batch",
            replies(
                {200: Reply(wire.CommitReply, "It is in its logs, and synced")},
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
            "DELETE", f"{TRANSACTIONS}/{{transaction}}/{{batch}}", "Drop a batch",
            replies({200: Reply(wire.AbortReply, "Its chunks are gone")}),
            parameters=(transaction, batch), scope=Scope.WRITE, group="Bulk",
            description="Unless it is committed.",
        ),
        Route(
            "DELETE", f"{TRANSACTIONS}/{{transaction}}", "Give a transaction up",
            replies({200: Reply(wire.GiveUpReply, "It is forgotten")}),
            parameters=(transaction,), scope=Scope.ADMIN, group="Bulk",
            description="For operators, whoever's transaction it is; keys with prefixes give up "
            "only their own. Its chunks go and what it "
            "committed is forgotten, also a batch that is decided and cannot come into its logs "
            "because a chunk cannot be read. Who sends that batch again brings all of it again.",
        ),
    ]  # fmt: skip
