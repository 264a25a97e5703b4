"""Handlers of events: written, read by polling and long polling, followed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from headrace.core.config import Durability, LogConfig
from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    EVENTS_PAGE_DEFAULT,
    EVENTS_PAGE_MAX,
    FEED_WAIT_S_MAX,
    I64_MAX,
    LIST_PAGE_DEFAULT,
    LIST_PAGE_MAX,
    READ_BYTES_MAX,
)
from headrace.core.log import check_owner
from headrace.core.owners import FEEDS
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.errors import VENDOR, cursor_expired, invalid_field
from headrace.surfaces.feeds.events import encode_page
from headrace.surfaces.feeds.filters import EventFilter, EventSelector, parse_filter, single
from headrace.surfaces.feeds.following import FeedStream
from headrace.surfaces.feeds.indexing import SEARCH
from headrace.surfaces.feeds.metrics import FeedMetrics
from headrace.surfaces.feeds.names import log_of, parse_slug, parse_tenant
from headrace.surfaces.feeds.permissions import READERS, WRITERS, FeedRole, require, require_types
from headrace.surfaces.feeds.records import parse_events, writer
from headrace.web.accept import prefers
from headrace.web.answers import JSON, Answer, Handover
from headrace.web.calls import Call
from headrace.web.event_streams import check_accepts, open_events
from headrace.web.request import Request

_LINES = f"content-type: {VENDOR}\r\ncache-control: no-store\r\n"


def vendor_answer(body: bytes | list[bytes], status: int = 200) -> Answer:
    """JSON of the surface, which no cache keeps."""
    return Answer(status, [], body, _LINES)


def enter(call: Call, roles: tuple[FeedRole, ...]) -> str:
    """The tenant of the path, for who has one of the roles there and takes what is served."""
    tenant = call.name
    require(call.principal, roles, tenant)
    parse_tenant(tenant)
    return tenant


def check_takes_vendor(call: Call) -> None:
    """Refuse who takes neither the media type of the surface nor JSON."""
    if prefers(call.req.accept, VENDOR, JSON) is None:
        raise Refused(Code.NOT_ACCEPTABLE, f"what is served here is {VENDOR}")


class FeedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long events and their ids are kept, and how large an event may be."""

    retention_ms: int
    id_window_ms: int
    event_bytes: int

    @property
    def log_config(self) -> LogConfig:
        """How the log of every tenant behaves."""
        return LogConfig(
            durability=Durability.FSYNC,
            ttl_ms=self.retention_ms,
            idempotency_window_ms=self.id_window_ms,
            unique_ids=True,
            auto_create=False,
        )


class _Range(NamedTuple):
    """Which events are asked for."""

    after: int
    wanted: EventFilter

    def selector(self, visible: int) -> EventSelector:
        """Picks them; who is ahead of the log waits for what comes behind."""
        return EventSelector(self.wanted, self.after if self.after > visible else 0)


class FeedRoutes:
    """The handlers of events."""

    def __init__(self, limits: FeedLimits, metrics: FeedMetrics) -> None:
        self._limits = limits
        self._config = limits.log_config
        self._metrics = metrics

    # --- writing ----------------------------------------------------------------------------------

    async def append(self, call: Call) -> Answer:
        tenant = enter(call, WRITERS)
        check_takes_vendor(call)
        body = await call.body(VENDOR)
        events = await call.parse(parse_events, body, tenant, self._limits.event_bytes)
        require_types(call.principal, (event.type for event in events))
        engine, log = call.engine, log_of(tenant)
        done = await engine.identified_appender.append(
            log,
            [event.id.bytes for event in events],
            writer(events),
            owner=FEEDS,
            create=self._config,
            created_by=call.principal.id,
            timings=call.timings,
        )
        if done.created:
            with suppress(Refused):  # it is stored all the same, and the next start tries again
                await engine.search_configs.put(log, FEEDS, SEARCH)
        placement = done.placement
        self._metrics.stored(len(placement.fresh), len(events) - len(placement.fresh))
        receipt = wire.EventReceipt(
            [
                wire.StoredEvent(str(event.id), seq, duplicate)
                for event, seq, duplicate in zip(
                    events, placement.seqs, placement.is_duplicate(), strict=True
                )
            ]
        )
        return vendor_answer(msgspec.json.encode(receipt), 201)

    # --- polling ----------------------------------------------------------------------------------

    async def poll(self, call: Call) -> Answer:
        """A page of events; with `timeout`, as soon as there is one."""
        tenant = enter(call, READERS)
        check_takes_vendor(call)
        req = call.req
        after = parse_number(req, "after", 0, I64_MAX)
        limit = parse_number(req, "limit", 1, EVENTS_PAGE_MAX)
        wait_s = parse_number(req, "timeout", 1, FEED_WAIT_S_MAX)
        asked = _Range(after or 0, parse_filter(req))
        engine = call.engine
        live = find(engine, tenant)
        start = await self._begin(engine, live, asked.after)
        read = partial(
            engine.reader.read_or_wait,
            live,
            start,
            records_max=limit or EVENTS_PAGE_DEFAULT,
            bytes_max=READ_BYTES_MAX,
            selector=asked.selector(live.visible),
        )
        if wait_s is None:
            page = await read(wait_ms=0)
        else:
            with call.unless_gone(live.wake):
                page = await read(wait_ms=wait_s * 1000, over=lambda _: call.gone)
        if page.gap is not None and asked.after:
            raise cursor_expired(page.earliest)  # retention was faster than we
        cursor = max(asked.after, page.next)
        return vendor_answer(encode_page(page, cursor, page.head > cursor))

    # --- following --------------------------------------------------------------------------------

    async def follow(self, call: Call) -> Handover:
        """A stream of events: behind the last one that the reader has got, or what comes."""
        tenant = enter(call, READERS)
        check_accepts(call)
        req = call.req
        after = parse_number(req, "after", 0, I64_MAX)
        asked_filter = parse_filter(req)
        last_id = parse_digits(req.get_header("last-event-id") or "", I64_MAX)
        if last_id is not None:
            after = last_id
        live = find(call.engine, tenant)
        if after is None:
            after = live.visible
        start = await self._begin(call.engine, live, after)
        selector = _Range(after, asked_filter).selector(live.visible)
        return open_events(call, FeedStream(call.hub, live, selector, start, self._metrics))

    async def _begin(self, engine: Engine, live: OpenLog, after: int) -> int:
        """Behind which number to read, for who has got all up to `after`; refuses who has missed
        something by now. 0 is for the beginning, whatever that is.
        """
        live.last_read_at_ms = engine.clock.now_ms()
        await engine.reader.prepare(live)
        earliest = min(live.log.earliest, live.visible + 1)
        if after < earliest - 1:
            if after:
                await engine.settle(live)  # what is told must still be true after a crash
                raise cursor_expired(earliest)
            return earliest - 1
        return min(after, live.visible)


def find(engine: Engine, tenant: str) -> OpenLog:
    """The log of a tenant that has had an event; refuses others."""
    log = engine.state.by_name.get(log_of(tenant))
    if log is None:
        raise Refused(Code.NOT_FOUND, f"there is no tenant {tenant}: it has never had an event")
    check_owner(log, FEEDS)  # one of this name may be older than the surface
    return engine.open_logs[log.id]


def parse_number(req: Request, name: str, least: int, most: int) -> int | None:
    """A query parameter that is given once at most; None if it is not."""
    text = single(req, name)
    if text is None:
        return None
    number = parse_digits(text, most)
    if number is None or number < least:
        raise invalid_field(name, f"is a whole number from {least} to {most}", text)
    return number


def parse_listing(req: Request, prefix: str) -> tuple[str, int]:
    """Behind which name in the engine a listing by id begins, and how long it is at most."""
    after = single(req, "after")
    behind = "" if after is None else prefix + parse_slug(after, "after")
    return behind, parse_number(req, "limit", 1, LIST_PAGE_MAX) or LIST_PAGE_DEFAULT
