"""Watching many topics over one stream of events: POST makes a session, GET opens its stream."""

from __future__ import annotations

from functools import partial

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN
from headrace.delivery.endings import Replaced
from headrace.engine.open_log import OpenLog
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.cursors import Checkpoint, parse_composite, parse_label
from headrace.surfaces.topics.events import TopicView
from headrace.surfaces.topics.following import (
    FollowLimits,
    StartPosition,
    find,
    format_place,
    parse_follow,
    parse_view,
)
from headrace.surfaces.topics.sessions import Prefix, Session, Sessions, WatchPosition, begin
from headrace.surfaces.topics.watchstream import WatchStream
from headrace.web.answers import Handover, Reply
from headrace.web.calls import Call, by_key_or_token, decode, parse_bool
from headrace.web.event_streams import check_accepts, open_events

STREAM_PATH = "/v0/watch/"

_watch = msgspec.json.Decoder(wire.WatchRequest)


class WatchRoutes:
    """The handlers of one server."""

    def __init__(self, sessions: Sessions, limits: FollowLimits) -> None:
        self._sessions = sessions
        self._limits = limits

    async def post(self, call: Call) -> Reply:
        """Check everything and remember it; nothing is streamed yet."""
        lenient = parse_bool(call.req, "lenient", default=False)
        request = wire.checked(decode(_watch, await call.command() or b"{}"))
        engine, principal, limits = call.engine, call.principal, self._limits
        wanted = parse_follow(request.topics, principal, limits)
        view = partial(parse_view, request, limits=limits)
        prefixes = [Prefix(prefix, view(start.match)) for prefix, start in wanted.prefixes.items()]
        resume = _parse_cursor(request.cursor)
        found = find(engine, wanted, principal, limits, lenient=lenient)
        await engine.routers.catch_up(*(live for live, _ in found.values()))
        self._sessions.check_room(principal)
        places = {
            name: _place(live, start, view(start.match), resume, listed=name in wanted.topics)
            for name, (live, start) in found.items()
        }
        heartbeat_ms = max(HEARTBEAT_MS_MIN, min(HEARTBEAT_MS_MAX, request.heartbeat_ms))
        session = Session(principal, places, prefixes, heartbeat_ms / 1000)
        reply = wire.WatchReply(
            wid=session.wid,
            stream_url=STREAM_PATH + session.wid,
            session_ttl_ms=self._sessions.ttl_ms,
            topics={
                name: format_place(live, places[name].after) for name, (live, _) in found.items()
            },
            prefixes=[f"{prefix}*" for prefix in wanted.prefixes] or msgspec.UNSET,
        )
        await engine.settle(*(live for live, _ in found.values()))
        self._sessions.add(session)
        return Reply([wire.open_object(reply)])

    async def get(self, call: Call) -> Handover:
        """Open the stream of a session; a stream it had before ends."""
        check_accepts(call)
        session = self._sessions.find(call.name)
        # (A session that nobody knows is told so to everybody: its id is a secret.)
        call.principal = by_key_or_token(call.gate, call.req)
        if call.principal.id != session.principal.id:
            raise Refused(Code.UNAUTHENTICATED, "this session belongs to another key")
        cursor = call.req.get_header("LAST-EVENT-ID") or call.req.get_param("cursor")
        rewind = parse_composite(cursor) if cursor else None
        if session.stream is not None:
            session.stream.end(Replaced())
        if rewind is not None:
            session.rewind(rewind)
        stream = WatchStream(call.hub, session, self._sessions, self._limits.topics)
        return open_events(call, stream)


def _parse_cursor(text: str | None) -> dict[str, tuple[int, int | None]]:
    """Topics with the seq and, where it is known, the epoch to go on from."""
    if text is None:
        return {}
    cursor = parse_composite(text)
    if isinstance(cursor, Checkpoint):
        raise Refused(Code.INVALID, "a checkpoint is good for its own session only", field="cursor")
    labels = {parse_label(label): seq for label, seq in cursor.items()}
    return {topic: (seq, epoch) for (topic, epoch), seq in labels.items()}


def _place(
    live: OpenLog,
    start: StartPosition,
    view: TopicView,
    resume: dict[str, tuple[int, int | None]],
    *,
    listed: bool,
) -> WatchPosition:
    after, epoch = start.after, start.epoch
    if live.log.name in resume:
        after, known = resume[live.log.name]
        epoch = epoch if known is None else known
    elif start.tail:
        after, epoch = live.visible, None
    epoch = live.log.id if epoch is None else epoch
    return begin(after, epoch, view, listed=listed, head=live.visible)
