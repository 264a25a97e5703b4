"""Subscriptions of feeds at a real receiver: signed in both ways, in order, and none is lost when
the server is killed in the middle of a delivery.
"""

from __future__ import annotations

import hmac
import http.client
import json
from contextlib import closing
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from headrace_bench.process import ServerProcess
from support.webhook_receiver import WebhookReceiver, receiving

from .launching import Servers, wait_until

pytestmark = pytest.mark.system

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VENDOR = "application/vnd.epistola.v1+json"
TENANT = "/tenants/acme-corp"
ROUNDS = 3
EVENTS = 7
BATCH = 3


def ask(server: ServerProcess, method: str, path: str, body: Any = None) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as line:
        sent = None if body is None else json.dumps(body)
        line.request(method, TENANT + path, sent, {"Content-Type": VENDOR})
        reply = line.getresponse()
        said = reply.read()
        assert reply.status < 300, said
        return json.loads(said)


def store(server: ServerProcess, type: str, resource: str) -> int:
    ref = {"resourceType": resource, "resourceId": "a"}
    reply = ask(server, "POST", "/events", {"type": type, "resourceRef": ref})
    number: int = reply["events"][0]["sequenceNumber"]
    return number


def received(receiver: WebhookReceiver) -> dict[int, set[str]]:
    """Which events came, and under which ids."""
    found: dict[int, set[str]] = {}
    for headers, body in list(receiver.deliveries):
        delivery = json.loads(body)
        for event in delivery["events"]:
            if event["type"] != "subscription.test":
                ids = found.setdefault(event["sequenceNumber"], set())
                ids.add(headers["X-Epistola-Delivery-Id"])
    return found


def test_deliveries_are_signed_ordered_and_survive_a_kill(new_server: Servers) -> None:
    server = new_server(HEADRACE_WEBHOOK_HOSTS="127.0.0.1", HEADRACE_PIPELINE="off").start()
    store(server, "theme.created", "theme")  # before the subscription: not for it
    with receiving() as receiver:
        made = ask(
            server,
            "POST",
            "/event-subscriptions",
            {
                "callbackUrl": receiver.url,
                "secret": SECRET,
                "filters": {"resourceTypes": ["version"]},
                "batchSettings": {"maxBatchSize": BATCH, "maxDelaySeconds": 0},
            },
        )
        assert "secret" not in made
        wanted = []
        for _ in range(ROUNDS):
            receiver.open.clear()  # a delivery is under way when the server is killed
            before = len(receiver.deliveries)
            for _ in range(EVENTS):
                store(server, "theme.updated", "theme")
                wanted.append(store(server, "version.published", "version"))
            wait_until(lambda before=before: len(receiver.deliveries) > before, "a delivery")
            server.kill()
            receiver.open.set()
            server.start()
            wait_until(lambda: wanted[-1] in received(receiver), "the last event")
        found = received(receiver)
        assert list(found) == wanted, "in order, none left out, none that is not wanted"
        assert all(len(ids) == 1 for ids in found.values()), "a batch has one id"
        tried = ask(server, "POST", f"/event-subscriptions/{made['id']}/test")
        assert tried["delivered"]
        assert json.loads(receiver.deliveries[-1][1])["events"][0]["type"] == "subscription.test"
        for headers, body in receiver.deliveries:
            assert headers["content-type"] == VENDOR
            assert headers["webhook-id"] == headers["X-Epistola-Delivery-Id"]
            assert json.loads(body)["subscriptionId"] == made["id"]
            signature = hmac.digest(SECRET.encode(), body, "sha256").hex()
            assert headers["X-Epistola-Signature"] == f"sha256={signature}"
            assert Webhook(SECRET).verify(body, {k.lower(): v for k, v in headers.items()})
        shown = ask(server, "GET", f"/event-subscriptions/{made['id']}")
        assert shown["cursor"]["sequenceNumber"] == wanted[-1]
        assert shown["status"] == "active"
        attempts = ask(server, "GET", f"/event-subscriptions/{made['id']}/deliveries")
        assert attempts["deliveries"][0]["lastSequenceNumber"] == wanted[-1]
