from __future__ import annotations

from typing import Any as Anything

import pytest

from headrace.core.errors import Refused
from headrace.search.config import parse_search
from headrace.search.evaluate import Matcher
from headrace.search.query import (
    All,
    Any,
    Compares,
    Equals,
    Has,
    Not,
    Query,
    Rules,
    Starts,
    Words,
    has_text,
    parse_query,
)


def field(kind: str, name: str, **more: Anything) -> dict[str, Anything]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}


SEARCH = parse_search(
    {
        "primaryTimestampField": "at",
        "aliases": {"svc": "service"},
        "defaultFields": [{"field": "msg", "boost": 2}, {"field": "user"}],
        "fields": {
            "at": field("date", "at", column=True),
            "service": field(
                "keyword", "service", exact=True, prefix=True, normalizer="lowercase_v1"
            ),
            "user": field("keyword", "user", exact=True),
            "bare": field("keyword", "bare"),
            "status": field("integer", "status", exact=True, column=True),
            "only": field("integer", "only", exact=True),
            "ok": field("bool", "ok", exact=True),
            "msg": field("text", "msg", analyzer="unicode_word_v1"),
        },
    }
)


def words(*found: str, open: bool = False, phrase: bool = False, boost: float = 1.0) -> Words:
    return Words("msg", found, open, phrase, boost)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("svc:Checkout", Equals("service", "checkout")),
        ("service:Che*", Starts("service", "che")),
        ("service:=che*", Equals("service", "che*")),
        ("service:*", Equals("service", "*")),
        ("user:U-1", Equals("user", "U-1")),
        ("status:500", Equals("status", 500)),
        ("status:=500", Equals("status", 500)),
        ("status:>=500", Compares("status", ">=", 500)),
        ("status : < -5", Compares("status", "<", -5)),
        ("ok:TRUE", Equals("ok", 1)),
        ('at:>"2026-01-01T00:00:00Z"', Compares("at", ">", 1767225600000)),
        ("msg:Declined", words("declined")),
        ('msg:"issuer declined"', words("issuer", "declined", phrase=True)),
        ('msg:"issuer decl*"', words("issuer", "decl", open=True, phrase=True)),
        ("msg:foo-bar*", words("foo", "bar", open=True)),
        (r'msg:"say \"hi\" \\"', words("say", "hi", phrase=True)),
        ("user:\ud800", Equals("user", "\ufffd")),
        ("has:svc", Has("service")),
        ("has:msg", Has("msg")),
        ("-status:500", Not(Equals("status", 500))),
        ("not NOT status:500", Equals("status", 500)),
        ("boom", Any((words("boom", boost=2.0), Equals("user", "boom")))),
        ("user:a user:b", All((Equals("user", "a"), Equals("user", "b")))),
        ("user:a and user:b", All((Equals("user", "a"), Equals("user", "b")))),
        (
            "user:a OR user:b user:c",
            Any((Equals("user", "a"), All((Equals("user", "b"), Equals("user", "c"))))),
        ),
        (
            "(user:a or user:b) -user:c",
            All(
                (Any((Equals("user", "a"), Equals("user", "b"))), Not(Equals("user", "c"))),
            ),
        ),
    ],
)
def test_queries_are_understood(text: str, query: Query) -> None:
    assert parse_query(text, SEARCH) == query


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the query is empty"),
        ("   ", "the query is empty"),
        ("nobody:x", "unknown search field nobody"),
        ("has:nobody", "unknown search field nobody"),
        ("has:bare", "does not support has:"),
        ("contains:x", "contains: is not supported"),
        ("bare:x", "does not support exact queries"),
        ("user:x*", "does not support prefix queries"),
        ("user:>x", "does not support comparisons"),
        ("msg:>x", "does not support comparisons"),
        ("only:>5", "does not support ranges"),
        ("status:abc", "'abc' is no integer for field status"),
        ("status:", "status: needs a value"),
        ("status:>", "status: needs a value"),
        ("(user:a", "does not end"),
        ("user:a)", "unexpected"),
        ('user:"a', "a string in the query does not end"),
        ('user:"a\\', "a string in the query does not end"),
        ("AND user:a", "unexpected 'AND'"),
        ("user:a OR", "the query ends early"),
        ("-", "the query ends early"),
        ("()", "unexpected"),
        (">5", "unexpected '>'"),
        ("(" * 40 + "user:a" + ")" * 40, "levels deep"),
        ("user:a " * 300, "at most 256 clauses"),
        ("x" * 20_000, "at most 16384 characters"),
    ],
)
def test_what_cannot_be_asked_is_refused(text: str, message: str) -> None:
    with pytest.raises(Refused, match=message.replace("(", r"\(")):
        parse_query(text, SEARCH)


def test_filters_ask_less() -> None:
    def asked(text: str) -> Query:
        return parse_query(text, SEARCH, Rules.FILTER)

    assert asked("svc:a status:>=5") == All((Equals("service", "a"), Compares("status", ">=", 5)))
    assert asked("service:a*") == Equals("service", "a*")
    for text, message in [
        ("boom", "needs a field"),
        ("nobody:x", "filter field nobody is not indexed"),
        ("msg:x", "filter field msg is not indexed"),
        ("only:>5", "does not support ranges"),
    ]:
        with pytest.raises(Refused, match=message):
            asked(text)


def test_scores_add_up() -> None:
    query = parse_query('msg:"issuer declined" user:u boom', SEARCH)
    assert has_text(query)
    assert not has_text(parse_query("user:u", SEARCH))
    documents = [
        b'{"msg":"issuer declined boom, issuer","user":"u"}',
        b'{"msg":["issuer declined","boom boom"],"user":"u"}',
        b'{"msg":"declined issuer boom","user":"u"}',
    ]
    # Phrase: matching words and twice its length; bare: boost 2 for each match.
    assert Matcher(query, SEARCH).score(documents) == [3 + 4 + 2, 2 + 4 + 4, None]
