from __future__ import annotations

import json

import pytest

from headrace_bench.report import (
    Failure,
    RatioAtLeast,
    RatioAtMost,
    Reach,
    Report,
    Row,
    ValueAtMost,
    encode_report,
    format_table,
)


@pytest.mark.parametrize(
    ("reach", "baseline", "verdict"),
    [
        (None, (100.0,), ""),
        (RatioAtLeast(0.5), (100.0,), "reached"),
        (RatioAtLeast(0.51), (100.0,), "missed"),
        (RatioAtMost(0.5), (100.0,), "reached"),
        (RatioAtMost(0.49), (100.0,), "missed"),
        (RatioAtMost(0.49), (), "not compared"),
        (ValueAtMost(50), (), "reached"),
        (ValueAtMost(49), (100.0,), "missed"),
    ],
)
def test_a_verdict(reach: Reach | None, baseline: tuple[float, ...], verdict: str) -> None:
    assert Row("x", "ms", (50.0,), baseline, reach=reach).verdict == verdict


def test_a_table_lines_up() -> None:
    rows = [
        Row("appends", "/s", (1_200.4, 1_100.0, 1_300.0), (4_000.0, 4_400.0, 5_200.0)),
        Row("p99", "ms", (2.5,), (1.0,), baseline_is="idle", reach=RatioAtMost(3)),
        Row("stall", "ms", (25.0,), reach=ValueAtMost(20)),
    ]
    assert format_table(rows).splitlines() == [
        "what     Headrace               against                       ratio  reach    verdict",
        "-------  ---------------------  ----------------------------  -----  -------  -------",
        "appends  1,200/s (1,100–1,300)  Redis: 4,400/s (4,000–5,200)  0.25",
        "p99      2.50 ms                idle: 1.00 ms                 2.50   ≤ 3 ×    reached",
        "stall    25.00 ms                                                    ≤ 20 ms  missed",
    ]


def test_a_missing_rival_is_named_with_the_command_that_installs_it() -> None:
    row = Row("p99", "ms", (2.5,), baseline_is="Nchan", reach=RatioAtMost(5), install="apt-get x")
    line = format_table([row]).splitlines()[-1]
    assert "Nchan is missing: apt-get x" in line
    assert line.endswith("not compared")


def test_a_rival_that_gives_no_answer_says_why() -> None:
    row = Row("OR", "ms", (2.5,), baseline_is="Prisma", reach=RatioAtMost(0.5), silence="too late")
    assert "Prisma: too late" in format_table([row])
    assert row.verdict == "not compared"


def test_the_json_holds_every_round_and_what_follows() -> None:
    row = Row("appends", "/s", (10.0, 30.0, 20.0), (40.0, 40.0, 40.0), reach=RatioAtLeast(0.25))
    report = Report({"cores": "2"}, {"rounds": 3}, [row], [Failure("history", "no")])
    decoded = json.loads(encode_report(report))
    assert decoded["failures"] == [{"scenario": "history", "message": "no"}]
    assert decoded["rows"] == [
        {
            "what": "appends",
            "unit": "/s",
            "headrace": [10.0, 30.0, 20.0],
            "baseline": [40.0, 40.0, 40.0],
            "baseline_is": "Redis",
            "reach": {"type": "RatioAtLeast", "limit": 0.25},
            "install": "",
            "silence": "",
            "headrace_median": 20.0,
            "baseline_median": 40.0,
            "ratio": 0.5,
            "verdict": "reached",
        }
    ]


def test_a_report_names_what_was_missed() -> None:
    rows = [
        Row("a", "/s", (1.0,), (1.0,), reach=RatioAtLeast(2)),
        Row("b", "/s", (1.0,), reach=RatioAtLeast(2)),
        Row("c", "/s", (1.0,), (1.0,), reach=RatioAtLeast(1)),
    ]
    assert [row.what for row in Report({}, {}, rows, []).missed()] == ["a"]
