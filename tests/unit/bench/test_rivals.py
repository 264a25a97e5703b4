from __future__ import annotations

from headrace_bench.report import RatioAtLeast, Row
from headrace_bench.scenarios.rivals import OURS, make_rows, map_rounds


def test_each_rival_gets_a_row_and_a_missing_one_a_command() -> None:
    rounds = {OURS: (30.0, 40.0), "fast": (10.0, 10.0)}
    installs = {"fast": "apt-get install fast", "lost": "npm install lost"}
    reach = RatioAtLeast(3)
    assert make_rows("jobs", "/s", rounds, installs, {"fast": reach}) == [
        Row("jobs", "/s", (30.0, 40.0), (10.0, 10.0), baseline_is="fast", reach=reach),
        Row("jobs", "/s", (30.0, 40.0), baseline_is="lost", install="npm install lost"),
    ]


def test_rounds_are_measured_one_by_one() -> None:
    assert map_rounds({OURS: ("a", "bcd")}, len) == {OURS: (1, 3)}
