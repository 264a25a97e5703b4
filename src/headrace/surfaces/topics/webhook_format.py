"""How deliveries of topics' webhooks look, and which records these want."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.match import TagMatch, parse_match
from headrace.core.selector import EVERYTHING, ColumnSelector, Selector
from headrace.engine.consumers.webhook_format import OutgoingBatch, OutgoingTest
from headrace.surfaces.topics.events import format_tombstone, render_records
from headrace.web.answers import JSON

_encode = msgspec.json.encode


class TopicWebhookFormat:
    """A delivery is much like the reply to a diff."""

    tells_losses = True

    def parse_filter(self, filter: bytes) -> Selector:
        match = parse_webhook_filter(filter)
        return EVERYTHING if match is None else ColumnSelector(match=match)

    def render(self, batch: OutgoingBatch) -> bytes:
        page = batch.page
        earliest = min(page.earliest, page.head + 1)
        tombstone = format_tombstone(page.gap, earliest, page.head) if page.gap else None
        records = render_records(page, tags=True, meta=True)
        return b'%b,"records":[%b],"next_from_seq":%d,"tombstone":%b,"test":false}' % (
            _open(batch),
            records,
            page.next,
            _encode(tombstone),
        )

    def render_test(self, test: OutgoingTest) -> bytes:
        return _open(test) + b',"records":[],"next_from_seq":0,"tombstone":null,"test":true}'

    def headers(self, id: str, body: bytes, secrets: tuple[str, ...]) -> Mapping[str, str]:
        return {"content-type": JSON}


def parse_webhook_filter(filter: bytes) -> TagMatch | None:
    """The tags that are wanted; None for records of any kind."""
    return parse_match(msgspec.json.decode(filter)) if filter else None


def _open(sent: OutgoingBatch | OutgoingTest) -> bytes:
    return b'{"webhook":%b,"source":%b,"delivery_id":%b' % (
        _encode(sent.webhook),
        _encode(sent.source),
        _encode(sent.id),
    )
