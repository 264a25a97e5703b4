"""The receiver of webhooks of the benchmark: what it takes for a delivery, and how it counts."""

from __future__ import annotations

import http.client

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.receiving import WebhookReceiver, receiving


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_it_takes_deliveries_of_every_size_on_one_connection(size: int) -> None:
    with receiving() as receiver:
        receiver.expect(3)
        line = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=30)
        for _ in range(3):
            line.request("POST", "/hook", b"x" * size, {"content-length": str(size)})
            reply = line.getresponse()
            assert (reply.status, reply.read()) == (204, b"")
        line.close()
        assert receiver.complete.wait(30)
        assert receiver.count == 3
        assert receiver.rate_per_s > 0
        assert receiver.body_bytes == 3 * size


def test_deliveries_that_do_not_come_are_a_failure() -> None:
    receiver = WebhookReceiver()
    receiver.expect(2)
    receiver.take(10)
    with pytest.raises(BenchError, match="1 of 2 deliveries"):
        receiver.wait_complete(0)


@pytest.mark.parametrize(("size", "is_full"), [(99, False), (100, True), (101, True)])
def test_deliveries_that_are_not_full_are_a_failure(size: int, is_full: bool) -> None:
    receiver = WebhookReceiver()
    receiver.expect(2, payload_bytes=200)
    receiver.take(size)
    receiver.take(size)
    if is_full:
        receiver.wait_complete(0)
    else:
        with pytest.raises(BenchError, match="198 bytes only"):
            receiver.wait_complete(0)


def test_each_count_begins_anew() -> None:
    receiver = WebhookReceiver()
    receiver.expect(1)
    receiver.take(10)
    receiver.expect(1, payload_bytes=1)
    assert not receiver.complete.is_set()
    assert (receiver.count, receiver.body_bytes) == (0, 0)
