from __future__ import annotations

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.procfs import parse_memory_mb, parse_ticks

STATUS = "Name:\tredis-server\nVmHWM:\t  2048 kB\nVmRSS:\t  1536 kB\n"


def test_memory_is_in_megabytes() -> None:
    assert parse_memory_mb(STATUS, "VmRSS") == 1.5
    assert parse_memory_mb(STATUS, "VmHWM") == 2.0


def test_ticks_are_found_behind_any_name() -> None:
    numbers = " ".join(str(number) for number in range(4, 53))
    assert parse_ticks(f"77 (a ) 1 b) S {numbers}") == 14 + 15


def test_a_process_that_is_gone_has_no_memory() -> None:
    with pytest.raises(BenchError, match="VmRSS"):
        parse_memory_mb("Name:\tredis-server\nState:\tZ (zombie)\n", "VmRSS")
