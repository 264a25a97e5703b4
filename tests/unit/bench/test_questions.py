from __future__ import annotations

import msgspec
import pytest

from headrace_bench import evlog
from headrace_bench.questions import Page, Windows, differ, make_questions

RECORDS = 2000


@pytest.fixture(scope="module")
def documents() -> list[bytes]:
    return list(evlog.documents(RECORDS))


def test_duckdb_answers_every_kind_of_question(documents: list[bytes]) -> None:
    duckdb = pytest.importorskip("duckdb")
    parsed = [msgspec.json.decode(raw) for raw in documents]
    with duckdb.connect() as connection:
        connection.execute("create table records (seq bigint, data blob, doc varchar)")
        rows = [(at + 1, raw, raw.decode()) for at, raw in enumerate(documents)]
        connection.executemany("insert into records values (?, ?, ?)", rows)
        kinds = make_questions(RECORDS, documents[:: RECORDS // 2][:2])
        answers = {
            kind: [q.read_rows(connection.execute(q.sql).fetchall()) for q in questions]
            for kind, questions in kinds.items()
        }
    for kind, found in answers.items():
        assert all(found), kind
        assert [differ(answer, answer) for answer in found] == ["", ""]
    exact, phrase = answers["exact"][1], answers["phrase"][1]
    assert exact == Page(1, [parsed[RECORDS // 2]])
    assert isinstance(phrase, Page)
    assert parsed[RECORDS // 2] in phrase.sources
    ranged, slow = answers["range"][0], [d for d in parsed if d["duration"] >= 300]
    assert ranged == Page(len(slow), slow[::-1][:50])
    windows = answers["aggregate"][0]
    assert isinstance(windows, dict)
    assert sum(count for count, *_ in windows.values()) == RECORDS


def test_what_differs_is_said() -> None:
    right = Page(2, ["b", "a"])
    assert differ(right, right) == ""
    assert differ(Page(None, ["b", "a"]), right) == ""  # not told is not wrong
    assert differ(Page(3, ["b", "a"]), right) == "3 records match, not 2"
    assert differ(Page(2, ["b", "c"]), right) == "2 of 2 hits, the first wrong one at 1"
    cells = {(0, "a"): (2, 0.3, 0.1, 0.2)}
    assert differ({(0, "a"): (2, 0.1 + 0.2, 0.1, 0.2)}, cells) == ""
    assert "is (1, 0.3" in differ({(0, "a"): (1, 0.3, 0.1, 0.2)}, cells)
    assert differ({}, cells) == "0 groups, not 1"
    assert "Page" in differ(right, cells)


def test_answers_of_servers_are_read() -> None:
    question = make_questions(RECORDS, [next(evlog.documents(1))])["exact"][0]
    reply = {"total": {"value": 1, "relation": "gte"}, "hits": [{"source": {"a": 1}}]}
    assert question.read_reply(msgspec.json.encode(reply)) == Page(None, [{"a": 1}])
    ms = {"count": 2, "sum": 3.5, "min": 1, "max": 2.5}
    group = {"key": {"service": "cart"}, "measures": {"n": {"count": 2}, "ms": ms}}
    bucket = {"start": "1970-01-01T00:01:00.000Z", "groups": [group]}
    raw = msgspec.json.encode({"buckets": [bucket]})
    assert Windows(0, 1).read_reply(raw) == {(60_000, "cart"): (2, 3.5, 1, 2.5)}
