"""Searches and aggregates as they are posted, against one configuration."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import Refused
from headrace.core.limits import SEARCH_SIZE_DEFAULT, SEARCH_TIMEOUT_MS
from headrace.search.config import parse_search
from headrace.search.ordering import Sort
from headrace.search.query import Compares, Equals
from headrace.search.requests import SearchRequest
from headrace.web.search_requests import (
    decode_body,
    parse_aggregate_request,
    parse_parameters,
    parse_search_request,
)


def field(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}


CONFIG = parse_search(
    {
        "primaryTimestampField": "at",
        "fields": {
            "at": field("date", "at", column=True),
            "k": field("keyword", "k", exact=True, sortable=True),
            "n": field("integer", "n", column=True, sortable=True),
            "t": field("text", "t", analyzer="unicode_word_v1"),
        },
        "rollups": {
            "all": {"dimensions": ["k"], "intervals": ["1s"], "measures": {"n": {"kind": "count"}}}
        },
    }
)
TIMES = {"rollup": "all", "from": 0, "to": "1970-01-01T00:00:10Z", "interval": "1s"}


def search(**body: Any) -> SearchRequest:
    return parse_search_request(body, int, CONFIG)


def test_a_search_is_read_by_the_configuration() -> None:
    at, offset = Sort("at", True), Sort("offset", True)
    assert search(q="k:a") == SearchRequest(
        Equals("k", "a"), SEARCH_SIZE_DEFAULT, (at, offset), None, SEARCH_TIMEOUT_MS
    )
    assert search(q="t:word").sorts == (Sort("_score", True), at, offset)
    found = search(q="n:>4", size=3.0, sort=["n:asc"], search_after=[7, "12"], timeout_ms=10)
    assert found == SearchRequest(Compares("n", ">", 4), 3, (Sort("n", False), offset), (7, 12), 10)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"track_total_hits": True}, "track_total_hits is not supported"),
        ({"q": "k:a", "from": 1}, "from is not supported"),
        ({"q": " "}, "q must be a non-empty string"),
        ({"q": "k:a", "size": 0}, "size must be a whole number from 1 to"),
        ({"q": "k:a", "timeout_ms": -1}, "timeout_ms must be a whole number from 0 on"),
        ({"q": "k:a", "sort": ["n", "n:asc"]}, "sort names n more than once"),
        ({"q": "k:a", "sort": ["t"]}, "field t is not sortable"),
        ({"q": "k:a", "search_after": ["x"]}, "search_after must be an array of 2, as sort is"),
        ({"q": "nope:(", "size": 0}, "nope"),  # the query is what is told of first
    ],
)
def test_a_search_that_makes_no_sense_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        search(**body)


def test_a_search_in_a_url_is_the_same_as_in_a_body() -> None:
    text = "q=k%3Aa&size=2&sort=k:asc,n&sort=offset&search_after=%5B%22a%22,1,5%5D"
    body = b'{"q":"k:a","size":2,"sort":["k:asc","n","offset"],"search_after":["a",1,5]}'
    assert parse_parameters(text) == decode_body(body)
    for wrong, message in [("q=a&q=b", "q is given twice"), ("search_after=x", "must be JSON")]:
        with pytest.raises(Refused, match=message):
            parse_parameters(wrong)


def test_an_aggregate_is_read_by_the_configuration() -> None:
    found = parse_aggregate_request({**TIMES, "q": " ", "group_by": ["k"]}, CONFIG)
    assert (found.rollup.name, found.start_ms, found.stop_ms) == ("all", 0, 10_000)
    assert (found.interval_ms, found.query, found.group_by) == (1000, None, ("k",))
    assert found.measures == ("n",)
    nanoseconds = parse_aggregate_request({**TIMES, "from": "5000000000"}, CONFIG)
    assert nanoseconds.start_ms == 5000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"size": 1}, "size is not supported"),
        ({"rollup": "none"}, "unknown rollup none"),
        ({"interval": "2s"}, "interval must be one of 1s"),
        ({"from": True}, "from must be a time"),
        ({"to": 0}, "from must be before to"),
        ({"group_by": ["n"]}, "group_by must name dimensions of the rollup; n is none"),
        ({"measures": []}, "measures must not be empty"),
        ({"measures": ["n", "n"]}, "measures must not have duplicates"),
    ],
)
def test_an_aggregate_that_makes_no_sense_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        parse_aggregate_request({**TIMES, **more}, CONFIG)
