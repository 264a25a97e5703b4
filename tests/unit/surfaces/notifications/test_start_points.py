"""Start points: six forms of a time, numbers, and what excludes what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import U64_MAX
from headrace.surfaces.notifications.start_points import (
    AtSeq,
    AtTime,
    HistoryRange,
    parse_replay_range,
    parse_watch_range,
)

TEN = 1_736_935_200_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2025-01-15T10:00:00Z", TEN),
        ("2025-01-15t10:00:00z", TEN),
        ("2025-01-15T12:00:00+02:00", TEN),
        ("2025-01-15T04:30:00-05:30", TEN),
        ("2025-01-15 10:00:00+00:00", TEN),
        ("2025-01-15 10:00:00Z", TEN),
        ("2025-01-15T10:00:00", TEN),
        ("2025-01-15T10:00:00.5", TEN + 500),
        ("2025-01-15T10:00:00.123Z", TEN + 123),
        ("2025-01-15T10:00:00.123000Z", TEN + 123),
        ("2025-01-15T10:00:00.123000001Z", TEN + 124),
        ("1740509903", 1_740_509_903_000),
        ("1740509903710", 1_740_509_903_710),
        ("99999999999", 99_999_999_999_000),
        ("100000000000", 100_000_000_000),
        ("+1740509903", 1_740_509_903_000),
        ("0001740509903", 1_740_509_903_000),
        ("+0001740509903", 1_740_509_903_000),
        ("0", 0),
        ("000", 0),
        ("20250609", 20_250_609_000),
        ("1969-12-31T23:59:59Z", -1000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("253402300799999", 253_402_300_799_999),
    ],
)
def test_dates(text: str, at_ms: int) -> None:
    assert parse_watch_range(None, text) == HistoryRange(AtTime(at_ms))
    assert parse_replay_range(None, text) == HistoryRange(AtTime(at_ms))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "+",
        "-1",
        "-1740509903",
        "++1",
        "1.5",
        "1e9",
        "1_000",
        "٣",
        "2025-06-09",
        "2025-06-09T",
        "2025-06-09T10",
        "2025-06-09T10:00",
        "2025-06-09T10:00Z",
        "2025-06-09 10:00:00",
        "2025-06-09  10:00:00Z",
        "2025-06-09_10:00:00Z",
        "2025-06-09T10:00:00 Z",
        "2025-06-09T10:00:00+02",
        "2025-06-09T10:00:00+0200",
        "2025-06-09T10:00:00+24:00",
        "2025-06-09T10:00:00.Z",
        "2025-06-09T10:00:00.1234567890Z",
        "2025-06-09T24:00:00Z",
        "2025-06-09T10:60:00Z",
        "2025-06-09T10:00:60Z",
        "2025-06-09T10:000:0Z",
        "2025-02-29T10:00:00Z",
        "2025-13-01T10:00:00Z",
        "2025-06-09T10:00:00Z\n",
        "now",
        "yesterday",
        "253402300800000",
        "9" * 30,
        "9" * 100_000,
        "0" * 100_000,
    ],
)
def test_other_dates(text: str) -> None:
    with pytest.raises(Refused, match=r"^from_date ") as refused:
        parse_watch_range(None, text)
    assert refused.value.code is Code.INVALID
    with pytest.raises(Refused, match=r"^to_date "):
        parse_replay_range("1", None, None, text)


@pytest.mark.parametrize(("text", "seq"), [("0", 0), ("1", 1), ("007", 7), (str(U64_MAX), U64_MAX)])
def test_numbers(text: str, seq: int) -> None:
    assert parse_watch_range(text, None) == HistoryRange(AtSeq(seq))
    assert parse_replay_range(text, None, text) == HistoryRange(AtSeq(seq), AtSeq(seq))


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", "1e3", " 1", "x", "٣", str(U64_MAX + 1), "9" * 100_000]
)
def test_other_numbers(text: str) -> None:
    with pytest.raises(Refused, match=r"^from_id "):
        parse_watch_range(text, None)
    with pytest.raises(Refused, match=r"^to_id "):
        parse_replay_range("1", None, text)


def test_without_a_start_a_watch_is_live_and_a_replay_is_refused() -> None:
    assert parse_watch_range(None, None) == HistoryRange(None)
    with pytest.raises(Refused, match="from_id or from_date is needed"):
        parse_replay_range(None, None)
    with pytest.raises(Refused, match="from_id or from_date is needed"):
        parse_replay_range(None, None, "5")


@pytest.mark.parametrize("parse", [parse_watch_range, parse_replay_range])
def test_two_starts_exclude_each_other_behind_what_is_wrong_with_each(parse: object) -> None:
    assert callable(parse)
    for from_id, from_date, problem in [
        ("1", "0", "from_id and from_date exclude each other"),
        ("x", "0", "from_id is not a whole number"),
        ("1", "x", "from_date is not a time"),
        ("x", "x", "from_id is not a whole number"),
    ]:
        with pytest.raises(Refused, match=problem):
            parse(from_id, from_date)


def test_ends_are_for_replay_and_exclude_each_other() -> None:
    with pytest.raises(Refused, match="to_id is for replay only"):
        parse_watch_range("1", None, "5")
    with pytest.raises(Refused, match="to_date is for replay only"):
        parse_watch_range("1", None, None, "0")
    with pytest.raises(Refused, match="to_id and to_date exclude each other"):
        parse_replay_range("1", None, "5", "0")


def test_a_time_between_two_milliseconds() -> None:
    """Records have whole ones: a start means the next, an end the one before."""
    between = "2025-01-15T10:00:00.0005Z"
    assert parse_replay_range(None, between, None, between) == HistoryRange(
        AtTime(TEN + 1), AtTime(TEN)
    )


@given(
    st.datetimes(timezones=st.just(UTC)).map(lambda when: when.replace(microsecond=0)),
    st.integers(-23 * 60, 23 * 60),
)
def test_a_time_is_the_same_in_every_zone(when: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    try:
        text = when.astimezone(zone).isoformat()
    except OverflowError:
        return
    at_ms = int(when.timestamp()) * 1000
    assert parse_watch_range(None, text).start == AtTime(at_ms)
    assert parse_watch_range(None, text.replace("T", " ")).start == AtTime(at_ms)


@given(st.text(max_size=40) | st.text("0123456789-:T Z+.", max_size=32))
def test_a_text_is_a_point_or_refused(text: str) -> None:
    for asked in ((text, None), (None, text), (text, text)):
        try:
            parse_replay_range(*asked)
        except Refused:
            continue
