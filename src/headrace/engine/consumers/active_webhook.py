"""One webhook in operation: what it is about to send, and when to look again."""

from __future__ import annotations

import asyncio

from headrace.core.owners import WEBHOOK_PREFIX
from headrace.core.read import Page
from headrace.core.selector import Selector
from headrace.core.webhook import Webhook
from headrace.engine.consumers.webhook_format import WebhookFormat
from headrace.engine.open_log import OpenLog


class ActiveWebhook:
    """A webhook whose log is open."""

    __slots__ = (
        "deliveries",
        "due_at_ms",
        "examined",
        "format",
        "found",
        "live",
        "page",
        "position",
        "queued",
        "replaying",
        "selector",
        "sending",
        "slow",
        "source",
        "start",
        "timer",
        "version",
    )

    def __init__(
        self, live: OpenLog, deliveries: OpenLog, format: WebhookFormat, selector: Selector
    ) -> None:
        self.live = live
        self.deliveries = deliveries
        """The log of what it sent lately."""
        self.format = format
        self.selector = selector
        self.source: OpenLog | None = None
        """The log whose changes it hears of."""
        self.queued = False
        """Somebody looks soon whether there is something to send."""
        self.sending = False
        self.replaying = asyncio.Lock()
        """Of who has its dead letters sent again: one at a time, so that each is sent once."""
        self.slow = self.state.failures > 0
        self.timer: asyncio.TimerHandle | None = None
        self.position = 0
        """Where it was last written down how far it came."""
        self.version = 0
        """Another one whenever the webhook is set anew."""
        self.page: Page | None = None
        """The records of the batch under way, if they are at hand."""
        self.pass_to(self.state.cursor)

    @property
    def state(self) -> Webhook:
        webhook = self.live.log.consumer
        assert isinstance(webhook, Webhook)
        return webhook

    @property
    def key(self) -> str:
        return self.live.log.created_by

    @property
    def name(self) -> str:
        """Its name in the engine: that of the surface, a slash, and its name there."""
        return self.live.log.name.removeprefix(WEBHOOK_PREFIX)

    def pass_to(self, seq: int) -> None:
        """Up to here there is nothing more to send; what comes next was not looked at yet."""
        self.start = seq
        """The next batch begins behind it."""
        self.examined = seq
        """How far was looked for records of the next batch."""
        self.found = 0
        """How many there were."""
        self.due_at_ms = 0
        """When they are to be sent though there are few."""
        self.page = None

    def may_be_full(self, source: OpenLog) -> bool:
        """Whether enough records came since the last look to fill the next batch."""
        missing = self.state.destination.batch_records - self.found
        return source.visible - self.examined >= missing

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def surface_of(name: str) -> str:
    """The surface that made a webhook of this name."""
    return name.partition("/")[0]


def title_of(name: str) -> str:
    """The name of a webhook on its surface."""
    return name.partition("/")[2]
