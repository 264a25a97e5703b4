"""Trackers of a tenant: named cursors that the server keeps, with one active node at a time."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from headrace.core.limits import NODE_ID_LENGTH_MAX, READ_BYTES_MAX
from headrace.core.names import has_controls
from headrace.engine.consumers.trackers import Tracked
from headrace.search.values import format_date
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.commands import read_command
from headrace.surfaces.feeds.errors import invalid_field
from headrace.surfaces.feeds.events import encode_page
from headrace.surfaces.feeds.names import consumers_of, log_of, parse_slug
from headrace.surfaces.feeds.permissions import READERS
from headrace.surfaces.feeds.routes import (
    check_takes_vendor,
    enter,
    find,
    parse_listing,
    vendor_answer,
)
from headrace.web.answers import Answer
from headrace.web.calls import Call

_put = msgspec.json.Decoder(wire.TrackerRequest)
_poll = msgspec.json.Decoder(wire.PollRequest)


class FeedTrackerRoutes:
    """The handlers of trackers."""

    async def put(self, call: Call) -> Answer:
        tenant, name = _enter(call)
        request = await read_command(call, _put, b"{}")
        find(call.engine, tenant)
        tracked, created = await call.engine.trackers.put(
            name, log_of(tenant), request.start_from, log_of(tenant)
        )
        return _answer(call, tracked, 201 if created else 200)

    async def get(self, call: Call) -> Answer:
        tenant, name = _enter(call)
        find(call.engine, tenant)
        return _answer(call, await call.engine.trackers.get(name))

    async def list(self, call: Call) -> Answer:
        tenant = enter(call, READERS)
        check_takes_vendor(call)
        behind, limit = parse_listing(call.req, consumers_of(tenant))
        engine = call.engine
        find(engine, tenant)
        found, more = await engine.trackers.page(
            behind, consumers_of(tenant), limit, lambda _: True
        )
        now_ms = engine.clock.now_ms()
        reply = wire.TrackerList([_describe(tracked, now_ms) for tracked in found], more)
        return vendor_answer(msgspec.json.encode(reply))

    async def delete(self, call: Call) -> Answer:
        _, name = _enter(call)
        await call.engine.trackers.delete(name)
        return Answer(204, [])

    async def poll(self, call: Call) -> Answer:
        """Acknowledge, and take what comes next; the node that asks is the active one."""
        _, name = _enter(call)
        node = call.req.get_header("x-ep-node-id") or ""
        if not 0 < len(node) <= NODE_ID_LENGTH_MAX or has_controls(node):
            raise invalid_field(
                "X-EP-Node-Id", f"names the node: 1 to {NODE_ID_LENGTH_MAX} characters"
            )
        request = await read_command(call, _poll, b"{}")
        done = await call.engine.trackers.poll(
            name,
            node,
            ack=request.acknowledge_up_to,
            fence=None,
            records_max=request.limit,
            bytes_max=READ_BYTES_MAX,
        )
        page = done.page
        return vendor_answer(encode_page(page, page.next, not page.caught_up))


def _enter(call: Call) -> tuple[str, str]:
    """The tenant of the path, and the name of its tracker in the engine."""
    tenant = enter(call, READERS)
    check_takes_vendor(call)
    return tenant, consumers_of(tenant) + parse_slug(call.param("trackerId"), "trackerId")


def _answer(call: Call, tracked: Tracked, status: int = 200) -> Answer:
    described = _describe(tracked, call.engine.clock.now_ms())
    return vendor_answer(msgspec.json.encode(described), status)


def _describe(tracked: Tracked, now_ms: int) -> wire.Tracker:
    state, source = tracked.state, tracked.source
    node = state.holder(now_ms)
    return wire.Tracker(
        id=tracked.name.rpartition("/")[2],
        cursor=wire.FeedCursor(state.cursor, source is not None and source.visible > state.cursor),
        active_node=UNSET if node is None else node,
        lease_expires_at=UNSET if node is None else format_date(state.lease_until_ms),
        created_at=format_date(tracked.live.log.created_at_ms),
    )
