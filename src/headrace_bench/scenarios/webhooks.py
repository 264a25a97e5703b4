"""Webhooks: how fast records that wait go to a receiver on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_bench.arena import Arena
from headrace_bench.control import create_topic, create_webhook, delete_webhook
from headrace_bench.jobs import Appends, Counted, Cycle, Http
from headrace_bench.process import ServerProcess
from headrace_bench.receiving import WebhookReceiver, receiving
from headrace_bench.report import Row, ValueAtLeast
from headrace_bench.scenarios.workload import RECORD_BYTES, make_batches
from headrace_bench.worker import run_appends

RECORDS = 20_000
APPEND_RECORDS = 100
SINGLE_WEBHOOKS = 10
SINGLE_RECORDS = 500
"""Of each of them."""
DELIVERIES_MIN = 500
EVENTS_MIN = 20_000
BATCH = 50


def webhooks(arena: Arena) -> Iterator[Row]:
    """Deliveries of one record to several webhooks, and of fifty to one; each is synced."""
    with arena.server({"HEADRACE_WEBHOOK_HOSTS": "127.0.0.1"}) as server, receiving() as receiver:
        single = _Backlog(server, receiver, "single", SINGLE_RECORDS)
        (rates,) = arena.take_turns(
            "webhooks, one record each", lambda: single.deliver(SINGLE_WEBHOOKS, 1)
        )
        yield Row(
            f"deliveries to {SINGLE_WEBHOOKS} webhooks", "/s", rates,
            reach=ValueAtLeast(DELIVERIES_MIN),
        )  # fmt: skip
        many = _Backlog(server, receiver, "many", RECORDS)
        (rates,) = arena.take_turns(
            f"a webhook in batches of {BATCH}", lambda: many.deliver(1, BATCH) * BATCH
        )
        yield Row(
            f"records to a webhook, {BATCH} at a time", "/s", rates,
            reach=ValueAtLeast(EVENTS_MIN),
        )  # fmt: skip


class _Backlog:
    """A topic whose records wait to be delivered."""

    def __init__(
        self, server: ServerProcess, receiver: WebhookReceiver, topic: str, records: int
    ) -> None:
        self._server = server
        self._receiver = receiver
        self._topic = topic
        self._records = records
        create_topic(server.url, topic, "disk")
        requests = Cycle(make_batches(topic, APPEND_RECORDS))
        plan = Counted(records // APPEND_RECORDS)
        run_appends(Appends(server.port, 1, Http(), requests, plan))

    def deliver(self, hooks: int, batch: int) -> float:
        """Deliveries in a second to so many webhooks, which all get every record."""
        receiver, url = self._receiver, self._server.url
        wanted = hooks * self._records
        receiver.expect(wanted // batch, wanted * RECORD_BYTES)
        names = [f"{self._topic}-{number}" for number in range(hooks)]
        for name in names:
            address = f"http://127.0.0.1:{receiver.port}/{name}"
            create_webhook(url, name, self._topic, address, batch)
        receiver.wait_complete()
        for name in names:
            delete_webhook(url, name)
        return receiver.rate_per_s
