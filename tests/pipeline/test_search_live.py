"""A real server is asked all the time while Spark indexes, merges and compacts what it searches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline.audit import audit
from headrace.pipeline.backfill import backfill
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.follow import follow
from headrace.pipeline.index_backlog import load_plans
from headrace.pipeline.store_location import StoreLocation
from headrace.search.query import All, Compares, Equals, Not, Query, Words
from headrace.search.query import Any as AnyOf
from headrace.storage import manifests
from headrace_bench.process import ServerProcess
from support.evolving import array, lens, shape
from support.naive_search import Model, iso, offset_of

from .test_server import ask, sealed, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

ENV = {
    "HEADRACE_SEAL_BYTES": "32KiB",
    "HEADRACE_TAIL_BYTES": "0",
    "STREAMS_REQUEST_TIMEOUT_MS": "60000",
    "STREAMS_APPEND_TIMEOUT_MS": "60000",
}
STREAM = "/v1/stream/shop"
BATCH, BATCHES = 50, 16
START_MS = 1_767_225_600_000
RANGE_MS = START_MS + 30_500, START_MS + 150_000
WORDS = ("issuer", "declined", "timeout", "cart", "slow", "refund")

FIRST = shape(
    {
        "at": {"type": "string"},
        "svc": {"type": "string"},
        "status": {"type": "string", "enum": ["200", "404", "500"]},
        "ms": {"type": "number"},
        "message": {"type": "string"},
    }
)
SECOND = shape(
    {
        "at": {"type": "string"},
        "service": array({"type": "string"}),
        "status": {"type": "integer"},
        "ms": {"type": "number"},
        "message": {"type": "string"},
    }
)
OPS: list[dict[str, Any]] = [
    {"op": "rename", "from": "/svc", "to": "/service"},
    {"op": "wrap", "path": "/service", "mode": "singleton"},
    {
        "op": "convert",
        "path": "/status",
        "fromType": "string",
        "toType": "integer",
        "forward": {"builtin": "string_to_int"},
        "backward": {"builtin": "int_to_string"},
    },
]


def field(kind: str, old: str, new: str, *flags: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": old}, {"version": 2, "jsonPointer": new}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(flags, True), **more}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "/at", "/at", "exact", "column", "sortable"),
        "service": field("keyword", "/svc", "/service", "exact", "prefix", "sortable"),
        "status": field("integer", "/status", "/status", "exact", "column", "sortable"),
        "ms": field("float", "/ms", "/ms", "column", "sortable", "aggregatable"),
        "message": field("text", "/message", "/message", "positions", analyzer="unicode_word_v1"),
    },
    "rollups": {
        "r": {
            "dimensions": ["service"],
            "intervals": ["1m"],
            "measures": {"n": {"kind": "count"}, "ms": {"kind": "summary", "field": "ms"}},
        }
    },
}
QUERIES: list[tuple[str, Query]] = [
    ("service:cart", Equals("service", "cart")),
    ("status:>=404 ms:<50", All((Compares("status", ">=", 404), Compares("ms", "<", 50.0)))),
    ("message:issuer", Words("message", ("issuer",), False, False, 1.0)),
    ('message:"issuer declined"', Words("message", ("issuer", "declined"), False, True, 1.0)),
    (
        "service:cart OR message:slow",
        AnyOf((Equals("service", "cart"), Words("message", ("slow",), False, False, 1.0))),
    ),
    ("NOT status:200", Not(Equals("status", 200))),
]


def documents(version: int, random: Random, first: int) -> Iterator[dict[str, Any]]:
    for at in range(first, first + BATCH):
        service, status = random.choice(("cart", "pay", "ship")), random.choice((200, 404, 500))
        yield {
            "at": iso(START_MS + at * 250),
            **({"svc": service} if version == 1 else {"service": [service]}),
            "status": str(status) if version == 1 else status,
            "ms": random.randrange(4000) / 40,
            "message": " ".join(random.choices(WORDS, k=4)),
        }


class Shop:
    """The stream, and what it must answer."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._random = Random(1)
        self.model = Model()
        ask(server, "PUT", STREAM)
        self._register({"schema": FIRST})

    def write(self) -> None:
        for batch in range(BATCHES):
            if batch == BATCHES // 2:
                self.evolve()
            made = list(documents(self.model.version, self._random, batch * BATCH))
            ask(self._server, "POST", STREAM, made)
            for document in made:
                self.model.append(json.dumps(document).encode(), None)

    def evolve(self) -> None:
        self.model.version = 2
        self.model.lenses.append(OPS)
        self._register({"schema": SECOND, "lens": lens("shop", 1, OPS)})

    def _register(self, update: dict[str, Any]) -> None:
        """With a search that has no bindings yet for versions to come."""
        fields = {
            name: {**one, "bindings": one["bindings"][: self.model.version]}
            for name, one in SEARCH["fields"].items()
        }
        search = {**SEARCH, "fields": fields}
        ask(self._server, "POST", f"{STREAM}/_schema", {**update, "search": search})
        self.model.config = search

    @cached_property
    def expected(self) -> dict[str, list[str]]:
        """The offsets of all hits of each query, once everything is written."""
        return {
            text: [offset_of(at) for at, _ in self.model.search(query, (("ms", True),))]
            for text, query in QUERIES
        }

    @cached_property
    def windows(self) -> dict[tuple[int, str], list[dict[str, float]]]:
        return self.model.aggregate("r", *RANGE_MS, 60_000, ["service"], None)

    def check_all(self) -> int:
        """Ask everything once; returns how many segments answered from their index."""
        indexed = 0
        for text, expected in self.expected.items():
            body = {"q": text, "size": 20, "sort": ["ms:desc"]}
            found = ask(self._server, "POST", f"{STREAM}/_search", body, busy=(408, 429))
            assert found["total"] == {"value": len(expected), "relation": "eq"}, text
            assert [hit["offset"] for hit in found["hits"]] == expected[:20], text
            assert found["coverage"]["complete"] is True
            indexed = max(indexed, found["coverage"]["indexed_segments"])
        self._check_aggregate()
        return indexed

    def _check_aggregate(self) -> None:
        body = {"rollup": "r", "from": RANGE_MS[0], "to": RANGE_MS[1], "interval": "1m"}
        body |= {"group_by": ["service"], "measures": ["ms", "n"]}
        told = ask(self._server, "POST", f"{STREAM}/_aggregate", body, busy=(408, 429))
        found = {
            (bucket["start"], group["key"]["service"]): group["measures"]
            for bucket in told["buckets"]
            for group in bucket["groups"]
        }
        counts = {
            (iso(window), json.loads(group)["service"]): len(values)
            for (window, group), values in self.windows.items()
        }
        assert {key: measures["n"]["count"] for key, measures in found.items()} == counts
        for (window, group), values in self.windows.items():
            ms = found[iso(window), json.loads(group)["service"]]["ms"]
            assert ms["sum"] == pytest.approx(sum(value["ms"] for value in values))


@contextmanager
def asking(shop: Shop) -> Iterator[None]:
    """Somebody asks all the time, and every answer is right."""
    over = threading.Event()
    problems: list[BaseException] = []
    rounds = 0

    def work() -> None:
        nonlocal rounds
        try:
            while not over.is_set():
                shop.check_all()
                rounds += 1
        except BaseException as problem:  # noqa: BLE001  (the test raises it)
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    for problem in problems:
        raise problem
    assert rounds, "nothing was asked"


def test_answers_stay_right_while_spark_indexes(spark: SparkSession, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    place = StoreLocation(data_dir)
    with ServerProcess(data_dir, env=ENV) as server:
        shop = Shop(server)
        shop.write()
        until(lambda: sealed(place.open()) > BATCH * BATCHES // 2, "nothing of today is sealed")
        until(lambda: manifests.load(place.open()).plans is not None, "no plans are published")
        shop.check_all()
        with asking(shop):
            follow(spark, place, once=True)
            until(lambda: shop.check_all() > 0, "the index is never used")
            compact(spark, place, Sizes(output_bytes=128 << 10, run_min=2))
            backfill(spark, place)
            until(lambda: shop.check_all() > 0, "the index is never used again")
    (plan,) = load_plans(place.open(), manifests.load(place.open())).plans
    assert b"lens" in bytes(plan.versions), "old records were indexed as they are"
    assert audit(spark, place).problems == []
