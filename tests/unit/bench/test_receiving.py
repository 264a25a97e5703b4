"""The receiver of webhooks of the benchmark: what it takes for a delivery, and how it counts."""

from __future__ import annotations

import http.client

import pytest

from headrace_bench.receiving import receiving


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
