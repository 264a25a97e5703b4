from __future__ import annotations

import pytest

from headrace.bench.errors import BenchError
from headrace.bench.procfs import parse_memory_mb

STATUS = "Name:\tredis-server\nVmHWM:\t  2048 kB\nVmRSS:\t  1536 kB\n"


def test_memory_is_in_megabytes() -> None:
    assert parse_memory_mb(STATUS, "VmRSS") == 1.5
    assert parse_memory_mb(STATUS, "VmHWM") == 2.0


def test_a_process_that_is_gone_has_no_memory() -> None:
    with pytest.raises(BenchError, match="VmRSS"):
        parse_memory_mb("Name:\tredis-server\nState:\tZ (zombie)\n", "VmRSS")
