"""Windows that kernels made and documents that are added one by one give the same answer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.formats import companion
from headrace.formats.companion import Family
from headrace.pipeline.kernels import build as building
from headrace.pipeline.kernels import builds as merging
from headrace.search import extraction as reading
from headrace.search.aggregate import Buckets, aligned, fixed_dimensions
from headrace.search.config import parse_search
from headrace.search.query import All, Equals, Has
from support.searching import Rows, Store, documents, index, merged

from .rollups import CONFIG, MINUTE

PARTS = [
    '{"count":3,"sum":6,"min":1,"max":4,"hist":{"1":1,"2":1,"4":1}}',
    '{"count":2,"sum":"3","min":1,"max":2,"hist":{"1":1,"x":9,"2":-1}}',
    '{"count":0,"sum":0,"min":null,"max":null}',
    '{"count":1,"sum":1,"min":1,"max":1}',
]
events = st.fixed_dictionaries(
    {
        "at": st.sampled_from(
            ['"2026-01-01T00:00:30Z"', '"2026-01-01T00:01:00Z"', "1767225600000", "-5", "[1,2]"]
        ),
        "svc": st.sampled_from(['"a"', '"A"', '"b"', "null", '["a","b"]', "7"]),
        "code": st.sampled_from(["200", "500", "null", '"200"']),
        "ms": st.sampled_from(["1", "2.5", "0", "-8", "73.5", "[1,2]", '"x"', "0.125"]),
        "ok": st.sampled_from(["true", '"FALSE"', "null"]),
        "p": st.sampled_from(PARTS),
    }
).map(lambda event: ("{" + ",".join(f'"{k}":{v}' for k, v in event.items()) + "}").encode())


@st.composite
def logs(draw: st.DrawFn, first: int = 1) -> Rows:
    return {
        log: [
            (first + at, raw, None)
            for at, raw in enumerate(draw(st.lists(events | documents, min_size=1, max_size=12)))
        ]
        for log in draw(st.sets(st.integers(1, 3), min_size=1))
    }


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 3)
    monkeypatch.setattr(building, "CHUNK_ROWS", 1)
    monkeypatch.setattr(merging, "RANGE_ROWS", 4)
    monkeypatch.setattr(companion, "ROW_GROUP_ROWS", dict.fromkeys(Family, 4))


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(logs(), logs(first=1000), st.sampled_from([[], ["svc"], ["ok", "svc"]]))
def test_windows_equal_documents(first: Rows, second: Rows, group_by: list[str]) -> None:
    search = parse_search(CONFIG)
    store = Store()
    builds = [index(first, CONFIG, store, 1), index(second, CONFIG, store, 2)]
    both = merged(builds, store)
    everything = (-(10**15), 10**15)
    pinned = All((Equals("svc", "a"), Equals("code", 200)))
    for name, rollup in search.rollups.items():
        own = [dimension for dimension in group_by if dimension in rollup.dimensions]
        query = pinned if rollup.dimensions else None
        fixed = fixed_dimensions(query, rollup)
        for interval in rollup.intervals:
            for log in {**first, **second}:
                raws = [raw for _, raw, _ in first.get(log, []) + second.get(log, [])]
                measures = [measure.name for measure in rollup.measures]
                for ask, pins in ((None, {}), (query, fixed)):
                    hot, cold, apart = (
                        Buckets(rollup, interval.ms, measures, own) for _ in range(3)
                    )
                    hot.add_documents(search, raws, *everything, ask)
                    cold.add_windows(store.companions(both), log, *everything, pins)
                    for build in builds:
                        apart.add_windows(store.companions(build), log, *everything, pins)
                    assert cold.report() == hot.report(), name
                    assert apart.report() == hot.report(), name


def test_whole_windows_inside_a_range() -> None:
    assert aligned(30_000, 200_000, MINUTE) == (60_000, 180_000)
    assert aligned(-30_000, 0, MINUTE) == (0, 0)
    assert aligned(60_000, 120_000, MINUTE) == (60_000, 120_000)


def test_windows_answer_only_what_pins_dimensions_down() -> None:
    rollup = parse_search(CONFIG).rollups["latency"]
    assert fixed_dimensions(None, rollup) == {}
    assert fixed_dimensions(Equals("svc", "a"), rollup) == {"svc": "a"}
    assert fixed_dimensions(Equals("ms", 1.0), rollup) is None
    assert fixed_dimensions(Has("svc"), rollup) is None
    assert fixed_dimensions(All((Equals("svc", "a"), Equals("svc", "b"))), rollup) is None


def test_the_answer_of_the_specification() -> None:
    search = parse_search(CONFIG)
    values = [3, 5, 9, 33, 40, 50, 60, 65, 70, 73.5]
    raws = [
        b'{"at":"2026-01-01T00:00:%02dZ","svc":"Billing","code":200,"ms":%s}'
        % (30 + at, str(value).encode())
        for at, value in enumerate(values)
    ]
    buckets = Buckets(search.rollups["latency"], MINUTE, ["n", "ms"], ["svc"])
    buckets.add_documents(search, raws, 1767225630000, 1767225720000)
    (bucket,) = buckets.report()
    assert (bucket["start"], bucket["end"]) == (
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:01:00.000Z",
    )
    (group,) = bucket["groups"]
    assert group["key"] == {"svc": "billing"}
    assert group["measures"]["n"] == {"count": 10}
    ms = group["measures"]["ms"]
    assert (ms["count"], ms["sum"], ms["min"], ms["max"]) == (10, 408.5, 3, 73.5)
    assert ms["histogram"] == {"2": 1, "4": 1, "8": 1, "32": 4, "64": 3}
    assert ms["p50"] == pytest.approx(40, rel=0.05)
    assert ms["p99"] == pytest.approx(73.5, rel=0.05)
