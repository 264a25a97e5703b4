"""The endpoints of trackers: parse, authorise, call the engine, encode."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from headrace.core.cursor import encode_cursor
from headrace.core.errors import Code, Refused
from headrace.core.limits import READ_BYTES_DEFAULT, STREAM_NAME_BYTES_MAX
from headrace.engine.consumers.trackers import Tracked
from headrace.surfaces.topics import consumer_wire as wire
from headrace.surfaces.topics.events import render_records
from headrace.surfaces.topics.names import parse_topic
from headrace.surfaces.topics.wire import checked, open_object
from headrace.web.answers import Reply
from headrace.web.calls import Call, decode, parse_listing
from headrace.web.credentials import Scope

_put = msgspec.json.Decoder(wire.TrackerRequest)
_poll = msgspec.json.Decoder(wire.PollRequest)

SURFACE = "topics/"
"""What the names of this surface's consumers begin with in the engine."""


class TrackerRoutes:
    """The handlers of one server."""

    def __init__(self, node_bytes: int) -> None:
        self._node_bytes = node_bytes

    async def put(self, call: Call) -> Reply:
        name = _authorise(call, Scope.READ | Scope.WRITE)
        request = decode(_put, await call.command() or b"{}")
        source = parse_source(request.source)
        call.principal.require(Scope.READ, source)
        trackers = call.engine.trackers
        if _exists(call, name):
            _find(call, name)  # it may be about something that is not theirs to know
        tracked, created = await trackers.put(
            SURFACE + name, source, request.start_from, call.principal.id
        )
        shown = _state(tracked, call.engine.clock.now_ms())
        reply = wire.TrackerReply(**msgspec.structs.asdict(shown), created=created)
        return Reply([open_object(reply)], 201 if created else 200)

    async def get(self, call: Call) -> Reply:
        name = _authorise(call, Scope.READ)
        _find(call, name)
        tracked = await call.engine.trackers.get(SURFACE + name)
        return Reply([open_object(_state(tracked, call.engine.clock.now_ms()))])

    async def list_all(self, call: Call) -> Reply:
        call.principal.require(Scope.READ)
        engine = call.engine
        after, prefix, size = parse_listing(call.req)
        found, more = await engine.trackers.page(
            SURFACE + after if after else "",
            SURFACE + prefix,
            size,
            lambda tracked: _may_see(call, tracked),
        )
        now_ms = engine.clock.now_ms()
        reply = wire.TrackerListReply(
            trackers=[_state(tracked, now_ms) for tracked in found],
            next_cursor=encode_cursor(_name(found[-1])) if more else UNSET,
        )
        return Reply([open_object(reply)])

    async def delete(self, call: Call) -> Reply:
        name = _authorise(call, Scope.DELETE)
        deleted = _exists(call, name)
        if deleted:
            _find(call, name)
            await call.engine.trackers.delete(SURFACE + name)
        else:
            await call.engine.wait_control()
        reply = wire.TrackerDropReply(tracker=name, deleted=deleted)
        return Reply([open_object(reply)])

    async def poll(self, call: Call) -> Reply:
        name = _authorise(call, Scope.READ | Scope.WRITE)
        request = checked(decode(_poll, await call.command() or b"{}"))
        if not 0 < len(request.node.encode()) <= self._node_bytes:
            raise Refused(Code.INVALID, f"a node has 1 to {self._node_bytes} bytes", field="node")
        _find(call, name)
        done = await call.engine.trackers.poll(
            SURFACE + name,
            request.node,
            ack=request.ack_seq,
            fence=request.fence,
            records_max=request.limit,
            bytes_max=READ_BYTES_DEFAULT,
        )
        page, tracker = done.page, done.tracked.state
        records = render_records(page, tags=True, meta=True)
        tail = (
            f'],"cursor_seq":{tracker.cursor},"next_ack_seq":{page.next},'
            f'"has_more":{"false" if page.caught_up else "true"},"fence":{tracker.fence},'
            f'"lease_until":{tracker.lease_until_ms}'
        )
        parts = [b'{"tracker":"', name.encode(), b'","records":[', records, tail.encode()]
        return Reply(parts, scanned=page.scanned)


def parse_source(text: str) -> str:
    """The log that a consumer reads: a topic, or a stream, whose names may be longer."""
    if not 0 < len(text.encode()) <= STREAM_NAME_BYTES_MAX:
        raise Refused(
            Code.INVALID, f"source names a log: 1 to {STREAM_NAME_BYTES_MAX} bytes", field="source"
        )
    return text


def _authorise(call: Call, scope: Scope) -> str:
    """The tracker of the path, if the caller may do this with trackers of such a name."""
    name = parse_topic(call.name)
    call.principal.require(scope, name)
    return name


def _exists(call: Call, name: str) -> bool:
    return SURFACE + name in call.engine.trackers


def _find(call: Call, name: str) -> Tracked:
    """A tracker, for somebody who may read what it reads."""
    tracked = call.engine.trackers.find(SURFACE + name)
    if not _may_see(call, tracked):
        # (What it reads is not theirs to know.)
        raise Refused(Code.FORBIDDEN, f'"{name}" reads outside the prefixes of this key')
    return tracked


def _may_see(call: Call, tracked: Tracked) -> bool:
    may_see = call.principal.may_see
    return may_see(_name(tracked)) and may_see(tracked.state.source_name)


def _name(tracked: Tracked) -> str:
    return tracked.name.removeprefix(SURFACE)


def _state(tracked: Tracked, now_ms: int) -> wire.TrackerState:
    tracker, source = tracked.state, tracked.source
    node = tracker.holder(now_ms)
    return wire.TrackerState(
        tracker=_name(tracked),
        source=tracker.source_name,
        source_deleted=source is None,
        cursor_seq=tracker.cursor,
        given_seq=tracker.given,
        lag=None if source is None else max(0, source.visible - tracker.cursor),
        node=node,
        lease_until=None if node is None else tracker.lease_until_ms,
        fence=tracker.fence,
        created_at=tracked.live.log.created_at_ms,
    )
