"""The endpoints of streams: parse, authorise, call the engine, encode."""

from __future__ import annotations

import msgspec

from headrace.core.cursor import encode_cursor
from headrace.core.errors import Code, Refused
from headrace.core.owners import STREAMS, SYSTEM, SYSTEM_PREFIX, is_hidden
from headrace.core.stream_state import Producer, Write, same_type
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.lifecycle import StreamWritten
from headrace.search.values import format_date
from headrace.surfaces.streams import fields, reading, wire
from headrace.surfaces.streams.appends import parse_drafts
from headrace.surfaces.streams.creation import parse_spec, type_of_body
from headrace.surfaces.streams.dialect import Dialect
from headrace.surfaces.streams.following import StreamSink, StreamView
from headrace.surfaces.streams.positions import content_type_of, format_position
from headrace.web.answers import Answer, Handover, Headers, json_answer
from headrace.web.calls import Call, parse_listing
from headrace.web.credentials import Scope
from headrace.web.event_streams import open_events


class StreamLimits(msgspec.Struct, frozen=True):
    """What one request may carry and how long it may take."""

    body_bytes: int
    request_ms: int
    long_poll_ms: int
    """How long a reader waits at most: a little less than a request may take."""


class StreamRoutes:
    """The handlers of one mount: streams and what is in them."""

    def __init__(self, dialect: Dialect, limits: StreamLimits) -> None:
        self._dialect = dialect
        self._limits = limits

    # --- creating and removing -------------------------------------------------------------------

    async def put(self, call: Call) -> Answer:
        call.principal.require(Scope.WRITE, call.name)
        spec = parse_spec(call, call.name, self._dialect)
        body = await call.raw_body(self._limits.body_bytes)
        key = fields.parse_key(call.req.get_header("STREAM-KEY"))
        drafts = None
        if body:
            drafts = await call.parse(parse_drafts, body, type_of_body(call, spec), key)
        streams = call.engine.streams
        live, created = await streams.create(call.name, spec, drafts, call.principal.id)
        headers: Headers = [
            ("content-type", content_type_of(live.log)),
            ("stream-next-offset", format_position(live.log, live.visible)),
        ]
        if created:
            headers.append(("location", call.req.url))
        if streams.is_closed(live):
            headers.append(("stream-closed", "true"))
        return Answer(201 if created else 200, headers)

    async def delete(self, call: Call) -> Answer:
        call.principal.require(Scope.DELETE, call.name)
        streams = call.engine.streams
        try:
            await streams.delete(call.name)
        except Refused as refused:
            if refused.code is not Code.LOG_NOT_FOUND or not self._dialect.deletes_unknown:
                raise
            await call.engine.wait_control()
        return Answer(204, [])

    # --- writing ---------------------------------------------------------------------------------

    async def post(self, call: Call) -> Answer:
        call.principal.require(Scope.WRITE, call.name)
        get = call.req.get_header
        producer = fields.parse_producer(
            get("PRODUCER-ID"), get("PRODUCER-EPOCH"), get("PRODUCER-SEQ")
        )
        close = fields.parse_closed(get("STREAM-CLOSED"))
        at = get("STREAM-TIMESTAMP")
        body = await call.raw_body(self._limits.body_bytes)
        streams = call.engine.streams
        live = streams.own(call.name)
        content_type = _type_of_append(call, body, close=close)
        wanted = Write(
            content_type,
            producer,
            fields.parse_seq(get("STREAM-SEQ")),
            close,
            None if at is None else fields.parse_time_ns(at, "Stream-Timestamp"),
        )
        drafts = None
        if content_type is not None and same_type(content_type, content_type_of(live.log)):
            key = fields.parse_key(get("STREAM-KEY"))
            drafts = await call.parse(parse_drafts, body, content_type_of(live.log), key)
            if drafts is None:
                raise Refused(Code.INVALID, "an append needs at least one message")
        try:
            done = await streams.write(call.name, drafts, wanted)
        except Refused as refused:
            if refused.code is Code.CLOSED:
                refused.detail["next_offset"] = format_position(live.log, live.log.head)
            raise
        if drafts is not None and not done.repeated and (meter := call.engine.meter) is not None:
            meter.appended(drafts.count, len(body))
        headers: Headers = [("stream-next-offset", format_position(live.log, done.last))]
        if producer is not None:
            headers += _producer_headers(done, producer)
        if close or streams.is_closed(done.live):
            headers.append(("stream-closed", "true"))
        return Answer(self._status(wanted, done), headers)

    def _status(self, wanted: Write, done: StreamWritten) -> int:
        if wanted.content_type is None or done.repeated:
            return 204
        return self._dialect.appended if wanted.producer is None else 200

    # --- reading ---------------------------------------------------------------------------------

    async def head(self, call: Call) -> Answer:
        call.principal.require(Scope.READ, call.name)
        streams = call.engine.streams
        live = streams.find(call.name)
        end = format_position(live.log, live.visible)
        headers: Headers = [
            ("content-type", content_type_of(live.log)),
            ("cache-control", "no-store"),
            ("stream-next-offset", end),
            ("stream-end-offset", end),
        ]
        if live.log.stream is not None:
            ttl_ms, ends_at_ms = live.log.stream.ttl_ms, streams.expiry.ends_at_ms(live.log)
            if ttl_ms is not None:
                headers.append(("stream-ttl", str(ttl_ms // 1000)))
            if ends_at_ms is not None and (ttl_ms is None or self._dialect.shows_deadline):
                headers.append(("stream-expires-at", format_date(ends_at_ms)))
        if streams.is_closed(live):
            headers.append(("stream-closed", "true"))
        await streams.settle(call.name)
        return Answer(200, headers)

    async def get(self, call: Call) -> Answer | Handover:
        call.principal.require(Scope.READ, call.name)
        query = reading.parse_query(call.req.query_string)
        engine = call.engine
        live = engine.streams.find(call.name)
        if live.visible == live.log.inherited:
            await engine.streams.settle(call.name)  # nothing else says that it is there to stay
            live = engine.streams.find(call.name)
        key = call.param("key") if len(call.values) > 1 else None
        asked = await reading.parse_read(
            engine,
            live,
            query,
            key,
            self._dialect,
            self._limits.long_poll_ms,
        )
        live.last_read_at_ms = engine.clock.now_ms()
        if asked.mode is None:
            tags = call.req.get_header("IF-NONE-MATCH")
            return await reading.catch_up(engine, live, asked, self._dialect, tags)
        if asked.mode == "sse":
            return self._follow(call, live, asked)
        return await reading.long_poll(call, live, asked, self._dialect)

    def _follow(self, call: Call, live: OpenLog, asked: reading.Asked) -> Handover:
        """Hand the connection over to a sink that follows the stream."""
        cursor = reading.make_cursor(call.engine, asked.cursor)
        view = StreamView(live.log, asked.selector, cursor, call.engine.clock, call.engine.ingest)
        sink = StreamSink(call.hub, live, view, asked.after)
        return open_events(call, sink, view.headers, connection="close")

    async def list(self, call: Call) -> Answer:
        """The streams there are."""
        call.principal.require(Scope.READ)
        req, engine = call.req, call.engine
        after, prefix, size = parse_listing(req, "limit")
        owner = SYSTEM if prefix.startswith(SYSTEM_PREFIX) else STREAMS
        may_see = call.principal.may_see
        found, more = engine.logs.page(
            after, prefix, size, lambda name: may_see(name) and not is_hidden(name), owner
        )
        streams = engine.streams
        shown = [
            wire.summarise(engine, each)
            for each in found
            if each.log.stream is not None and streams.expiry.is_there(each.log)
        ]
        answer = json_answer(msgspec.json.encode(shown))
        if more:
            answer.headers.append(("stream-next-cursor", encode_cursor(found[-1].log.name)))
        await engine.settle_control()
        return answer


def timed_out() -> Refused:
    """What becomes of a request that took too long."""
    return Refused(Code.REQUEST_TIMEOUT, "request timed out")


def _type_of_append(call: Call, body: bytes, *, close: bool) -> str | None:
    """The content type of the records; None when there are none."""
    if not body:
        if not close:
            raise Refused(Code.INVALID, "an append needs a body")
        return None
    content_type = call.req.content_type
    if not content_type:
        raise Refused(Code.INVALID, "an append needs a Content-Type")
    return content_type


def _producer_headers(done: StreamWritten, producer: Producer) -> Headers:
    stream = done.live.log.stream
    assert stream is not None
    epoch, seq = (stream.producers or {})[producer.id]
    return [("producer-epoch", str(epoch)), ("producer-seq", str(seq))]
