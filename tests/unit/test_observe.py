from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator

import pytest

from headrace.observe import (
    LATENCY_BOUNDS_US,
    Counter,
    Gauge,
    Histogram,
    LabelledFamily,
    MetricFamily,
    log_line,
    render_prometheus,
    snapshot,
    start_log,
)


def test_counters_and_gauges() -> None:
    appends, depth = Counter("appends_total", "Appends."), Gauge("depth", "Depth.")
    appends.add()
    appends.add(2)
    depth.set(7)
    depth.add(-2)
    assert render_prometheus([appends, depth]) == (
        "# HELP appends_total Appends.\n"
        "# TYPE appends_total counter\n"
        "appends_total 3\n"
        "# HELP depth Depth.\n"
        "# TYPE depth gauge\n"
        "depth 5\n"
    )
    assert snapshot([appends, depth]) == {"appends_total": 3, "depth": 5}


def test_a_bucket_counts_what_is_at_or_under_its_bound() -> None:
    histogram = Histogram("us", "Microseconds.", (10, 100))
    for value in (1, 10, 11, 100, 5000):
        histogram.observe(value)
    assert render_prometheus([histogram]).splitlines()[2:] == [
        'us_bucket{le="10"} 2',
        'us_bucket{le="100"} 4',
        'us_bucket{le="+Inf"} 5',
        "us_sum 5122",
        "us_count 5",
    ]
    assert snapshot([histogram]) == {
        "us": {"buckets": {"10": 2, "100": 4, "+Inf": 5}, "sum": 5122, "count": 5}
    }


def test_a_renamed_histogram_is_a_copy() -> None:
    histogram = Histogram("us", "Microseconds.", LATENCY_BOUNDS_US)
    histogram.observe(400)
    copy = histogram.named("topics_us", "For topics.")
    histogram.observe(400)
    assert (copy.name, copy.help, copy.count, copy.sum) == ("topics_us", "For topics.", 1, 400)
    assert histogram.count == 2


def test_bounds_must_ascend() -> None:
    with pytest.raises(AssertionError):
        Histogram("us", "Microseconds.", (10, 5))


def test_labels_and_help_are_escaped() -> None:
    family = MetricFamily("f", "a \\ b\nc", "topic", {'x"y\\z\n': 1})
    assert render_prometheus([family]) == (
        '# HELP f a \\\\ b\\nc\n# TYPE f gauge\nf{topic="x\\"y\\\\z\\n"} 1\n'
    )
    assert snapshot([family]) == {"f": {'x"y\\z\n': 1}}


@pytest.mark.parametrize(
    ("value", "text", "plain"),
    [
        (True, "1", 1),
        (0.5, "0.5", 0.5),
        (2**60, str(2**60), 2**60),
        (math.inf, "+Inf", None),
        (-math.inf, "-Inf", None),
        (math.nan, "NaN", None),
    ],
)
def test_numbers(value: float, text: str, plain: float | None) -> None:
    gauge = Gauge("g", "G.", value)
    assert render_prometheus([gauge]).splitlines()[-1] == f"g {text}"
    assert json.loads(json.dumps(snapshot([gauge]), allow_nan=False)) == {"g": plain}


def test_nothing_renders_as_nothing() -> None:
    assert render_prometheus([]) == ""


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    # Taken out first: start_log closes the handlers it replaces, and these are pytest's.
    root.handlers[:] = []
    start_log("info", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_event_is_one_line(log: io.StringIO) -> None:
    log_line(
        "info", "listening", host="127.0.0.1", port=4000, note='two words\nand "more"', empty=""
    )
    log_line("debug", "too quiet to hear")
    [line] = log.getvalue().splitlines()
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z")
    assert rest == (
        'INFO    listening host=127.0.0.1 port=4000 note="two words\\nand \\"more\\"" empty=""'
    )


def test_control_characters_cannot_forge_a_line(log: io.StringIO) -> None:
    log_line("warning", "odd\r\nERROR forged \x1b[31m", name="a\u2028b\x1b")
    assert len(log.getvalue().splitlines()) == 1
    assert "\x1b" not in log.getvalue()


def test_secrets_are_not_said(log: io.StringIO) -> None:
    log_line("error", "no", token="s3cret", Authorization="Bearer s3cret")
    assert "s3cret" not in log.getvalue()


def test_a_failure_brings_its_trace(log: io.StringIO) -> None:
    try:
        raise KeyError("gone")
    except KeyError as problem:
        log_line("error", "request failed", trace=problem, path="/v0")
    first, *rest = log.getvalue().splitlines()
    assert first.endswith("ERROR   request failed path=/v0")
    assert rest[-1] == "KeyError: 'gone'"


def test_several_labels() -> None:
    counts = {("a", 'say "x"'): 2, ("b", "\\"): math.inf}
    family = LabelledFamily("asked_total", "Asked.", ("route", "status"), counts)
    assert render_prometheus([family]) == (
        "# HELP asked_total Asked.\n"
        "# TYPE asked_total counter\n"
        'asked_total{route="a",status="say \\"x\\""} 2\n'
        'asked_total{route="b",status="\\\\"} +Inf\n'
    )
    assert snapshot([family])["asked_total"] == [
        {"route": "a", "status": 'say "x"', "value": 2},
        {"route": "b", "status": "\\", "value": None},
    ]
