"""What documents say, evaluating each and looking it up in companions are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.formats import companion
from headrace.formats.companion import Descriptor, Family, File
from headrace.pipeline.kernels import build as building
from headrace.pipeline.kernels import builds as merging
from headrace.schemas.promotion import Promoter
from headrace.schemas.registry import decode_registry
from headrace.search import extraction as reading
from headrace.search.companions import NotIndexed
from headrace.search.config import Search, parse_search
from headrace.search.evaluate import Fields, Matcher
from headrace.search.families.keys import KeyReader
from headrace.search.lookup import IndexLookup
from headrace.search.query import (
    Equals,
    Has,
)
from headrace.search.values import PathReader, values_of
from support.searching import (
    FLAGS,
    POINTERS,
    Rows,
    Store,
    documents,
    index,
    merged,
    naive_document,
    naive_matches,
    naive_values,
    queries,
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "at": {
            "kind": "date",
            "bindings": [{"version": 1, "jsonPointer": draw(st.sampled_from(POINTERS))}],
            "column": True,
        }
    }
    for at in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(FLAGS)))
        pointer = draw(st.sampled_from(POINTERS))
        fields[f"f{at}"] = {
            "kind": kind,
            "bindings": [{"version": 1, "jsonPointer": pointer}],
            **FLAGS[kind],
        }
        if kind == "keyword" and draw(st.booleans()):
            fields[f"f{at}"]["normalizer"] = "lowercase_v1"
    return {"primaryTimestampField": "at", "fields": fields}


@st.composite
def logs(draw: st.DrawFn, first: int = 1) -> Rows:
    """Some logs with holes between their records, some of which are no JSON."""
    rows: Rows = {}
    for log in draw(st.sets(st.integers(1, 4), min_size=1, max_size=3)):
        seq = first
        found = []
        for raw in draw(st.lists(documents | st.none(), min_size=1, max_size=12)):
            seq += draw(st.sampled_from([1, 1, 1, 5, 200]))
            found.append((seq, raw, draw(st.sampled_from([None, "k", "ключ", ""]))))
        rows[log] = found
    return rows


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that little data crosses all of them."""
    monkeypatch.setattr(reading, "BATCH_ROWS", 3)
    monkeypatch.setattr(building, "CHUNK_ROWS", 1)
    monkeypatch.setattr(merging, "RANGE_ROWS", 4)
    monkeypatch.setattr(companion, "ROW_GROUP_ROWS", dict.fromkeys(Family, 4))


COMMON = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@COMMON
@given(st.data())
def test_naive_hot_and_cold_agree(data: st.DataObject) -> None:
    config = data.draw(configs())
    search = parse_search(config)
    store = Store()
    first, second = data.draw(logs()), data.draw(logs(first=10_000))
    builds = [index(first, config, store, 1), index(second, config, store, 2)]
    cases = [(builds[0], first), (builds[1], second), (merged(builds, store), _both(first, second))]
    rows = cases[-1][1]
    raws = [raw for found in rows.values() for _, raw, _ in found]
    seen = _check_values(config, search, raws)
    for query in data.draw(st.lists(queries(config, seen), min_size=1, max_size=6)):
        matcher = Matcher(query, search)
        for build, held in cases:
            for log, found in held.items():
                naive = [
                    s for s, raw, _ in found if naive_matches(query, config, naive_document(raw))
                ]
                scores = matcher.score([raw for _, raw, _ in found])
                hot = {s: sc for (s, _, _), sc in zip(found, scores, strict=True) if sc is not None}
                assert list(hot) == naive, query
                matched = matcher.match([raw for _, raw, _ in found])
                assert matched == [sc is not None for sc in scores], query
                lookup = IndexLookup(store.companions(build), log, search)
                cold = lookup.find(query)
                assert cold.tolist() == naive, query
                assert lookup.score(query, cold).tolist() == list(hot.values()), query


@COMMON
@given(st.data())
def test_a_new_plan_of_some_logs_leaves_the_others_as_they_were(data: st.DataObject) -> None:
    config = data.draw(configs())
    newer = data.draw(configs().filter(lambda other: other != config))
    store = Store()
    held = [data.draw(logs()), data.draw(logs(first=10_000))][: data.draw(st.integers(1, 2))]
    rows = held[0] if len(held) == 1 else _both(*held)
    changed = data.draw(st.sets(st.sampled_from(sorted(rows)), min_size=1))
    builds = [index(rows, config, store, number) for number, rows in enumerate(held, 1)]
    old = builds[0] if len(builds) == 1 else merged(builds, store)
    plans = dict.fromkeys(changed, newer)
    fresh, whole = (
        [
            index(rows, config, store, number, newer=plans, only=only)
            for number, rows in enumerate(held, 1)
            if only is None or not only.isdisjoint(rows)
        ]
        for only in (changed, None)
    )
    assert not any(build.file(Family.LEX) for build in fresh)
    assert {part.log for build in fresh for part in build.parts} == changed
    build = merging.refresh_build(old, fresh, store.read, store.write)
    assert (build.segments, build.level, build.rows) == (old.segments, old.level, old.rows)
    assert build.plans == 2
    again = whole[0] if len(whole) == 1 else merged(whole, store)
    # Which typed values repeat may be decided otherwise: of other records.
    assert [msgspec.structs.replace(part, exact=()) for part in build.parts] == [
        msgspec.structs.replace(part, exact=()) for part in again.parts
    ]
    for family in (Family.LEX, Family.TYPED, Family.TEXT, Family.ROLL):
        tables = [file and store.open(file).read() for file in map(_file(family), (build, again))]
        assert tables[0] == tables[1] or (not tables[0] and not tables[1])
    for log, found in rows.items():
        wanted = newer if log in changed else config
        search = parse_search(wanted)
        seen = _check_values(wanted, search, [raw for _, raw, _ in found])
        for query in data.draw(st.lists(queries(wanted, seen), min_size=1, max_size=3)):
            naive = [s for s, raw, _ in found if naive_matches(query, wanted, naive_document(raw))]
            lookup = IndexLookup(store.companions(build), log, search)
            assert lookup.find(query).tolist() == naive, query


def _file(family: Family) -> Callable[[Descriptor], File | None]:
    return lambda build: build.file(family)


SCALARS = st.sampled_from([None, True, 7, 2.5, "a", "Foo bar", "7", "2026-01-01T00:00:00Z"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abno"), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "n", "old", "more"]), VALUES, max_size=5)


def _lens(version: int, op: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "durable.lens/v1", "schema": "x", "from": version, "to": version + 1,
        "ops": [op],
    }  # fmt: skip


@COMMON
@given(st.data())
def test_documents_are_searched_as_they_are_in_the_current_version(data: st.DataObject) -> None:
    """Builds of promoted documents, and hot documents that are promoted, against naive ones."""
    config = data.draw(configs())
    search = parse_search(config)
    found = [
        (seq, json.dumps(document).encode(), None)
        for seq, document in enumerate(data.draw(st.lists(OBJECTS, min_size=1, max_size=12)), 1)
    ]
    first = data.draw(st.integers(0, len(found)))
    second = data.draw(st.integers(first, len(found)))
    offsets = enumerate((0, first, second), 1)
    lenses = {
        "1": _lens(1, {"op": "rename", "from": "/old", "to": "/a"}),
        "2": _lens(2, {"op": "wrap", "path": "/a", "mode": "singleton"}),
    }
    boundaries = [{"offset": offset, "version": version} for version, offset in offsets]
    registry = {"currentVersion": 3, "boundaries": boundaries, "lenses": lenses}
    versions = json.dumps(registry).encode()

    def promoted(seq: int, raw: bytes) -> Any:
        document = json.loads(raw)
        if seq <= first:
            if "old" not in document:
                return None
            document["a"] = document.pop("old")
        if seq <= second:
            if "a" not in document:
                return None
            document["a"] = [document["a"]]
        return document

    store = Store()
    build = index({1: found, 3: found}, config, store, versions=versions)
    promoter = Promoter(decode_registry(versions))
    raws = promoter.attempt([seq for seq, _, _ in found], [raw for _, raw, _ in found])
    current = [promoted(seq, raw) for seq, raw, _ in found]
    assert [None if raw is None else json.loads(raw) for raw in raws] == current
    seen = _check_values(config, search, list(raws))
    for query in data.draw(st.lists(queries(config, seen), min_size=1, max_size=4)):
        naive = [
            seq
            for (seq, _, _), document in zip(found, current, strict=True)
            if naive_matches(query, config, document)
        ]
        hot = Matcher(query, search).match(raws)
        assert [seq for (seq, _, _), yes in zip(found, hot, strict=True) if yes] == naive, query
        for log in (1, 3):
            lookup = IndexLookup(store.companions(build), log, search)
            assert lookup.find(query).tolist() == naive, query


def _both(first: Rows, second: Rows) -> Rows:
    return {log: first.get(log, []) + second.get(log, []) for log in {**first, **second}}


def _check_values(
    config: dict[str, Any], search: Search, raws: list[bytes | None]
) -> dict[str, list[Any]]:
    """Values as the specification has them; returns all of each field."""
    names = sorted(config["fields"])
    seen: dict[str, list[Any]] = {name: [] for name in names}
    for raw, values in zip(raws, Fields(search, names).read(raws), strict=True):
        document = naive_document(raw)
        for name in names:
            expected = naive_values(config["fields"][name], document)
            assert values[name] == expected, (raw, name)
            seen[name] += expected
    return seen


@COMMON
@given(logs(), logs(first=10_000))
def test_the_lexicon_has_every_key(first: Rows, second: Rows) -> None:
    config = {
        "primaryTimestampField": "at",
        "fields": {"at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/a"}]}},
    }
    store = Store()
    builds = [index(first, config, store, 1), index(second, config, store, 2)]
    both = merged(builds, store)
    for build, held in zip([*builds, both], [first, second, _both(first, second)], strict=True):
        companions = store.companions(build)
        for log, rows in held.items():
            found = KeyReader(companions, log)
            for key in {key for _, _, key in rows if key is not None}:
                assert found.find(key).tolist() == [seq for seq, _, k in rows if k == key]
            expected = sorted({key.encode() for _, _, key in rows if key is not None})
            assert [one.key for one in found.short_keys()] == expected
            assert [one.key for one in found.short_keys(b"k")] == [k for k in expected if k > b"k"]


DATES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["2026-01-01", "2024-02-29", "2026-02-29", "0000-01-01", "9999-12-31", "x"]),
    st.sampled_from(["T", "t", " ", ""]),
    st.sampled_from(["00", "23:59", "23:59:59", "24:00:00", "00:00:60", "1:2:3", ""])
    | st.integers(0, 10**9).map(lambda n: f"12:34:56.{n}"),
    st.sampled_from(["Z", "z", "", "+02:00", "-0230", "+02", "+25:00", " Z"]),
)


@COMMON
@given(st.lists(DATES | st.none(), min_size=1, max_size=4))
def test_dates_mean_the_same_to_arrow(texts: list[str | None]) -> None:
    field = parse_search(
        {
            "primaryTimestampField": "at",
            "fields": {"at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/a"}]}},
        }
    ).fields["at"]
    raws = [msgspec.json.encode({"a": text}) for text in texts]
    (column,), _ = reading.read_columns([field], PathReader([field.path()]), raws)
    expected = [values_of(field, text) for text in texts]
    assert column.values.to_pylist() == [value for values in expected for value in values]
    assert column.rows.tolist() == [at for at, values in enumerate(expected) if values]


def test_a_build_without_the_field_does_not_pretend() -> None:
    config = {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/a"}]},
            "plain": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/b"}]},
        },
    }
    store = Store()
    build = index({1: [(1, b'{"b":"x"}', None)]}, config, store)
    lookup = IndexLookup(store.companions(build), 1, parse_search(config))
    with pytest.raises(NotIndexed):
        lookup.find(Equals("plain", "x"))
    assert np.array_equal(lookup.find(Has("plain")), [1])
    with pytest.raises(NotIndexed):
        IndexLookup(store.companions(build), 2, parse_search(config))


@COMMON
@given(
    st.lists(st.sampled_from(["1", "2", "3", "[4,1]", "null", '"x"']), min_size=1, max_size=20),
    st.lists(st.integers(1, 24), max_size=8, unique=True).map(sorted),
    st.lists(st.integers(1, 24), max_size=8, unique=True).map(sorted),
)
def test_the_latest_of_what_is_alive(values: list[str], spans: list[int], dead: list[int]) -> None:
    spans, dead = spans[: len(spans) & -2], dead[: len(dead) & -2]
    config = {
        "primaryTimestampField": "at",
        "fields": {
            "at": {
                "kind": "date",
                "bindings": [{"version": 1, "jsonPointer": "/a"}],
                "column": True,
            }
        },
    }
    rows = [(seq, b'{"a":%b}' % value.encode(), None) for seq, value in enumerate(values, 1)]
    store = Store()
    build = index({1: rows}, config, store)

    def within(seq: int, pairs: list[int]) -> bool:
        return any(a <= seq <= b for a, b in zip(pairs[::2], pairs[1::2], strict=True))

    stamps = [
        stamp
        for seq, raw, _ in rows
        if within(seq, spans) and not within(seq, dead)
        for stamp in naive_values(config["fields"]["at"], naive_document(raw))
    ]
    lookup = IndexLookup(store.companions(build), 1, parse_search(config))
    assert lookup.latest("at", spans, dead) == max(stamps, default=None)
