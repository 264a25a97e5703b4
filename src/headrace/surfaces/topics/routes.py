"""The endpoints of topics as logs: parse, authorise, call the engine, encode."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET

from headrace.core import lease, priority
from headrace.core.config import Kind
from headrace.core.cursor import encode_cursor
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    READ_BYTES_DEFAULT,
    READ_BYTES_MAX,
    READ_RECORDS_DEFAULT,
    WAIT_MS_MAX,
)
from headrace.core.log import Log
from headrace.core.match import parse_match
from headrace.core.owners import TOPICS
from headrace.engine.open_log import OpenLog
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.appending import format_appended, parse_append, parse_config, write
from headrace.surfaces.topics.drafts import AppendLimits
from headrace.surfaces.topics.events import format_tombstone, render_records
from headrace.surfaces.topics.following import parse_selector
from headrace.surfaces.topics.names import parse_topic
from headrace.web.answers import Reply
from headrace.web.calls import Call, decode, parse_bool, parse_listing
from headrace.web.credentials import Scope

_config = msgspec.json.Decoder(wire.ConfigRequest)
_diff = msgspec.json.Decoder(wire.DiffRequest)
_delete = msgspec.json.Decoder(wire.DeleteRequest)


class Topics:
    """The handlers of one server."""

    def __init__(self, limits: AppendLimits, max_limit: int) -> None:
        self._limits = limits
        self._max_limit = max_limit

    async def put(self, call: Call) -> Reply:
        topic = authorise(call, Scope.ADMIN)
        request = decode(_config, await call.command() or b"{}")
        engine = call.engine
        known = engine.state.by_name.get(topic)
        kind = known.config.kind if known else Kind.LOG
        config = parse_config(call.principal, request, topic, kind)
        _, created = await engine.logs.put(topic, TOPICS, config, call.principal.id)
        # (Not that of the log: somebody may have changed it again since.)
        reply = wire.TopicReply(topic=topic, created=created, config=wire.format_config(config))
        return Reply([wire.open_object(reply)], 201 if created else 200)

    async def get(self, call: Call) -> Reply:
        topic = authorise(call, Scope.READ)
        touch = parse_bool(call.req, "touch", default=True)
        await call.engine.routers.catch_up(call.engine.live(topic))
        live = call.engine.state_of(topic)
        now_ms = call.engine.clock.now_ms()
        if touch:
            live.last_read_at_ms = now_ms
        reply = _state(live, call.engine.head_of(live), now_ms)
        await call.engine.settle_all(live)
        return Reply([wire.open_object(reply)])

    async def list(self, call: Call) -> Reply:
        call.principal.require(Scope.READ)
        req, engine = call.req, call.engine
        after, prefix, size = parse_listing(req)
        touch = parse_bool(req, "touch", default=False)
        found, more = engine.logs.page(after, prefix, size, call.principal.may_see, TOPICS)
        await engine.routers.catch_up(*found)
        now_ms = engine.clock.now_ms()
        if touch:
            for live in found:
                live.last_read_at_ms = now_ms
        reply = wire.ListReply(
            topics=[_summary(live, engine.head_of(live), now_ms) for live in found],
            next_cursor=encode_cursor(found[-1].log.name) if more else UNSET,
        )
        await engine.settle_control()  # also what is not in the list is told
        await engine.settle_all(*found)
        return Reply([wire.open_object(reply)])

    async def drop(self, call: Call) -> Reply:
        topic = authorise(call, Scope.DELETE)
        if_empty = parse_bool(call.req, "if_empty", default=False)
        dropped = await call.engine.logs.drop(topic, if_empty=if_empty, owner=TOPICS)
        routers = filter(call.principal.may_see, dropped.routers if dropped else ())
        reply = wire.DropReply(topic=topic, deleted=dropped is not None, routers_removed=[*routers])
        return Reply([wire.open_object(reply)])

    async def append(self, call: Call) -> Reply:
        topic = authorise(call, Scope.WRITE)
        return_seqs = not call.req.query or parse_bool(call.req, "return_seqs", default=True)
        if body := call.small_body():
            request, drafts = parse_append(body, self._limits)
        else:
            request, drafts = await call.parse(parse_append, await call.body(), self._limits)
        if request.idempotency_key is None:
            request.idempotency_key = call.req.get_header("idempotency-key")
        done = await write(call.engine, call.principal, topic, request, drafts, call.timings)
        reply = format_appended(topic, done, seqs=return_seqs)
        return Reply([wire.open_object(reply)], 201 if done.created else 200)

    async def diff(self, call: Call) -> Reply:
        topic = authorise(call, Scope.READ)
        request = wire.checked(decode(_diff, await call.command() or b"{}"))
        engine = call.engine
        live = engine.live(topic)
        live.last_read_at_ms = engine.clock.now_ms()
        read = partial(
            engine.reader.read_or_wait,
            live,
            request.from_seq,
            epoch=request.epoch,
            records_max=min(request.limit or READ_RECORDS_DEFAULT, self._max_limit),
            bytes_max=min(request.max_batch_bytes or READ_BYTES_DEFAULT, READ_BYTES_MAX),
            selector=parse_selector(request.node, request.match),
        )
        if request.wait_ms:
            wait_ms = min(request.wait_ms, WAIT_MS_MAX)
            with call.unless_gone(live.wake):
                page = await read(wait_ms=wait_ms, over=lambda _: call.gone)
        else:
            page = await read(wait_ms=0)
        earliest = min(page.earliest, page.head + 1)
        tombstone = format_tombstone(page.gap, earliest, page.head) if page.gap else None
        records = render_records(page, tags=request.include_tags, meta=request.include_meta)
        tail = (
            f'],"next_from_seq":{page.next},"head_seq":{page.head},"earliest_seq":{earliest},'
            f'"caught_up":{"true" if page.caught_up else "false"},"lag":{page.head - page.next},'
            f'"epoch":{live.log.id},"tombstone":'
        )
        parts = [b'{"topic":"', topic.encode(), b'","records":[', records, tail.encode()]
        parts.append(msgspec.json.encode(tombstone))
        return Reply(parts, scanned=page.scanned)

    async def delete(self, call: Call) -> Reply:
        topic = authorise(call, Scope.DELETE)
        request = wire.checked(decode(_delete, await call.command() or b"{}"))
        if request.before_seq is None and request.match is None:
            raise Refused(Code.INVALID, "say which records: before_seq, match, or both")
        match = None if request.match is None else parse_match(request.match)
        live, deleted = await call.engine.deleter.delete(
            topic, request.before_seq, match, call.timings, owner=TOPICS
        )
        earliest, head = wire.head_of(live.log, call.engine.head_of(live))
        reply = wire.DeleteReply(
            topic=topic,
            deleted=deleted,
            earliest_seq=earliest,
            head_seq=head,
            count=live.log.count,
            bytes=live.log.size_bytes,
        )
        await call.engine.settle_all(live)
        return Reply([wire.open_object(reply)])


def authorise(call: Call, scope: Scope) -> str:
    """The topic of the path, if the caller may do this with it."""
    topic = parse_topic(call.name)
    call.principal.require(scope, topic)
    return topic


def _state(live: OpenLog, head: int, now_ms: int) -> wire.StateReply:
    log = live.log
    earliest, head = wire.head_of(log, head)
    return wire.StateReply(
        topic=log.name,
        type=log.config.kind.value,
        head_seq=head,
        earliest_seq=earliest,
        next_seq=head + 1,
        count=log.count,
        bytes=log.size_bytes,
        epoch=log.id,
        config=wire.format_config(log.config),
        effective_priority=priority.effective(log.config, live.last_read_at_ms, now_ms),
        last_write_ts=live.last_write_at_ms,
        last_read_ts=live.last_read_at_ms,
        queue=_counters(log, head, now_ms) if log.queue is not None else UNSET,
    )


def _counters(log: Log, head: int, now_ms: int) -> wire.QueueCounters:
    counters = lease.count(log, head, now_ms)
    return wire.QueueCounters(
        ready=counters.ready,
        in_flight=counters.in_flight,
        dead_lettered=counters.dead_lettered,
    )


def _summary(live: OpenLog, head: int, now_ms: int) -> wire.TopicSummary:
    log = live.log
    earliest, head = wire.head_of(log, head)
    return wire.TopicSummary(
        topic=log.name,
        head_seq=head,
        earliest_seq=earliest,
        count=log.count,
        bytes=log.size_bytes,
        durable=log.config.synced,
        effective_priority=priority.effective(log.config, live.last_read_at_ms, now_ms),
    )
