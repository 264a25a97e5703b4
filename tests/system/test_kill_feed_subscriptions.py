"""Subscriptions of a server that is killed in the middle of deliveries: every event arrives, in
order, each delivery keeps its id, and both kinds of signatures hold.
"""

from __future__ import annotations

import hmac
import http.client
import json
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from headrace_bench.process import ServerProcess
from support.webhook_receiver import WebhookReceiver, receiving

from .launching import Servers, wait_until

pytestmark = pytest.mark.system

ROUNDS = 2
EVENTS = 5
BATCH = 2
EVENT = {"type": "theme.updated", "resourceRef": {"resourceType": "theme", "resourceId": "dark"}}


def ask(server: ServerProcess, method: str, path: str, body: Any = None) -> Any:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        raw = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        line.request(method, f"/tenants/acme-corp/{path}", raw, headers)
        reply = line.getresponse()
        said = json.loads(reply.read())
        assert reply.status < 300, said
        return said
    finally:
        line.close()


def arrived(receiver: WebhookReceiver) -> dict[int, set[str]]:
    """Which events came, in the order they came first, and under which ids."""
    found: dict[int, set[str]] = {}
    for headers, body in list(receiver.deliveries):
        for event in json.loads(body)["events"]:
            ids = found.setdefault(event["sequenceNumber"], set())
            ids.add(headers["X-Epistola-Delivery-Id"])
    return found


def test_a_server_that_is_killed_delivers_every_event(new_server: Servers) -> None:
    with receiving() as receiver:
        server = new_server(HEADRACE_WEBHOOK_HOSTS="127.0.0.1")
        server.start()
        ask(server, "POST", "events", EVENT)
        batching = {"maxBatchSize": BATCH, "maxDelaySeconds": 0}
        wanted = {"callbackUrl": receiver.url, "batchSettings": batching}
        made = ask(server, "POST", "event-subscriptions", wanted)
        for round in range(1, ROUNDS + 1):
            before = len(receiver.deliveries)
            receiver.open.clear()
            ask(server, "POST", "events", {"events": [EVENT] * EVENTS})
            wait_until(lambda before=before: len(receiver.deliveries) > before, "a delivery")
            server.kill()
            receiver.open.set()
            server.start()
            head = 1 + round * EVENTS
            wait_until(lambda head=head: head in arrived(receiver), "the last event")
        assert [*arrived(receiver)] == [*range(2, 2 + ROUNDS * EVENTS)], "in order, none left out"
        assert all(len(ids) == 1 for ids in arrived(receiver).values()), "a delivery has one id"
        assert len(receiver.deliveries) > ROUNDS * -(-EVENTS // BATCH), "none was interrupted"
        for headers, body in receiver.deliveries:
            assert Webhook(made["secret"]).verify(body, headers)["subscriptionId"] == made["id"]
            digest = hmac.digest(made["secret"].encode(), body, "sha256").hex()
            assert headers["X-Epistola-Signature"] == f"sha256={digest}"
            assert headers["X-Epistola-Delivery-Id"] == headers["webhook-id"]
        assert made["secret"] not in server.output()
