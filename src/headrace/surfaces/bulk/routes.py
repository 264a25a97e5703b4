"""The endpoints of the bulk surface: parse, authorise, call the engine, encode."""

from __future__ import annotations

import re

import msgspec
import pyarrow as pa
from msgspec import UNSET

from headrace.core import dead_letter
from headrace.core.config import LogConfig
from headrace.core.cursor import encode_cursor
from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    BATCH_MAX,
    DELETE_RANGES_MAX,
    LIST_PAGE_MAX,
    LISTING_BYTES_MAX,
    PAGE_ROWS_MAX,
    READ_BYTES_MAX,
    U64_MAX,
)
from headrace.core.names import parse_name
from headrace.core.owners import ERASABLE, TOPICS, is_hidden
from headrace.core.read import Page
from headrace.core.state import not_found
from headrace.core.stream_state import media_of
from headrace.core.transaction import Caller, Chunk, parse_transaction
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.formats.ipc import encode_stream
from headrace.formats.segment import table_of
from headrace.surfaces.bulk import wire
from headrace.surfaces.bulk.chunks import ChunkLimits, parse_chunk
from headrace.surfaces.bulk.plans import fitting, plans_of
from headrace.web.answers import Answer, Headers, Reply
from headrace.web.calls import Call, decode, parse_bool, parse_listing, parse_whole
from headrace.web.credentials import Scope
from headrace.web.request import Request

ARROW = "application/vnd.apache.arrow.stream"
"""New logs are topics: they can be read and written in every way."""

_CHUNK_NAME = re.compile(r"[0-9]{1,10}(-[0-9]{1,10}){2}", re.ASCII)
_commit = msgspec.json.Decoder(wire.CommitRequest)
_seal = msgspec.json.Decoder(wire.SealRequest)
_delete = msgspec.json.Decoder(wire.DeleteRequest)


class Bulk:
    """The handlers of one server."""

    def __init__(self, limits: ChunkLimits, body_bytes_max: int) -> None:
        self._limits = limits
        self._body_bytes_max = body_bytes_max

    # --- reading ---------------------------------------------------------------------------------

    async def list(self, call: Call) -> Reply:
        call.principal.require(Scope.READ)
        req, engine = call.req, call.engine
        extents = parse_bool(req, "extents", default=False)
        names = req.get_params("name")
        more = False
        if names:
            call.principal.require(Scope.READ, *names)
            lives = [_find(engine, name) for name in dict.fromkeys(names[:LIST_PAGE_MAX])]
        else:
            may_see = call.principal.may_see
            lives, more = engine.logs.page(
                *parse_listing(req), lambda name: may_see(name) and _is_readable(engine, name)
            )
            if extents and (fits := fitting(lives)) < len(lives):
                lives, more = lives[:fits], True
        await engine.routers.catch_up(*lives)
        lives = [live for live in lives if live.log.id in engine.open_logs]
        for live in lives:
            engine.expire_now(live)
        heads = ((live, engine.head_of(live)) for live in lives)
        reply = wire.LogsReply(
            logs=await plans_of(heads, extents=extents),
            next_cursor=encode_cursor(lives[-1].log.name) if more and lives else UNSET,
        )
        owner = engine.index_status.manifest.owner
        if extents and owner is not None:
            reply.store = owner.directory
        await engine.settle_control()
        await engine.settle_all(*lives)
        return Reply([msgspec.json.encode(reply)[:-1]])

    async def records(self, call: Call) -> Answer:
        req, engine = call.req, call.engine
        name = req.get_param("name") or ""
        call.principal.require(Scope.READ, name)
        live = _find(engine, name)
        live.last_read_at_ms = engine.clock.now_ms()
        page = await engine.reader.read(
            live,
            _parse_seq(req, "after") or 0,
            records_max=parse_whole(req, "limit", PAGE_ROWS_MAX, PAGE_ROWS_MAX),
            bytes_max=parse_whole(req, "max_bytes", READ_BYTES_MAX, READ_BYTES_MAX),
            epoch=_parse_seq(req, "epoch"),
            upto=_parse_seq(req, "upto"),
        )
        media = media_of(live.log.stream)
        body = await engine.pool.run(_encode, live.log.name, live.log.id, page, media)
        headers: Headers = [
            ("content-type", ARROW),
            ("headrace-next-seq", str(page.next)),
            ("headrace-head-seq", str(live.visible)),
            ("headrace-earliest-seq", str(page.earliest)),
            ("headrace-epoch", str(live.log.id)),
        ]
        if page.gap is not None:
            gap = page.gap
            headers.append(("headrace-gap", f"{gap.first}-{gap.last} {gap.reason.value}"))
        return Answer(200, headers, body)

    async def seal(self, call: Call) -> Reply:
        """Seal what waits."""
        call.principal.require(Scope.ADMIN)
        if call.principal.prefixes:
            raise Refused(
                Code.FORBIDDEN, "records of all logs are sealed together; this key has prefixes"
            )
        request = decode(_seal, await call.command() or b"{}")
        done = await call.engine.seal(retire=request.retire_journal)
        reply = wire.SealReply(records=done.records, segments=done.segments, manifest=done.manifest)
        return _reply(reply)

    async def erase(self, call: Call) -> Reply:
        """Delete records by seq."""
        call.principal.require(Scope.ADMIN)
        request = decode(_delete, await call.command())
        call.principal.require(Scope.ADMIN, request.log)
        wanted = _parse_ranges(request.ranges)
        live = call.engine.live(request.log)
        if live.log.owner not in ERASABLE:
            raise Refused(
                Code.FORBIDDEN, f"records of {live.log.owner} are parts of something else"
            )
        if live.log.id != request.epoch:
            raise Refused(
                Code.LOG_NOT_FOUND, f'log "{request.log}" was deleted and made again since'
            )
        deleted = await call.engine.deleter.delete_within(live, wanted)
        return _reply(wire.DeleteReply(log=request.log, deleted=deleted))

    # --- transactions ----------------------------------------------------------------------------

    async def get(self, call: Call) -> Reply:
        transaction = parse_transaction(call.name)
        call.principal.require(Scope.WRITE)
        call.engine.transactions.check(transaction, _caller(call))
        last = call.engine.transactions.last(transaction)
        return _reply(wire.TransactionReply(transaction=transaction, committed=last))

    async def put(self, call: Call) -> Reply:
        """Stage a chunk."""
        transaction, batch = _parse_batch(call)
        chunk = _parse_chunk_name(call.param("chunk"))
        log = call.req.get_param("log")
        if log is None:
            raise Refused(Code.INVALID, "say which log the chunk is for: ?log=", field="log")
        call.principal.require(Scope.WRITE, log)
        engine = call.engine
        engine.transactions.check(transaction, _caller(call))
        known = engine.state.by_name.get(log)
        if known is None or is_hidden(log):
            parse_name(log)
        media = media_of(known.stream if known is not None else None)
        if call.req.content_type != ARROW:
            raise Refused(Code.MEDIA_TYPE, f"a chunk needs Content-Type: {ARROW}")
        body = await call.raw_body(self._body_bytes_max)
        drafts = await engine.pool.run(parse_chunk, body, self._limits, media)
        if call.principal.prefixes and drafts.metas is not None:
            # As for an append: a stamp leads a re-drive to a queue.
            queues = await engine.pool.run(dead_letter.queues_named, drafts.metas)
            call.principal.require(Scope.WRITE, *queues)
        staged = await engine.transactions.stage(
            transaction, batch, chunk, Chunk(log, drafts, media is None), _caller(call)
        )
        reply = wire.ChunkReply(
            transaction=transaction, batch=batch, chunk=chunk, records=drafts.count, staged=staged
        )
        return _reply(reply, 201 if staged else 200)

    async def post(self, call: Call) -> Reply:
        """Commit a batch."""
        transaction, batch = _parse_batch(call)
        call.principal.require(Scope.WRITE)
        request = decode(_commit, await call.command(LISTING_BYTES_MAX) or b"{}")
        done = await call.engine.transactions.commit(
            transaction,
            batch,
            [_parse_chunk_name(name) for name in request.chunks],
            owner=TOPICS,
            create=LogConfig() if request.create else None,
            once=request.once,
            by=_caller(call),
        )
        reply = wire.CommitReply(
            transaction=transaction,
            batch=batch,
            committed=done.batch,
            records=done.rows,
            repeated=done.repeated,
        )
        return _reply(reply)

    async def delete(self, call: Call) -> Reply:
        """Drop a batch."""
        transaction, batch = _parse_batch(call)
        call.principal.require(Scope.WRITE)
        removed = await call.engine.transactions.abort(transaction, batch, _caller(call))
        return _reply(wire.AbortReply(transaction=transaction, batch=batch, removed=removed))

    async def give_up(self, call: Call) -> Reply:
        """Give a transaction up."""
        transaction = parse_transaction(call.name)
        call.principal.require(Scope.ADMIN)
        if call.principal.prefixes:  # no operator of the whole server
            call.engine.transactions.check(transaction, _caller(call))
        done = await call.engine.transactions.give_up(transaction)
        reply = wire.GiveUpReply(
            transaction=transaction, removed=done.chunks, batch=done.batch, missing=done.missing
        )
        return _reply(reply)


def _caller(call: Call) -> Caller:
    return Caller(call.principal.id, call.principal.may_see)


def _reply(value: msgspec.Struct, status: int = 200) -> Reply:
    return Reply([msgspec.json.encode(value)[:-1]], status)


def _encode(name: str, id: int, page: Page, media: str | None) -> bytes:
    table = table_of(name, id, ((piece.block, piece.picks) for piece in page.slices))
    if media is not None:  # rows of a segment do not bring it back
        at = table.schema.get_field_index("media")
        table = table.set_column(at, "media", pa.array([media] * len(table), pa.string()))
    return encode_stream(table)


def _find(engine: Engine, name: str) -> OpenLog:
    """Any log with records that can be read now."""
    if not _is_readable(engine, name):
        raise not_found(name)
    return engine.open_logs[engine.state.by_name[name].id]


def _is_readable(engine: Engine, name: str) -> bool:
    log = engine.state.by_name.get(name)
    if log is None or is_hidden(name):
        return False
    return log.stream is None or engine.streams.expiry.is_there(log)


def _parse_batch(call: Call) -> tuple[str, int]:
    """Which batch of which transaction the path is about."""
    batch = parse_digits(call.param("batch"), BATCH_MAX)
    if batch is None:
        raise Refused(Code.INVALID, "a batch is a whole number", field="batch")
    return parse_transaction(call.param("transaction")), batch


def _parse_chunk_name(text: str) -> str:
    """PART-ATTEMPT-INDEX: which task made it, in which attempt, and which of its chunks it is."""
    if _CHUNK_NAME.fullmatch(text) is None:
        raise Refused(Code.INVALID, "a chunk is called PART-ATTEMPT-INDEX", chunk=text[:100])
    return text


def _parse_seq(req: Request, name: str) -> int | None:
    text = req.get_param(name)
    if text is None:
        return None
    seq = parse_digits(text, U64_MAX)
    if seq is None:
        raise Refused(Code.INVALID, f"{name} is a whole number", field=name)
    return seq


def _parse_ranges(given: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(given) > DELETE_RANGES_MAX:
        raise Refused(Code.INVALID, f"at most {DELETE_RANGES_MAX} ranges at once", field="ranges")
    last = 0
    for low, high in given:
        if not last < low <= high <= U64_MAX >> 1:
            raise Refused(
                Code.INVALID, "ranges are first and last seqs, ascending and apart", field="ranges"
            )
        last = high
    return given
