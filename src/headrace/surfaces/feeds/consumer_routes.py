"""The handler that tells of consumers."""

from __future__ import annotations

import msgspec

from headrace.search.values import format_date
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.consumers import Consumer, Consumers
from headrace.surfaces.feeds.permissions import READERS
from headrace.surfaces.feeds.routes import check_takes_vendor, enter, find, vendor_answer
from headrace.web.answers import Answer
from headrace.web.calls import Call


class ConsumerRoutes:
    """The handler over those who are connected."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers

    async def list(self, call: Call) -> Answer:
        tenant = enter(call, READERS)
        check_takes_vendor(call)
        find(call.engine, tenant)
        found = [_describe(each, tenant) for each in self._consumers.of(tenant)]
        return vendor_answer(msgspec.json.encode(wire.FeedConsumerList(found)))


def _describe(consumer: Consumer, tenant: str) -> wire.FeedConsumer:
    wanted = consumer.tenants[tenant]
    return wire.FeedConsumer(
        id=consumer.id,
        principal=consumer.principal_id,
        node_id=consumer.node or msgspec.UNSET,
        connected_at=format_date(consumer.connected_at_ms),
        subscribed_at=format_date(wanted.since_ms),
        resource_types=[wire.ResourceType(each) for each in sorted(wanted.resource_types)],
        last_heartbeat_at=format_date(consumer.heard_at_ms),
    )
