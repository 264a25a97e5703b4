"""The bulk surface, black box over HTTP: `bulk/*.toml`, and what needs Arrow on both sides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

from headrace.client.http import Failed, Server

from .cases import Scenario
from .playing import parameters, play
from .servers import ServerUnderTest, SharedServer


@pytest.mark.parametrize("scenario", parameters(Path(__file__).parent / "bulk"))
def test_bulk(scenario: Scenario, shared_server: SharedServer, tmp_path: Path) -> None:
    play(scenario, shared_server, tmp_path / "data")


@pytest.fixture(scope="module")
def process(shared_server: SharedServer) -> ServerUnderTest:
    return shared_server({})


@pytest.fixture
def server(process: ServerUnderTest) -> Iterator[Server]:
    with Server(process.url) as made:
        yield made


def post(process: ServerUnderTest, path: str, body: object) -> None:
    headers = {"content-type": "application/json"}
    with urlopen(Request(process.url + path, json.dumps(body).encode(), headers)):
        pass


def chunk(*datas: str | bytes, **columns: list[str | None]) -> pa.Table:
    return pa.table({"data": list(datas), **columns})


def rows(server: Server, log: str) -> list[dict[str, object]]:
    (plan,) = server.logs([log], extents=False)
    found, after = [], 0
    while after < plan.head_seq:
        page = server.page(log, after, plan.head_seq, plan.epoch)
        found += page.table.to_pylist()
        after = page.next
    return found


def test_a_page_has_the_columns_of_a_segment(process: ServerUnderTest, server: Server) -> None:
    record = {"data": {"a": [1, "ü"]}, "tag": "t", "node": "n", "group": "g", "meta": {"m": 1}}
    post(process, "/v0/topics/page", {"records": [record, {"data": 2}]})
    first, second = rows(server, "page")
    assert first == {
        "log": "page", "log_id": first["log_id"], "seq": 1, "ts": first["ts"], "ns": None,
        "tag": "t", "node": "n", "key": "g", "media": None,
        "data": json.dumps(record["data"]).encode(), "meta": '{"m": 1}',
    }  # fmt: skip
    assert (second["seq"], second["data"], second["tag"]) == (2, b"2", None)


def test_pages_have_a_budget_and_deleted_records_are_absent(
    process: ServerUnderTest, server: Server
) -> None:
    records = [{"data": number, "tag": "odd" if number % 2 else "even"} for number in range(10)]
    post(process, "/v0/topics/budget", {"records": records})
    post(process, "/v0/topics/budget/delete", {"match": ["tag", "Eq", "odd"]})
    (plan,) = server.logs(["budget"], extents=True)
    assert (plan.head_seq, plan.count, plan.sealed) == (10, 5, [])
    assert plan.deleted == [(seq, seq) for seq in range(2, 11, 2)]
    query = f"name=budget&limit=2&epoch={plan.epoch}"
    with urlopen(f"{process.url}/v0/logs/records?{query}") as answer:
        table = pa.ipc.open_stream(answer.read()).read_all()
        assert answer.headers["headrace-next-seq"] == "3"
    assert table.column("data").to_pylist() == [b"0", b"2"]
    assert [row["data"] for row in rows(server, "budget")] == [b"0", b"2", b"4", b"6", b"8"]


def test_upto_ends_a_page_and_another_epoch_is_told(
    process: ServerUnderTest, server: Server
) -> None:
    post(process, "/v0/topics/ends", {"records": [{"data": n} for n in range(5)]})
    (plan,) = server.logs(["ends"], extents=False)
    page = server.page("ends", 1, 3, plan.epoch)
    assert (page.table.column("seq").to_pylist(), page.next, page.head) == ([2, 3], 3, 5)
    other = server.page("ends", 1, 3, plan.epoch + 1)
    assert other.gap == (1, 3, "recreated")
    assert other.epoch == plan.epoch


def test_streams_are_read_with_their_media(process: ServerUnderTest, server: Server) -> None:
    url = f"{process.url}/v1/stream/raw/bytes"
    for method in ("PUT", "POST"):
        headers = {"content-type": "application/octet-stream"}
        body = b"\xff\x00" if method == "POST" else None
        with urlopen(Request(url, body, headers, method=method)):
            pass
    (row,) = rows(server, "raw/bytes")
    assert (row["media"], row["data"]) == ("application/octet-stream", b"\xff\x00")


def test_the_first_commit_of_a_batch_wins(server: Server) -> None:
    assert server.committed("wins") is None
    assert server.stage("wins", 3, "0-0-0", "wins", chunk("1", "2", tag=["a", None]))
    assert server.stage("wins", 3, "1-7-0", "wins", chunk("3", key=["k"], meta=['{"x":1}']))
    assert server.stage("wins", 3, "0-0-0", "wins", chunk("1", "2", tag=["a", None]))  # again
    with pytest.raises(Failed, match="staged before with other records"):
        server.stage("wins", 3, "0-0-0", "wins", chunk("9"))
    assert not server.logs(["wins"], extents=False)
    done = server.commit("wins", 3, ["1-7-0", "0-0-0"], create=True, once=False)
    assert (done.committed, done.records, done.repeated) == (3, 3, False)
    assert [row["data"] for row in rows(server, "wins")] == [b"3", b"1", b"2"]
    assert [row["tag"] for row in rows(server, "wins")] == [None, "a", None]
    assert rows(server, "wins")[0]["key"] == "k"
    assert server.committed("wins") == 3
    assert not server.stage("wins", 3, "0-1-0", "wins", chunk("9"))
    again = server.commit("wins", 3, ["0-1-0"], create=True, once=False)
    assert (again.committed, again.repeated) == (3, True)
    assert len(rows(server, "wins")) == 3


def test_a_batch_that_was_passed_over_is_refused_and_not_repeated(server: Server) -> None:
    """Else who commits it would take it for written."""
    for batch in (0, 1, 3, 4):
        assert server.stage("over", batch, "0-0-0", "over", chunk(str(batch)))
        if batch != 3:
            server.commit("over", batch, ["0-0-0"], create=True, once=False)
    for batch in (0, 1):
        assert not server.stage("over", batch, "0-0-0", "over", chunk("9"))
        assert server.commit("over", batch, ["0-0-0"], create=True, once=False).repeated
    for batch in (2, 3):
        with pytest.raises(Failed, match="passed over") as staging:
            server.stage("over", batch, "0-0-0", "over", chunk("3"))
        with pytest.raises(Failed, match="passed over") as committing:
            server.commit("over", batch, ["0-0-0"], create=True, once=False)
        assert (staging.value.status, committing.value.status) == (400, 400)
    assert [row["data"] for row in rows(server, "over")] == [b"0", b"1", b"4"]


KEYS = {
    "TOPICS_API_KEYS": "root,reader:read,writer:write,acmeread:read:acme:,acmewrite:write:acme:"
}
"""As in `bulk/auth.toml`, so that one server does for both."""


@pytest.mark.parametrize("key", ["writer", "acmewrite"])
def test_a_transaction_belongs_to_who_staged_first(shared_server: SharedServer, key: str) -> None:
    url, name, log = shared_server(KEYS).url, f"of-root-{key}", f"victim-{key}"
    with Server(url, "root") as owner, Server(url, key) as other:
        assert owner.stage(name, 0, "0-0-0", log, chunk("1"))
        acts = [
            lambda: other.stage(name, 0, "0-0-1", "acme:x", chunk("2")),
            lambda: other.commit(name, 0, ["0-0-0"], create=True, once=False),
            lambda: other.commit(name, 1 << 62, ["0-0-1"], create=True, once=True),
            lambda: other.abort(name, 0),
            lambda: other.committed(name),
        ]

        def refuse_all() -> None:
            for act in acts:
                with pytest.raises(Failed) as failed:
                    act()
                assert failed.value.status == 403
                assert "victim" not in failed.value.message

        refuse_all()
        assert not owner.commit(name, 0, ["0-0-0"], create=True, once=False).repeated
        assert [row["data"] for row in rows(owner, log)] == [b"1"]
        refuse_all()
        assert owner.stage(name, 1, "0-0-0", log, chunk("2"))
        assert not owner.commit(name, 1, ["0-0-0"], create=True, once=False).repeated
        assert [row["data"] for row in rows(owner, log)] == [b"1", b"2"]


def test_a_stamp_needs_the_right_to_write_where_it_leads(shared_server: SharedServer) -> None:
    with Server(shared_server(KEYS).url, "acmewrite") as server:
        stamped = {queue: chunk("1", meta=[f'{{"$dead_letter_from":"{queue}"}}'])
                   for queue in ("victim", "acme:q")}  # fmt: skip
        with pytest.raises(Failed) as failed:
            server.stage("stamps", 0, "0-0-0", "acme:dlq", stamped["victim"])
        assert failed.value.status == 403
        assert server.stage("stamps", 0, "0-0-0", "acme:dlq", stamped["acme:q"])


def test_a_commit_names_chunks_that_are_staged(server: Server) -> None:
    assert server.stage("named", 0, "0-0-0", "named", chunk("1"))
    for chunks in (["0-0-1"], ["0-0-0", "0-0-0"]):
        with pytest.raises(Failed) as failed:
            server.commit("named", 0, chunks, create=True, once=False)
        assert failed.value.status == 400
    with pytest.raises(Failed) as failed:
        server.commit("named", 0, ["0-0-0"], create=False, once=False)
    assert failed.value.code == "topic_not_found"
    server.abort("named", 0)
    with pytest.raises(Failed, match="not staged"):
        server.commit("named", 0, ["0-0-0"], create=True, once=False)
    assert server.committed("named") is None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (chunk("{"), "not JSON"),
        (chunk("1,2"), "one JSON text"),
        (chunk("1],[2"), "JSON"),
        (chunk(""), "JSON"),
        (chunk(b'"\xff"'), "not JSON"),
        (chunk("[" * 200 + "]" * 200), "nests"),
        (pa.table({"data": pa.array([None], pa.string())}), "missing"),
        (pa.table({"data": [1]}), "text or bytes"),
        (pa.table({"data": ["1"], "colour": ["red"]}), "columns"),
        (pa.table({"tag": ["1"]}), "columns"),
        (pa.table({"data": pa.array([], pa.string())}), "records"),
        (chunk("1", meta=["[]"]), "meta"),
        (chunk("1", meta=["{},{}"]), "meta"),
        (chunk("1", tag=["t" * 5000]), "tag"),
        (chunk("1", key=["k" * 256]), "key"),
        (chunk('"' + "x" * (1 << 20) + '"'), "limit"),
    ],
)
def test_a_chunk_that_no_append_would_take_is_refused(
    server: Server, table: pa.Table, said: str
) -> None:
    with pytest.raises(Failed, match=said) as failed:
        server.stage("refused", 0, "0-0-0", "refused", table)
    assert failed.value.status == 400


def test_a_chunk_for_a_stream_of_json_and_for_one_of_bytes(
    process: ServerUnderTest, server: Server
) -> None:
    for name, media in (("s/json", "application/json"), ("s/raw", "text/plain")):
        request = Request(f"{process.url}/v1/stream/{name}", None, {"content-type": media})
        request.method = "PUT"
        with urlopen(request):
            pass
    assert server.stage("streams", 0, "0-0-0", "s/json", chunk("[1]", key=["k"]))
    assert server.stage("streams", 0, "0-0-1", "s/raw", chunk(b"{not json"))
    close = Request(f"{process.url}/v1/stream/s/shut", None, {"stream-closed": "true"})
    close.method = "PUT"
    with urlopen(close):
        pass
    assert server.stage("shut", 0, "0-0-0", "s/shut", chunk("1"))
    with pytest.raises(Failed, match="closed"):
        server.commit("shut", 0, ["0-0-0"], create=False, once=True)
    server.commit("streams", 0, ["0-0-0", "0-0-1"], create=False, once=True)
    assert [row["data"] for row in rows(server, "s/json")] == [b"[1]"]
    assert [(row["data"], row["media"]) for row in rows(server, "s/raw")] == [
        (b"{not json", "text/plain")
    ]


@pytest.mark.system
def test_what_is_committed_survives_a_kill(tmp_path: Path) -> None:
    with ServerUnderTest(tmp_path / "data") as process:
        with Server(process.url) as server:
            server.stage("kill", 0, "0-0-0", "kill", chunk("1", "2"))
            server.commit("kill", 0, ["0-0-0"], create=True, once=False)
            server.stage("kill", 1, "0-0-0", "kill", chunk("3"))
        process.kill()
        process.start()
        with Server(process.url) as server:
            assert server.committed("kill") == 0
            assert server.commit("kill", 0, ["0-0-0"], create=True, once=False).repeated
            server.commit("kill", 1, ["0-0-0"], create=True, once=False)
            assert [row["data"] for row in rows(server, "kill")] == [b"1", b"2", b"3"]
