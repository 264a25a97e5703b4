from __future__ import annotations

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.wrk import parse_rate

OUTPUT = """\
Running 1s test @ http://127.0.0.1:4000
  1 threads and 64 connections
  8650 requests in 1.00s, 2.10MB read
%sRequests/sec:   8634.57
Transfer/sec:      2.09MB
"""


def test_the_rate_is_read() -> None:
    assert parse_rate(OUTPUT % "") == 8634.57


@pytest.mark.parametrize(
    "line",
    [
        "  Non-2xx or 3xx responses: 12\n",
        "  Socket errors: connect 0, read 3, write 0, timeout 0\n",
    ],
)
def test_a_failed_request_is_a_failure(line: str) -> None:
    with pytest.raises(BenchError, match=line.strip()):
        parse_rate(OUTPUT % line)


def test_anything_else_is_refused() -> None:
    with pytest.raises(BenchError, match="unexpected"):
        parse_rate("")
