"""How deliveries of subscriptions look, and which events these want."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from uuid import uuid4

import msgspec

from headrace.core.selector import Selector
from headrace.engine.consumers.webhook_format import OutgoingBatch, OutgoingTest
from headrace.search.values import format_date
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.errors import VENDOR
from headrace.surfaces.feeds.events import join_events
from headrace.surfaces.feeds.filters import EventFilter, EventSelector
from headrace.surfaces.feeds.names import PREFIX

TEST_TYPE = "subscription.test"
_filters = msgspec.json.Decoder(wire.SubscriptionFilters)


class FeedDeliveryFormat:
    """A delivery has the events of a batch, and the cursor behind them."""

    tells_losses = False

    def parse_filter(self, filter: bytes) -> Selector:
        return EventSelector(filter_of(parse_filters(filter)))

    def render(self, batch: OutgoingBatch) -> bytes:
        return _render(batch.webhook, join_events(batch.page), batch.page.next)

    def render_test(self, test: OutgoingTest) -> bytes:
        """One event that is stored nowhere, and has no number."""
        id = test.webhook.rpartition("/")[2]
        event = wire.EventEnvelope(
            id=str(uuid4()),
            type=TEST_TYPE,
            tenant_id=test.source.removeprefix(PREFIX),
            timestamp=format_date(test.at_ms),
            sequence_number=0,
            resource_ref=wire.ResourceRef(wire.ResourceType.TEMPLATE, id),
        )
        return _render(test.webhook, msgspec.json.encode(event), 0)

    def headers(self, id: str, body: bytes, secrets: tuple[str, ...]) -> Mapping[str, str]:
        signature = hmac.digest(secrets[0].encode(), body, "sha256").hex()
        return {
            "content-type": VENDOR,
            "X-Epistola-Signature": f"sha256={signature}",
            "X-Epistola-Delivery-Id": id,
        }


def parse_filters(filter: bytes) -> wire.SubscriptionFilters:
    """The filters of a subscription, as they are kept."""
    return _filters.decode(filter) if filter else wire.SubscriptionFilters()


def filter_of(filters: wire.SubscriptionFilters) -> EventFilter:
    """What they want."""
    return EventFilter(
        frozenset(filters.resource_types),
        frozenset(filters.event_types),
        frozenset(filters.template_ids),
        frozenset(filters.environment_ids),
    )


def _render(webhook: str, events: bytes, cursor: int) -> bytes:
    id = webhook.rpartition("/")[2].encode()
    return b'{"subscriptionId":"%b","events":[%b],"cursor":{"sequenceNumber":%d}}' % (
        id,
        events,
        cursor,
    )
