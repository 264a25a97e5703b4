"""What pushed filters and options say about what is wanted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNull,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from headrace.core.name_patterns import NamePatterns
from headrace.spark.filters import narrow
from headrace.spark.options import OptionError, RecordSelection, parse_read, parse_write

URL = {"url": "http://127.0.0.1:1", "log": "a"}


def test_filters_narrow_bounds() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    filters: list[Filter] = [
        GreaterThan(("seq",), 10),
        LessThanOrEqual(("seq",), 20),
        GreaterThan(("ts",), at),
        EqualTo(("tag",), "x"),
        In(("log",), ("a", "b")),
        StringStartsWith(("log",), "a"),
    ]
    wanted = narrow(RecordSelection(NamePatterns((), ("",))), filters)
    assert (wanted.first, wanted.last) == (11, 20)
    assert wanted.since_us == int(at.timestamp()) * 1_000_000 + 1
    assert ("tag", frozenset(("x",))) in wanted.sets
    assert [wanted.takes(log) for log in ("a", "b", "abc")] == [True, False, False]


@pytest.mark.parametrize(
    "filter",
    [
        IsNull(("key",)),
        Not(EqualTo(("seq",), 3)),
        EqualTo(("data", "x"), "y"),
        EqualTo(("meta",), "y"),
        EqualTo(("key",), None),
        In(("key",), ("a", None)),
        EqualTo(("ts",), "2026"),
    ],
)
def test_what_is_not_understood_changes_nothing(filter: Filter) -> None:
    assert narrow(RecordSelection(), [filter]) == RecordSelection()


def test_options() -> None:
    options = parse_read({**URL, "log": "a, b*,a", "from_ts": "1000", "to_ts": "2026-01-01"})
    assert options.wanted.logs == NamePatterns(("a",), ("b",))
    assert options.wanted.until_us == int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    assert options.wanted.since_us == 1_000_000
    assert options.fail_on_loss
    assert not options.pushdown


@pytest.mark.parametrize(
    "more",
    [
        {"from_seq": "-1"},
        {"to_ts": "yesterday"},
        {"pushdown": "perhaps"},
        {"maxRowsPerTrigger": "0"},
        {"startingOffsets": "middle"},
        {"timeoutSeconds": "soon"},
        {"columns": "seq,colour"},
    ],
)
def test_options_that_cannot_be_understood(more: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse_read(URL | more)


def test_writing_needs_a_server_and_one_log() -> None:
    for options in ({"path": "/x", "log": "a"}, URL | {"log": "a,b"}, URL | {"transaction": "t"}):
        with pytest.raises(OptionError):
            parse_write(options)
