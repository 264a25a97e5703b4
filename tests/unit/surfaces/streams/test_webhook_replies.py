"""What a webhook answers is taken for what it says, or for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from headrace.core.config import LogConfig
from headrace.core.entry import Following
from headrace.core.log import Log
from headrace.core.subscription import WEBHOOK, Subscription
from headrace.delivery.addresses import AllowedHosts
from headrace.delivery.signing import Signer
from headrace.delivery.webhooks import Webhooks
from headrace.engine.callbacks.sender import ReceiverReply
from headrace.engine.open_log import OpenLog
from headrace.surfaces.streams.control import Control


class Answering(Webhooks):
    """Answers as told."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(AllowedHosts())
        self._reply = reply
        self.bodies: list[bytes] = []

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverReply:
        self.bodies.append(body)
        return ReceiverReply(200, self._reply)


def deliver(webhooks: Answering, id: str = "s") -> bool:
    control = Control(webhooks)
    control.open(Signer(bytes(32)))
    log = Log(1, f"__ds/subscriptions/{id}", "subscriptions", LogConfig())
    following = Following(WEBHOOK, "a", [], "https://x", None, 1000, None, "http://h/__ds", 0)
    log.subscription = Subscription(following, wake="w_1", generation=1)
    return asyncio.run(control.deliver(OpenLog(log), []))


@pytest.mark.parametrize(
    ("reply", "done"),
    [
        (b'{"done": true}', True),
        (b'{"done": true, "more": [1]}', True),
        (b"", False),
        (b"{}", False),
        (b"OK", False),
        (b'{"done": 1}', False),
        (b'{"done": true', False),
        (b"\xff\xfe", False),
        (b'{"x":' + b"[" * 60_000, False),
        (b'{"x":' + b"[" * 30_000 + b"]" * 30_000 + b', "done": true}', False),
    ],
)
def test_replies(reply: bytes, done: bool) -> None:
    assert deliver(Answering(reply)) is done


def test_the_callback_is_where_the_subscription_is() -> None:
    webhooks = Answering(b"")
    deliver(webhooks, "a b?c")
    assert b'"callback_url":"http://h/__ds/subscriptions/a%20b%3Fc/callback"' in webhooks.bodies[0]
