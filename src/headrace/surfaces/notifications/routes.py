"""The endpoints of notifications: parse, authorise, call the engine, encode."""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import IDENTIFIER_KEPT_BYTES, IDENTIFIERS_KEPT
from headrace.core.log import check_owner
from headrace.core.owners import NOTIFICATIONS
from headrace.core.record import Drafts
from headrace.engine.open_log import OpenLog
from headrace.observe import log_line
from headrace.search.values import format_date
from headrace.surfaces.notifications import wire
from headrace.surfaces.notifications.authentication import Authentication
from headrace.surfaces.notifications.catalog import EventTypeCatalog
from headrace.surfaces.notifications.configuration import WatchRules
from headrace.surfaces.notifications.errors import (
    INVALID_JSON,
    INVALID_SHAPE,
    UNKNOWN_FIELD,
    invalid,
)
from headrace.surfaces.notifications.events import ControlFrames, EventForm, format_second
from headrace.surfaces.notifications.filter_memory import FilterMemory
from headrace.surfaces.notifications.following import NotificationStream, ReplayPlan, StreamPlan
from headrace.surfaces.notifications.handlers import refuse_field
from headrace.surfaces.notifications.identifiers import (
    NotificationFilter,
    parse_notified,
    parse_wanted,
)
from headrace.surfaces.notifications.metrics import NotificationMetrics, StreamMeter
from headrace.surfaces.notifications.names import log_of, parse_id
from headrace.surfaces.notifications.records import (
    RecordOpening,
    close_record,
    make_drafts,
    open_record,
)
from headrace.surfaces.notifications.schema import POINT, POLYGON, EventType
from headrace.surfaces.notifications.start_points import (
    AtSeq,
    AtTime,
    HistoryRange,
    parse_replay_range,
    parse_watch_range,
)
from headrace.surfaces.notifications.wis2 import parse_wis2
from headrace.web.answers import Answer, Handover, Headers, json_answer
from headrace.web.bodies import check_utf8
from headrace.web.calls import Call
from headrace.web.event_streams import EVENT_STREAM, open_events
from headrace.web.responder import failure

_NULL = b"null"
_NS_IN_MS = 1_000_000
_STREAM_HEADERS: Headers = [("content-type", EVENT_STREAM), ("cache-control", "no-cache")]
_FOR_ALL = ("access-control-allow-origin", "*")
_GET_PARAMETERS = frozenset(("event_type", "identifier", "from_id", "from_date", "format", "token"))


class StreamRules(msgspec.Struct, frozen=True):
    """How notifications are delivered, whatever the type."""

    watch: WatchRules
    source: str
    """Where the server is, as readers know it."""


class NotificationRoutes:
    """The handlers of notify, watch, replay and of schemas."""

    def __init__(
        self,
        catalog: EventTypeCatalog,
        authentication: Authentication,
        metrics: NotificationMetrics,
        rules: StreamRules,
        body_bytes_max: int,
    ) -> None:
        self._catalog = catalog
        self._authentication = authentication
        self._metrics = metrics
        self._rules = rules
        self._body_bytes_max = body_bytes_max
        self._filter_memory = FilterMemory()
        self._second = (0, "")
        """The time that the last replies told, in seconds and as text."""
        self._openings: dict[tuple[str, bytes], RecordOpening] = {}
        """By event type and identifier, as they came: feeds say the same again and again."""
        self._without_polygon: set[str] = set()
        """Types of the configuration for which it was told that nobody finds areas there."""

    # --- notify -----------------------------------------------------------------------------------

    async def notify(self, call: Call) -> Answer:
        plain = self._parse_plain(call)
        if plain is not None:
            name, identifier = plain.event_type, bytes(plain.identifier)
            opening = self._openings.get((name, identifier))
            if opening is not None:
                return await self._notify_again(call, plain, opening)
        request = None if plain is None else wire.open_plain(plain)
        if request is None:
            plain, request = None, await self._read_request(call)
        name, payload = request.event_type, request.payload
        with self._metrics.notifying(name):
            event_type = self._catalog.find(name)
            if POINT in request.identifier:
                refuse_field(POINT, "is for watch and replay only")
            self._require_write(call, event_type)
            if request.to_id is not None or request.to_date is not None:
                raise Refused(Code.INVALID, "to_id and to_date are for replay only")
            opening = open_record(parse_notified(event_type, name, request.identifier))
            if plain is not None:
                self._keep(name, identifier, opening)
            _check_payload(name, event_type, payload)
            await self._store(call, name, event_type, close_record(opening, payload))
        return json_answer(self._encode_stored(call))

    async def _notify_again(
        self, call: Call, plain: wire.PlainNotification, opening: RecordOpening
    ) -> Answer:
        """A notification whose identifier was parsed before."""
        name, payload = plain.event_type, plain.payload
        with self._metrics.notifying(name):
            event_type = self._catalog.find(name)
            self._require_write(call, event_type)
            _check_payload(name, event_type, payload)
            await self._store(call, name, event_type, close_record(opening, payload))
        return json_answer(self._encode_stored(call))

    def _parse_plain(self, call: Call) -> wire.PlainNotification | None:
        """What a small body says that is all there; None if it needs a closer look."""
        body = call.small_body()
        return wire.parse_plain(body) if body and len(body) <= self._body_bytes_max else None

    def _keep(self, name: str, identifier: bytes, opening: RecordOpening) -> None:
        if len(identifier) <= IDENTIFIER_KEPT_BYTES:
            if len(self._openings) >= IDENTIFIERS_KEPT:
                self._openings.clear()
            self._openings[name, identifier] = opening

    async def notify_wis2(self, call: Call) -> Answer:
        """A message of WIS2 is the payload, and says where its identifier is."""
        body = await self._read_body(call)
        name = call.name
        with self._metrics.notifying(name):
            message = await call.parse(wire.parse_json, body)
            event_type = self._catalog.find(name)
            self._require_write(call, event_type)
            if event_type is None:
                raise Refused(Code.INVALID, f"{name} takes no WIS2 messages: it has no schema")
            drafts = make_drafts(parse_wis2(event_type, message), body)
            await self._store(call, name, event_type, drafts)
        return json_answer(self._encode_stored(call))

    def _require_write(self, call: Call, event_type: EventType | None) -> None:
        rules = None if event_type is None else event_type.access
        self._authentication.require_write(call.principal, rules)

    async def _store(
        self, call: Call, name: str, event_type: EventType | None, drafts: Drafts
    ) -> None:
        engine, log = call.engine, log_of(name)
        create = None
        if log not in engine.state.by_name:
            self._catalog.check_room(engine.state, event_type)
            create = self._catalog.log_config(event_type)
        appended = await engine.appender.append(
            log,
            drafts,
            owner=NOTIFICATIONS,
            create=create,
            created_by=call.principal.id,
            timings=call.timings,
        )
        if not appended.created:
            return
        search = self._catalog.search_config(event_type)
        if search is not None:
            with suppress(Refused):  # it is stored all the same, and the next start tries again
                await engine.search_configs.put(log, NOTIFICATIONS, search)

    def _encode_stored(self, call: Call) -> bytes:
        now_ms = call.engine.clock.now_ms()
        if self._second[0] != now_ms // 1000:
            self._second = (now_ms // 1000, format_second(now_ms))
        return msgspec.json.encode(wire.NotifyReply("success", call.req.id, self._second[1]))

    async def _read_request(self, call: Call) -> wire.NotificationRequest:
        return await call.parse(wire.parse_request, await self._read_body(call))

    async def _read_body(self, call: Call) -> bytes:
        body = await call.raw_body(self._body_bytes_max)
        try:
            check_utf8(body)
        except Refused as refused:
            raise invalid(INVALID_JSON, refused.message) from None
        return body

    # --- watch and replay -------------------------------------------------------------------------

    async def watch(self, call: Call) -> Handover:
        request = await self._read_request(call)
        return await self._open(call, request, goes_on=True)

    async def replay(self, call: Call) -> Handover:
        return await self._open(call, await self._read_request(call), goes_on=False)

    async def watch_events(self, call: Call) -> Handover:
        """A watch that an EventSource can open, and go on with behind what it has got."""
        call.gate.check_page(call.req)  # what is answered may be read by all pages
        request, is_wis2 = _parse_query(call)
        return await self._open(call, request, goes_on=True, ids=True, is_wis2=is_wis2)

    async def _open(
        self,
        call: Call,
        request: wire.NotificationRequest,
        *,
        goes_on: bool,
        ids: bool = False,
        is_wis2: bool = False,
    ) -> Handover:
        name = request.event_type
        event_type = self._catalog.find(name)
        rules = None if event_type is None else event_type.access
        self._authentication.require_read(call.principal, rules, log_of(name))
        parse_range = parse_watch_range if goes_on else parse_replay_range
        asked = parse_range(request.from_id, request.from_date, request.to_id, request.to_date)
        wanted = parse_wanted(event_type, name, request.identifier)
        if POLYGON in request.identifier and event_type is not None:
            self._tell_of_polygon(event_type)
        form = EventForm(name, self._rules.source, self._rules.watch.polygon_form, ids, is_wis2)
        try:
            plan = await self._plan(call, form, wanted, asked, event_type, goes_on=goes_on)
        except Refused as refused:
            refused.detail.setdefault("topic", wanted.topic)
            raise
        except (OSError, Corrupt) as error:
            failed = failure(error, call.req)
            failed.detail["topic"] = wanted.topic
            raise failed from None
        meter = StreamMeter(self._metrics, call.req.path, name)
        taken = self._filter_memory.take(wanted)
        control = ControlFrames(wanted.topic, call.req.id)
        stream = NotificationStream(call.hub, plan, control, meter, taken)
        headers = _STREAM_HEADERS if call.gate.origins else [*_STREAM_HEADERS, _FOR_ALL]
        return open_events(call, stream, headers, connection="close")

    def _tell_of_polygon(self, event_type: EventType) -> None:
        """Tell, once for each type, that its notifications have no polygon to be found by."""
        if POLYGON not in event_type.fields and event_type.name not in self._without_polygon:
            self._without_polygon.add(event_type.name)
            log_line(
                "warning",
                "a polygon is passed over: the event type has none",
                event_type=event_type.name,
            )

    async def _plan(
        self,
        call: Call,
        form: EventForm,
        wanted: NotificationFilter,
        asked: HistoryRange,
        event_type: EventType | None,
        *,
        goes_on: bool,
    ) -> StreamPlan:
        """What a stream delivers: where the past begins and ends, and what comes."""
        engine, watch = call.engine, self._rules.watch
        log = engine.state.by_name.get(log_of(form.event_type))
        if log is not None:
            check_owner(log, NOTIFICATIONS)  # one of this name may be older than the surface
        live = None if log is None else engine.open_logs[log.id]
        newest = 0 if live is None else live.visible
        history = None
        if asked.start is not None:
            history = await self._find_history(call, live, newest, asked, event_type)
        return StreamPlan(
            form=form,
            wanted=wanted,
            live=live,
            after=newest,
            history=history,
            goes_on=goes_on,
            heartbeat_s=watch.heartbeat_s,
            duration_s=watch.duration_max_s,
        )

    async def _find_history(
        self,
        call: Call,
        live: OpenLog | None,
        newest: int,
        asked: HistoryRange,
        event_type: EventType | None,
    ) -> ReplayPlan:
        """Where the past begins and ends that is asked for."""
        watch = self._rules.watch
        after, upto = 0, newest
        match asked.start:
            case AtSeq(seq):
                after = max(seq - 1, 0)
            case AtTime(at_ms) if live is not None:
                after = await call.engine.reader.seek(live, at_ms * _NS_IN_MS)
        match asked.end:
            case AtSeq(seq):
                upto = min(newest, seq)
            case AtTime(at_ms) if live is not None:
                upto = min(newest, await call.engine.reader.seek(live, (at_ms + 1) * _NS_IN_MS))
        own = None if event_type is None else event_type.history_max
        start = asked.start
        started: dict[str, object] = {
            "from_sequence": start.seq if isinstance(start, AtSeq) else None,
            "from_date": format_date(start.at_ms) if isinstance(start, AtTime) else None,
            "earliest_sequence": 1 if live is None else min(live.log.earliest, live.visible + 1),
            "batch_size": watch.batch_size,
        }
        if asked.end is not None:
            started["end_sequence"] = upto
        return ReplayPlan(
            after=after,
            upto=upto,
            count_max=watch.history_max if own is None else own,
            batch_size=watch.batch_size,
            delay_s=watch.batch_delay_ms / 1000,
            started=started,
        )

    # --- schemas ----------------------------------------------------------------------------------

    async def list_schemas(self, call: Call) -> Answer:
        schemas = self._catalog.describe_all()
        message = None if schemas else "no schema is configured: every event type is taken"
        reply = wire.SchemaListReply(
            "success", schemas, list(schemas), len(schemas), message, call.req.id
        )
        return json_answer(msgspec.json.encode(reply))

    async def get_schema(self, call: Call) -> Answer:
        name = call.name
        event_type = self._catalog.types.get(name)
        if event_type is None:
            unknown = wire.UnknownSchemaReply(
                "error",
                f"there is no schema of {name[:200]!r}",
                sorted(self._catalog.types),
                call.req.id,
            )
            return json_answer(msgspec.json.encode(unknown), 404)
        reply = wire.SchemaReply("success", name, self._catalog.describe(event_type), call.req.id)
        return json_answer(msgspec.json.encode(reply))


def _check_payload(name: str, event_type: EventType | None, payload: Raw | UnsetType) -> None:
    """Refuse a notification that needs a payload and has none."""
    if event_type is None or not event_type.payload_required:
        return
    if payload is UNSET or bytes(payload) == _NULL:
        raise Refused(Code.INVALID, f"{name} needs a payload", field="payload")


async def health(call: Call) -> Answer:
    """Whether the process is alive."""
    return json_answer(msgspec.json.encode(wire.HealthReply("ok")))


def _parse_query(call: Call) -> tuple[wire.NotificationRequest, bool]:
    """The request that a query stands for, and whether it asks for messages of WIS2."""
    req = call.req
    for name in req.param_names:
        if name not in _GET_PARAMETERS:
            raise invalid(UNKNOWN_FIELD, f"unknown parameter {name[:100]!r}")
    event_type = req.get_param("event_type")
    if not event_type:
        raise Refused(Code.INVALID, "event_type is missing", field="event_type")
    identifier = wire.parse_json((req.get_param("identifier") or "{}").encode(), "identifier")
    if not isinstance(identifier, dict):
        raise invalid(INVALID_SHAPE, "identifier is not a JSON object")
    form = req.get_param("format")
    if form not in (None, "wis2", "cloudevents"):
        raise Refused(Code.INVALID, "format is cloudevents or wis2", field="format")
    request = wire.NotificationRequest(
        event_type, identifier, req.get_param("from_id"), req.get_param("from_date")
    )
    if last := req.get_header("last-event-id"):
        # (The number is 0 for who was there before the first.)
        named, seq = parse_id(last, least=0, called="Last-Event-ID")
        if named != event_type:
            raise Refused(Code.INVALID, f"Last-Event-ID is not one of {event_type}")
        request.from_id, request.from_date = str(seq + 1), None
    return request, form == "wis2"
