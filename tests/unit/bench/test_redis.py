from __future__ import annotations

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.redis import parse_rate

HEADINGS = '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms"\n'


def test_the_rate_is_read_by_its_heading() -> None:
    assert (
        parse_rate(HEADINGS + '"XADD bench * data x,y","60000.25","0.9","0.3","0.9"\n') == 60000.25
    )


@pytest.mark.parametrize("output", ["", HEADINGS, "XADD: 60000.00 requests per second\n"])
def test_anything_else_is_refused(output: str) -> None:
    with pytest.raises(BenchError, match="unexpected"):
        parse_rate(output)
