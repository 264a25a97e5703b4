"""The bucket on a bad day: what is tried again, what is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.storage.objects import StoreError
from headrace.storage.s3 import S3Objects
from headrace.storage.stores import split_bucket

Answer = tuple[int, bytes]


class Bucket(ThreadingHTTPServer):
    """Answers as it is told to; knows what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: list[tuple[str, str, str | None]] = []
        self.answer: Callable[[str, bytes], Answer] = lambda method, body: (200, b"")


class _Answering(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers.get("If-None-Match")))
        status, content = self.server.answer(self.command, body)
        if not status:
            self.close_connection = True  # hung up without an answer
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_DELETE = do_HEAD = _do  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with Bucket() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield server
        server.shutdown()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def objects(bucket: Bucket, pauses: list[float]) -> S3Objects:
    return S3Objects("b", "pre/fix", pauses.append)


def test_names_are_below_the_prefix_and_new_ones_conditional(
    bucket: Bucket, objects: S3Objects
) -> None:
    objects.put("segments/1", b"x")
    assert objects.put_new("manifests/1", b"x")
    assert bucket.asked == [
        ("PUT", "/b/pre/fix/segments/1", None),
        ("PUT", "/b/pre/fix/manifests/1", "*"),
    ]


def test_a_taken_name_is_no_error(bucket: Bucket, objects: S3Objects) -> None:
    bucket.answer = lambda method, body: (412, b"")
    assert not objects.put_new("manifests/1", b"x")
    assert [method for method, _, _ in bucket.asked] == ["PUT"]


def test_a_conditional_write_is_repeated_with_pauses(
    bucket: Bucket, objects: S3Objects, pauses: list[float]
) -> None:
    answers = iter([(503, b"busy"), (500, b""), (200, b"")])
    bucket.answer = lambda method, body: next(answers)
    assert objects.put_new("manifests/1", b"x")
    assert pauses == sorted(pauses)
    assert len(pauses) == 2


@pytest.mark.parametrize("mine", [True, False])
def test_a_repeated_write_may_find_that_it_was_first(
    bucket: Bucket, objects: S3Objects, mine: bool
) -> None:
    """The answer to the first attempt was lost, not the write."""
    answers = iter([(0, b""), (412, b""), (200, b"content" if mine else b"theirs")])
    bucket.answer = lambda method, body: next(answers)
    assert objects.put_new("manifests/1", b"content") is mine


def test_a_repeated_write_may_find_that_its_name_was_freed(
    bucket: Bucket, objects: S3Objects
) -> None:
    """It was first, and others published so many versions since that this one was forgotten."""
    answers = iter([(0, b""), (412, b""), (404, b"")])
    bucket.answer = lambda method, body: next(answers)
    assert not objects.put_new("manifests/1", b"content")


def test_what_goes_on_failing_is_told(
    bucket: Bucket, objects: S3Objects, pauses: list[float]
) -> None:
    bucket.answer = lambda method, body: (503, b"no room")
    with pytest.raises(StoreError, match=r"s3://b/pre/fix/manifests/1: "):
        objects.put_new("manifests/1", b"x")
    assert len(bucket.asked) == len(pauses) + 1


def test_a_refusal_is_not_repeated(bucket: Bucket, objects: S3Objects, pauses: list[float]) -> None:
    bucket.answer = lambda method, body: (403, b"<Error><Code>AccessDenied</Code></Error>")
    with pytest.raises(StoreError):
        objects.put_new("manifests/1", b"x")
    assert pauses == []
    with pytest.raises(StoreError):
        objects.get("segments/1")


def test_reads_are_repeated(bucket: Bucket, objects: S3Objects) -> None:
    answers = iter([(500, b""), (200, b"content")])
    bucket.answer = lambda method, body: next(answers)
    assert objects.get("segments/1") == b"content"


def test_what_is_missing_is_not_found(bucket: Bucket, objects: S3Objects) -> None:
    bucket.answer = lambda method, body: (404, b"")
    for call in (objects.get, objects.open):
        with pytest.raises(FileNotFoundError, match="segments/1"):
            call("segments/1")


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("s3://b", ("b", "")),
        ("s3://b/", ("b", "")),
        ("s3://b/a/b/", ("b", "a/b")),
        ("s3://", None),
        ("s3:///x", None),
        ("gs://b", None),
        ("b/x", None),
        ("s3://b x", None),
        ("", None),
    ],
)
def test_where_a_bucket_is(where: str, found: tuple[str, str] | None) -> None:
    if found is None:
        with pytest.raises(ValueError, match="s3://bucket"):
            split_bucket(where)
    else:
        assert split_bucket(where) == found
