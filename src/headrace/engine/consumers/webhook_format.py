"""What a surface says of its webhooks: which records they want, and how a delivery looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from headrace.core.read import Page
from headrace.core.selector import Selector


class OutgoingBatch(msgspec.Struct, frozen=True):
    """Records that are about to be sent."""

    webhook: str
    """Its name on the surface."""
    source: str
    id: str
    """Of the delivery, the same with every attempt."""
    page: Page


class OutgoingTest(msgspec.Struct, frozen=True):
    """A delivery without records, that somebody asked for to try the receiver."""

    webhook: str
    source: str
    id: str
    at_ms: int


class WebhookFormat(Protocol):
    """The webhooks of one surface."""

    tells_losses: bool
    """Whether a delivery tells of records that were lost, also one without records."""

    def parse_filter(self, filter: bytes) -> Selector:
        """Which records are wanted; refuses what is no filter. Empty: all."""

    def render(self, batch: OutgoingBatch) -> bytes:
        """The body, which is JSON."""

    def render_test(self, test: OutgoingTest) -> bytes:
        """The body of a test."""

    def headers(self, id: str, body: bytes, secrets: tuple[str, ...]) -> Mapping[str, str]:
        """Headers beside those of Standard Webhooks, the content type among them."""
