"""What the driver commits of what its tasks staged."""

from __future__ import annotations

from unittest import mock

from headrace.spark.options import parse_write
from headrace.spark.writing import HeadraceStreamWriter, Staged

OPTIONS = parse_write({"url": "http://127.0.0.1:1", "log": "a"})


def test_a_batch_without_rows_asks_the_server_for_nothing() -> None:
    """A commit without chunks would be refused; the next batch has a higher number anyway."""
    with mock.patch("headrace.spark.writing.Server") as server:
        HeadraceStreamWriter(OPTIONS).commit([Staged("query", 3, 0), None], 3)
    server.assert_not_called()


def test_a_batch_is_committed_in_the_order_of_its_parts() -> None:
    messages = [Staged("query", 4, 1, ["1-7-0"]), Staged("query", 4, 0, ["0-5-0", "0-5-1"]), None]
    with mock.patch("headrace.spark.writing.Server") as server:
        HeadraceStreamWriter(OPTIONS).commit([*messages], 4)
    commit = server.return_value.__enter__.return_value.commit
    chunks = ["0-5-0", "0-5-1", "1-7-0"]
    assert commit.mock_calls == [mock.call("query", 4, chunks, create=True, once=False)]
