"""Reports: from records as surfaces document them to rows, pictures and files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib.dates import num2date
from matplotlib.patches import Rectangle

from headrace.core.dead_letter import stamp
from headrace.core.record import payloads
from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.reports import chart
from headrace.pipeline.reports.report import Chart, Period
from headrace.pipeline.reports.run import ReportOptions, rows_of, run
from headrace.pipeline.reports.studies import STUDIES
from headrace.pipeline.rows import COLUMNS, NUMBER
from headrace.printing import count
from headrace.surfaces.feeds.records import parse_events, writer
from headrace.surfaces.flags.version_rows import (
    EMPTY,
    NextVersion,
    Tree,
    VersionSummary,
    encode_row,
    next_version,
)
from support.manifests import digest
from support.segment_store import SegmentStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON_MS = 1_770_897_600_000  # 2026-02-12T12:00:00Z
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def records(
    spark: SparkSession, *told: tuple[str, int, Any] | tuple[str, int, Any, bytes]
) -> DataFrame:
    """Rows of a segment: log, time, payload, and a meta for some."""
    rows = [
        (
            log, 1, seq, ts, None, None, None, None, None,
            data if isinstance(data, bytes) else json.dumps(data).encode(),
            meta[0].decode() if meta else None, 1,
        )
        for seq, (log, ts, data, *meta) in enumerate(told, 1)
    ]  # fmt: skip
    return spark.createDataFrame(rows, f"{COLUMNS}, {NUMBER} long")


def made(study: str, rows: DataFrame) -> list[dict[str, Any]]:
    chosen = STUDIES[study]
    return rows_of(chosen.make(rows, chosen.period))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def event(who: str, what: str, timestamp: str | None = None) -> dict[str, Any]:
    return {
        "type": what,
        "timestamp": timestamp,
        "resourceRef": {
            "resourceType": "version",
            "resourceId": "3",
            "parentRefs": {"variantId": "english", "templateId": "invoice"},
        },
        "actor": {"type": "user", "identifier": who},
    }


def stored_event(tenant: str, at_ms: int, event: dict[str, Any]) -> bytes:
    """An event as feeds store it."""
    events = parse_events(json.dumps(event).encode(), tenant, 1 << 20)
    return payloads(writer(events)([0], 1, at_ms))[0]


def test_who_changed_what(spark: SparkSession) -> None:
    joe = event("joe", "version.archived")
    rows = records(
        spark,
        ("feed:acme", NOON_MS, event("jane", "version.published", "2026-02-11T10:00:00Z")),
        ("feed:acme", NOON_MS, event("jane", "version.published", "2026-02-11T11:00:00Z")),
        ("feed:acme", NOON_MS, stored_event("acme", NOON_MS, joe)),
        ("feed:beta", NOON_MS, {"type": "template.deleted"}),
        ("feed:beta", NOON_MS, b"not JSON"),
        ("feed:beta", NOON_MS, [1]),
    )
    first, second, third = made("changes", rows)
    assert first == {
        "tenant": "acme",
        "at": at("2026-02-11T00:00:00"),
        "who": "jane",
        "what": "version.published",
        "resource": "templateId=invoice/variantId=english/version=3",
        "times": 2,
        "first": at("2026-02-11T10:00:00"),
        "last": at("2026-02-11T11:00:00"),
    }
    assert (second["who"], second["at"]) == ("joe", at("2026-02-12T00:00:00"))
    assert (third["tenant"], third["who"], third["resource"]) == ("beta", "unknown", "")


def test_how_much_of_manifests_changes(spark: SparkSession) -> None:
    """Over rows as the flags surface stores them."""

    def row(before: Tree, closure: str, **files: bytes) -> NextVersion:
        about = VersionSummary("tok_1", closure, len(files), 0)
        tree = {f"flags/{name}.toml": digest(content) for name, content in files.items()}
        return next_version(before, tree, about, NOON_MS)

    one = row(EMPTY, "a", x=b"1", y=b"2")
    two = row(one.tree, "b", x=b"3", z=b"4")
    three = row(two.tree, "b", x=b"3", z=b"4")
    other = row(EMPTY, "c", x=b"1")
    rows = records(
        spark,
        *(
            ("flags:acme:billing", NOON_MS, encode_row(version.row))
            for version in (one, two, three)
        ),
        ("flags:acme:billing", NOON_MS, {"version": 4, "closure_hash": "b"}),
        ("flags:acme:growth", NOON_MS + DAY_MS, encode_row(other.row)),
        ("flags:acme:growth", NOON_MS, {"note": "no version"}),
    )
    billing, growth = made("churn", rows)
    assert billing == {
        "tenant": "acme",
        "namespace": "billing",
        "at": at("2026-02-12T00:00:00"),
        "versions": 4,
        "closures": 2,
        "added": 3,
        "modified": 1,
        "removed": 1,
        "files": 5,
    }
    assert (growth["namespace"], growth["at"]) == ("growth", at("2026-02-13T00:00:00"))


def test_how_many_notifications_where(spark: SparkSession) -> None:
    square = "(51.5,-0.5,51.5,0.3,52.5,0.3,52.5,-0.5,51.5,-0.5)"
    pairs = "[[-3,7],[-3,8],[-2,8],[-3,7]]"
    rows = records(
        spark,
        ("notify:storm", NOON_MS, {"identifier": {"region": "north", "severity": 4}}),
        ("notify:storm", NOON_MS + 1, {"identifier": {"region": "north", "severity": 5}}),
        ("notify:storm", NOON_MS, {"identifier": {"polygon": square}}),
        ("notify:storm", NOON_MS, {"identifier": {"polygon": pairs}}),
        (
            "notify:storm",
            NOON_MS,
            {"identifier": {"polygon": json.loads(pairs)}, "bbox": [-3, 7, -2, 8], "payload": None},
        ),
        ("notify:flood", NOON_MS + HOUR_MS, {"identifier": {"class": "od"}}),
        ("notify:flood", NOON_MS, b"null"),
    )
    found = [(row["event_type"], row["area"], row["notifications"]) for row in made("volume", rows)]
    assert found == [
        ("flood", "anywhere", 1),
        ("storm", "-10..0,0..10", 2),
        ("storm", "50..60,-10..0", 1),
        ("storm", "north", 2),
    ]


def test_how_queues_fare(spark: SparkSession) -> None:
    dead = stamp(None, "jobs", 5, 2)
    interval = {
        "kind": "interval", "metric": "queue.latency", "windowStart": NOON_MS, "count": 4,
        "sum": 20, "max": 9, "attributes": {"queue": "jobs"},
    }  # fmt: skip
    rows = records(
        spark,
        *[("jobs", NOON_MS, {"n": n}) for n in range(4)],
        ("jobs:dead", NOON_MS + 1, {"n": 1}, dead),
        ("jobs", NOON_MS + HOUR_MS, {"n": 9}),
        ("__stream_metrics__", NOON_MS + 2, interval),
        ("orders", NOON_MS, {"n": 1}),
    )
    first, second = made("failures", rows)
    assert first == {
        "queue": "jobs",
        "at": at("2026-02-12T12:00:00"),
        "jobs": 4,
        "dead": 1,
        "dead_share": 0.25,
        "deliveries": 5.0,
        "acked": 4,
        "mean_ms": 5.0,
        "max_ms": 9.0,
    }
    assert (second["jobs"], second["dead"], second["mean_ms"]) == (1, 0, None)


def test_how_long_requests_took(spark: SparkSession) -> None:
    def request(ms: float | None, **more: Any) -> dict[str, Any]:
        told = {"timestamp": "2026-02-12T12:00:10.000Z", "service": "checkout", "duration": ms}
        return told | more

    rows = records(
        spark,
        *[("web", NOON_MS, request(float(ms))) for ms in range(1, 99)],
        ("web", NOON_MS, request(99, status=502)),
        ("web", NOON_MS, request(100, level="error")),
        ("web", NOON_MS, request(None)),
        ("web", NOON_MS, {"duration": 1, "timestamp": "soon"}),
    )
    checkout, unknown = made("latency", rows)
    assert (checkout["requests"], checkout["errors"], checkout["mean_ms"]) == (100, 2, 50.5)
    assert [checkout[name] for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")] == [
        50.0,
        95.0,
        99.0,
        100.0,
    ]
    assert (unknown["service"], unknown["at"]) == ("unknown", at("2026-02-12T12:00:00"))


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's own idea of what time it is; `test_session` has another one."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_times_are_utc_wherever_the_machine_is(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    requests = [{"timestamp": f"2026-02-12T12:0{n}:10Z", "duration": 1} for n in range(2)]
    shelf.seal({"web": [json.dumps(request).encode() for request in requests]})
    wish = ReportOptions(to=tmp_path / "rows.jsonl", chart=tmp_path / "rows.html")
    shown = run(spark, shelf.place, STUDIES["latency"], wish)
    expected = ["2026-02-12T12:00:00Z", "2026-02-12T12:01:00Z"]
    assert [row[2] for row in shown.rows] == expected
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["at"] for line in lines] == expected
    page = (tmp_path / "rows.html").read_text()
    assert all(f"<td>{told}</td>" in page for told in expected)
    assert "12:00" in re.findall(r"<!-- (\d\d:\d\d) -->", page)  # the axis
    run(spark, shelf.place, STUDIES["latency"], ReportOptions(to=tmp_path / "rows.csv"))
    told = [line.split(",")[2] for line in (tmp_path / "rows.csv").read_text().splitlines()]
    assert told == ["at", *expected]


BARS = Chart("Changes <by tenant>", "bars", "at", "times", "changes", "tenant")
DAY = [at("2026-02-11"), at("2026-02-12")]
ROWS = [
    {"at": DAY[0], "tenant": "acme", "times": 2},
    {"at": DAY[0], "tenant": "acme", "times": 3},
    {"at": DAY[1], "tenant": "beta", "times": 1},
    {"at": DAY[1], "tenant": "gone", "times": None},
]


def test_what_is_drawn() -> None:
    assert chart.sums(BARS, ROWS) == {"acme": {DAY[0]: 5.0}, "beta": {DAY[1]: 1.0}}
    many = [{"at": DAY[0], "tenant": f"t{n:02}", "times": 100 - n} for n in range(14)]
    drawn = chart.sums(BARS, many)
    assert [*drawn] == [f"t{n:02}" for n in range(10)] + ["others"]
    assert drawn["others"] == {DAY[0]: 90.0 + 89 + 88 + 87}


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
@pytest.mark.parametrize("rows", [ROWS, []])
def test_pictures(tmp_path: Path, name: str, start: bytes, rows: list[dict[str, Any]]) -> None:
    chart.draw(BARS, rows, "day", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_page_has_the_picture_and_the_table(tmp_path: Path) -> None:
    chart.draw(BARS, ROWS, "day", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "<svg" in page
    assert "Changes &lt;by tenant&gt;" in page
    assert "<td>acme</td>" in page


@pytest.mark.parametrize(
    ("period", "hours"),
    [("minute", 1 / 60), ("hour", 1), ("day", 24), ("week", 168), ("month", 28 * 24)],
)
def test_a_bar_is_as_wide_as_its_period(period: Period, hours: float) -> None:
    alone = {"at": at("2026-02-01T00:00:00"), "tenant": "acme", "times": 2}
    later = alone | {"at": at("2026-06-01T00:00:00")}
    for rows in ([alone], [alone, later]):
        (axes,) = chart.render(BARS, rows, period).axes
        bar = axes.patches[0]
        assert isinstance(bar, Rectangle)
        assert bar.get_width() * 24 == pytest.approx(hours * 0.8)
        low, high = (num2date(x) for x in axes.get_xlim())
        assert low < alone["at"] < rows[-1]["at"] < high or len(rows) == 1
        assert (high - low).total_seconds() >= 7 * hours * 3600
        if len(rows) == 1:
            assert (high - low).total_seconds() <= 9 * hours * 3600


def test_a_point_is_inside_its_picture() -> None:
    lines = Chart("p95", "lines", "at", "ms", "ms", "service")
    rows = [{"at": at("2026-02-01T00:00:00"), "service": str(ms), "ms": ms} for ms in (94.0, 95.3)]
    (axes,) = chart.render(lines, rows, "minute").axes
    assert axes.get_ylim()[1] >= 1.02 * 95.3
    (axes,) = chart.render(lines, [rows[0] | {"ms": 0.0}], "minute").axes
    assert axes.get_ylim() == (0, 1)


def test_times_that_are_none_are_when_it_was_committed(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    """Year 1 is how Go writes that there is no time."""
    times = ["0001-01-01T00:00:00Z", "+12345-01-01T00:00:00Z", "2026-02-12T12:00:00Z"]
    shelf.seal({
        "web": [b'{"duration":1,"timestamp":"%b"}' % time.encode() for time in times],
        "feed:a": [b'{"type":"t","timestamp":"%b"}' % time.encode() for time in times],
        "m": [
            b'{"metric":"queue.latency","attributes":{"queue":"q"},"count":1,"windowStart":%d}' % ms
            for ms in (-(1 << 62), 1 << 62, 0)
        ],
    })  # fmt: skip
    for study, rows in (("latency", 2), ("changes", 2), ("failures", 1)):
        wish = ReportOptions(chart=tmp_path / f"{study}.png")
        made = run(spark, shelf.place, STUDIES[study], wish)
        assert made.summary == f"{study}: {count(rows, 'row')}"


def test_an_empty_chart_says_why(tmp_path: Path) -> None:
    why = "no sealed record of <feed:*>"
    (axes,) = chart.render(BARS, [], "hour", why).axes
    assert [text.get_text() for text in axes.texts] == [why]
    assert not axes.axison
    chart.draw(BARS, [], "hour", tmp_path / "a.html", why)
    page = (tmp_path / "a.html").read_text()
    assert "<p>no sealed record of &lt;feed:*&gt;</p>" in page
    assert "1970" not in page


def test_reports_of_what_is_not_there(spark: SparkSession, shelf: SegmentStore) -> None:
    def said(study: str = "latency", **wish: Any) -> str:
        return run(spark, shelf.place, STUDIES[study], ReportOptions(**wish)).summary

    assert said() == "latency: 0 rows; nothing is sealed yet"
    shelf.seal({"web-1": [b'{"duration":1}'], "orders": [b"{}"]})
    assert said("changes") == (
        "changes: 0 rows; no sealed record of feed:* is a change with a type"
    )
    assert said("failures").startswith("failures: 0 rows; no sealed record is a dead letter, or")
    request = "is a request with a duration"
    assert said(logs=("orders",)) == f"latency: 0 rows; no sealed record of orders {request}"
    assert said(logs=("web-*",), from_ts=0, to_ts=1).endswith(
        f"no sealed record of web-* in that time {request}"
    )
    assert said(logs=("web-*",)) == "latency: 1 row"
    with pytest.raises(CannotRun, match="there is no log wen-1; did you mean web-1"):
        said(logs=("web-*", "wen-1"))


def test_nothing_is_told_of_damaged_bytes(spark: SparkSession, shelf: SegmentStore) -> None:
    spoilt = shelf.seal({"notify:a": [b'{"n":1}']})
    other = shelf.seal({"notify:b": [b'{"n":2}']})
    shelf.objects.put(spoilt.name, bytes(shelf.objects.get(other.name)))
    with pytest.raises(JobFailed, match=spoilt.name):
        run(spark, shelf.place, STUDIES["volume"], ReportOptions())


def test_only_pictures_can_be_drawn() -> None:
    with pytest.raises(CannotRun, match="a chart is a file in"):
        chart.check(Path("a.gif"))
