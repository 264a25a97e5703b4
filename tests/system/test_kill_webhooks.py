"""Webhooks of a server that is killed in the middle of deliveries: none is lost, each keeps its id,
and a stock library verifies them.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from headrace_bench.process import ServerProcess
from support.pasted import blocks, run, run_shell
from support.webhook_receiver import WebhookReceiver, receiving

from .launching import Servers, wait_until

pytestmark = pytest.mark.system

PAGE = "docs/surfaces/topics.md"
ROUNDS = 3
RECORDS = 7
BATCH = 3


def seqs(receiver: WebhookReceiver) -> dict[int, set[str]]:
    """Which records came, and under which ids."""
    found: dict[int, set[str]] = {}
    for _, body in list(receiver.deliveries):
        delivery = json.loads(body)
        for record in delivery["records"]:
            found.setdefault(record["$seq"], set()).add(delivery["delivery_id"])
    return found


def ask(server: ServerProcess, method: str, path: str, body: Any) -> Any:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        headers = {"Content-Type": "application/json"}
        line.request(method, f"/v0/{path}", json.dumps(body), headers)
        reply = line.getresponse()
        said = json.loads(reply.read())
        assert reply.status < 300, said
        return said
    finally:
        line.close()


def test_a_server_that_is_killed_loses_no_delivery(new_server: Servers) -> None:
    with receiving() as receiver:
        server = new_server(HEADRACE_WEBHOOK_HOSTS="127.0.0.1")
        server.start()
        ask(server, "PUT", "topics/a", {"durable": True})
        wanted = {"source": "a", "url": receiver.url, "batch": {"max_records": BATCH}}
        secret = ask(server, "PUT", "webhooks/w", wanted)["secret"]
        for round in range(1, ROUNDS + 1):
            before = len(receiver.deliveries)
            receiver.open.clear()
            records = [{"data": number} for number in range(RECORDS)]
            ask(server, "POST", "topics/a", {"records": records})
            wait_until(lambda before=before: len(receiver.deliveries) > before, "a delivery")
            server.kill()
            receiver.open.set()
            server.start()
            head = round * RECORDS
            wait_until(lambda head=head: head in seqs(receiver), "the last record")
        assert [*seqs(receiver)] == [*range(1, ROUNDS * RECORDS + 1)], "in order, none left out"
        assert all(len(ids) == 1 for ids in seqs(receiver).values()), "a delivery has one id"
        assert len(receiver.deliveries) > ROUNDS * -(-RECORDS // BATCH), "none was interrupted"
        for headers, body in receiver.deliveries:
            said = Webhook(secret).verify(body, headers)
            assert said["delivery_id"] == headers["webhook-id"]
        assert secret not in server.output()


def test_the_examples_run(new_server: Servers, tmp_path: Path) -> None:
    with receiving() as receiver:
        server = new_server(HEADRACE_WEBHOOK_HOSTS="127.0.0.1")
        server.start()
        here = {"http://127.0.0.1:4000": server.url, "http://127.0.0.1:9000/hook": receiver.url}
        shown = [text for kind, text in blocks(PAGE, here) if kind == "sh"]
        (trackers,) = (text for text in shown if "$V/trackers" in text)
        (webhooks,) = (text for text in shown if "$V/webhooks" in text)
        said = run_shell(trackers, tmp_path)
        assert '"next_ack_seq":2' in said
        assert '"cursor_seq":2' in said
        said = run_shell(webhooks, tmp_path)
        assert '"delivered":true' in said
        secret = said.partition('"secret":"')[2].partition('"')[0]
        wait_until(lambda: len(receiver.deliveries) >= 2, "a delivery and a test")
        (verifier,) = (text for kind, text in blocks(PAGE) if "standardwebhooks" in text)
        handled: list[Any] = []
        take = run(verifier, PAGE, {"handle": handled.append})["take"]
        for headers, body in receiver.deliveries:
            take(secret, headers, body)
        assert {record["data"]["total"] for record in handled} == {5}
