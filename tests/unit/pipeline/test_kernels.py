"""Kernels on small segments: what is in the files, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.record import Block, draft
from headrace.formats.companion import (
    Descriptor,
    Family,
    decode_hashes,
    field_key,
    log_key,
    short,
    value_key,
)
from headrace.formats.index_plans import IndexPlans, plan
from headrace.formats.segment import LogRows
from headrace.formats.segment import build as seal
from headrace.pipeline.kernels import build as building
from headrace.pipeline.kernels.build import build
from headrace.pipeline.kernels.builds import merge_builds
from headrace.search.companions import Companions
from headrace.search.config import parse_search
from headrace.search.families.text import split
from headrace.search.lookup import IndexLookup
from headrace.search.query import Equals, Starts
from headrace.search.values import analyze


def config(**fields: dict[str, Any]) -> dict[str, Any]:
    at = {"kind": "date", "column": True}
    return {
        "primaryTimestampField": "at",
        "fields": {
            name: {"bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **field}
            for name, field in {"at": at, **fields}.items()
        },
    }


KEYWORD = {"kind": "keyword", "exact": True, "prefix": True}
TEXT = {"kind": "text", "analyzer": "unicode_word_v1"}


class Shelf:
    """Builds of segments in memory."""

    def __init__(self) -> None:
        self.files: dict[str, pa.Buffer] = {}

    def write(self, family: str, content: pa.Buffer) -> str:
        self.files[f"{len(self.files)}"] = content
        return f"{len(self.files) - 1}"

    def read(self, file: Any) -> pa.Buffer:
        return self.files[file.name]

    def open(self, file: Any) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(self.read(file)))

    def build(
        self,
        logs: dict[int, list[bytes]],
        plans: dict[int, dict[str, Any]],
        first: int = 1,
        versions: dict[int, bytes] | None = None,
        **more: Any,
    ) -> Descriptor:
        rows = []
        for log, raws in sorted(logs.items(), reverse=True):
            made = draft(raws, keys=["k"] * len(raws))
            last = first + len(raws) - 1
            rows.append(
                LogRows(
                    log, f"log{-log}", [Block(first, last, 1, made.data, made.ends, keys=made.keys)]
                )
            )
        built = seal(rows)
        return build(
            pq.ParquetFile(pa.BufferReader(built.segment)),
            pq.read_table(pa.BufferReader(built.index)),
            IndexPlans(
                plans=tuple(
                    plan(log, "x", msgspec.json.encode(search), (versions or {}).get(log))
                    for log, search in sorted(plans.items())
                )
            ),
            self.write,
            segment=more.pop("segment", 1),
            generation=more.pop("generation", 1),
            **more,
        )

    def keys(self, descriptor: Descriptor, family: str) -> list[bytes]:
        file = descriptor.file(family)
        found: list[bytes] = self.open(file).read(columns=["k"]).column("k").to_pylist()
        return found

    def companions(self, descriptor: Descriptor) -> Companions:
        return Companions(descriptor, self.open, lambda file: decode_hashes(self.files[file.name]))


def test_keys_are_indexed_for_every_log_and_fields_for_those_with_a_plan() -> None:
    shelf = Shelf()
    search = config(user=KEYWORD)
    found = shelf.build({3: [b'{"user":"a"}'], 5: [b'{"user":"b"}'], 9: [b"{}"]}, {5: search})
    assert shelf.keys(found, "lex") == [log_key(log) + b"k" for log in (3, 5, 9)]
    assert shelf.keys(found, "exact") == [
        log_key(5),
        field_key(5, "user"),
        value_key(5, "user", b"b"),
    ]
    assert [(part.log, part.spans, part.rows) for part in found.parts] == [(5, ((1, 1),), 1)]
    assert found.parts[0].exact == ("user",)
    assert {file.family for file in found.files} == {"lex", "lex.hash", "exact", "exact.hash"}
    assert found.rows == 3


def test_without_plans_documents_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    read: list[list[str]] = []
    original = pq.ParquetFile.read_row_groups

    def watched(self: pq.ParquetFile, groups: list[int], columns: list[str]) -> pa.Table:
        read.append(columns)
        return original(self, groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", watched)
    shelf.build({3: [b"{}"]}, {4: config()})
    assert read == [["log_id", "seq", "key"]]


def test_long_values_stay_in_order_and_are_found() -> None:
    shelf = Shelf()
    search = config(user=KEYWORD, msg=TEXT)
    values = ["x" * 1000 + tail for tail in ("a" * 500, "b" * 24, "c" * 2000, "", "a" * 501)]
    raws = [msgspec.json.encode({"user": value, "msg": value}) for value in values]
    found = shelf.build({1: raws}, {1: search})
    for family in ("exact", "text"):
        keys = shelf.keys(found, family)
        assert keys == sorted(keys)
        assert max(map(len, keys)) < 1200
    lookup = IndexLookup(shelf.companions(found), 1, parse_search(search))
    for seq, value in enumerate(values, 1):
        assert lookup.find(Equals("user", value)).tolist() == [seq]
    assert lookup.find(Starts("user", "x" * 900)).tolist() == [1, 2, 3, 4, 5]
    assert len(short(values[2].encode())) < len(values[2])


def test_older_documents_are_promoted_first() -> None:
    shelf = Shelf()
    lens = {
        "apiVersion": "durable.lens/v1",
        "schema": "x",
        "from": 1,
        "to": 2,
        "ops": [{"op": "rename", "from": "/name", "to": "/user"}],
    }
    boundaries = [{"offset": 0, "version": 1}, {"offset": 2, "version": 2}]
    versions = {"currentVersion": 2, "boundaries": boundaries, "lenses": {"1": lens}}
    raws = [b'{"name":"a"}', b'{"odd":true}', b'{"user":"b"}']
    found = shelf.build(
        {1: raws}, {1: config(user=KEYWORD)}, versions={1: msgspec.json.encode(versions)}
    )
    lookup = IndexLookup(shelf.companions(found), 1, parse_search(config(user=KEYWORD)))
    assert lookup.find(Equals("user", "a")).tolist() == [1]
    assert lookup.find(Equals("user", "b")).tolist() == [3]
    assert found.parts[0].rows == 3


def test_values_of_a_column_are_exact_only_where_they_repeat() -> None:
    shelf = Shelf()
    typed = {"kind": "integer", "exact": True, "column": True}
    raws = [msgspec.json.encode({"code": at % 2, "id": at}) for at in range(8)]
    found = shelf.build({1: raws}, {1: config(code=typed, id=typed)})
    assert found.parts[0].exact == ("code",)
    search = parse_search(config(code=typed, id=typed))
    lookup = IndexLookup(shelf.companions(found), 1, search)
    assert lookup.find(Equals("code", 1)).tolist() == [2, 4, 6, 8]
    assert lookup.find(Equals("id", 5)).tolist() == [6]
    seqs, values = lookup.column("id")
    assert seqs.tolist() == list(range(1, 9))
    assert values.tolist() == list(range(8))


def test_of_two_plans_of_a_log_the_newer_counts_in_a_merge() -> None:
    shelf = Shelf()
    older = shelf.build({1: [b'{"user":"a"}'], 2: [b"{}"]}, {1: config(), 2: config()})
    newer = shelf.build(
        {1: [b'{"user":"a"}']}, {1: config(user=KEYWORD)}, first=50, segment=2, generation=2
    )
    merged = merge_builds([older, newer], shelf.read, shelf.write)
    assert (merged.segments, merged.level, merged.plans) == ((1, 2), 1, 2)
    assert [(part.log, part.spans) for part in merged.parts] == [(1, ((50, 50),)), (2, ((1, 1),))]
    lookup = IndexLookup(shelf.companions(merged), 1, parse_search(config(user=KEYWORD)))
    assert lookup.everything().tolist() == [50]
    assert shelf.companions(merged).postings(Family.LEX, log_key(1) + b"k").tolist() == [1, 50]


def test_spans_that_touch_become_one() -> None:
    shelf = Shelf()
    search = config(user=KEYWORD)
    builds = [
        shelf.build({1: [b"{}"] * 3}, {1: search}, first=first, segment=first)
        for first in (1, 4, 9)
    ]
    merged = merge_builds(builds, shelf.read, shelf.write)
    assert merged.parts[0].spans == ((1, 6), (9, 11))
    assert merged.parts[0].rows == 9


def test_many_logs_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    search = config(user=KEYWORD, msg=TEXT)
    raws = {
        log: [msgspec.json.encode({"user": f"u{log % 3}", "msg": f"hello {log}"})] * (1 + log % 4)
        for log in range(1, 60)
    }
    found = shelf.build(raws, dict.fromkeys(raws, search))
    for family in ("lex", "exact", "text"):
        keys = shelf.keys(found, family)
        assert keys == sorted(keys)
        assert len(keys) == len(set(keys))
    for log in raws:
        lookup = IndexLookup(shelf.companions(found), log, parse_search(search))
        assert lookup.find(Equals("user", f"u{log % 3}")).tolist() == [
            *range(1, 1 + len(raws[log]))
        ]
        assert lookup.find(Equals("user", f"u{(log + 1) % 3}")).tolist() == []
    monkeypatch.setattr(building, "CHUNK_ROWS", 1)
    again = shelf.build(raws, dict.fromkeys(raws, search))
    assert again.parts == found.parts


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["", "a", "", "b c"],
        ["Foo_bar-baz 12", "  ", "x"],
        ["grüße foo", "plain text", "日本 語", ""],
        ["a" * 3, "B" * 3],
    ],
)
def test_texts_are_split_as_the_analyzer_does(texts: list[str]) -> None:
    for array in (pa.array(texts, pa.string()), pa.array(["pad", *texts], pa.string()).slice(1)):
        found = split(array)
        words: list[list[str]] = [[] for _ in texts]
        for owner, place, word in zip(
            found.owners.tolist(), found.places.tolist(), found.words.to_pylist(), strict=True
        ):
            assert place == len(words[owner])
            words[owner].append(word)
        assert words == [analyze(text) for text in texts]
