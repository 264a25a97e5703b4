"""What headers say: parsers take what the protocol has and refuse everything else as Refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Refused
from headrace.search.values import format_date
from headrace.surfaces.streams import fields
from headrace.surfaces.streams.names import parse_name, parse_path
from headrace.surfaces.streams.offsets import parse_offset


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5Z", 500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2262-04-11T23:47:16.854775807Z", 2**63 - 1),
        ("0", 0),
        ("1700000000000000001", 1_700_000_000_000_000_001),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert fields.parse_time_ns(text, "t") == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1" * 20,
        "1969-12-31T23:59:59Z",
        "2262-04-11T23:47:16.854775808Z",
        "2020-13-01T00:00:00Z",
        "2020-01-01T24:00:00Z",
        "2020-01-01T00:00:00+25:00",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(Refused):
        fields.parse_time_ns(text, "t")


@given(st.datetimes(datetime(1970, 1, 1), datetime(2262, 1, 1)))
def test_times_are_shown_as_they_are_read(at: datetime) -> None:
    at = at.replace(tzinfo=UTC, microsecond=at.microsecond // 1000 * 1000)
    ms = int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000 + 0.5)
    assert fields.parse_time_ns(format_date(ms), "t") == ms * 1_000_000


def test_durations_add_up() -> None:
    assert fields.parse_duration_ms("1d2h3m4s5ms", "t") == 93_784_005
    assert fields.parse_timeout_ms("250") == 250
    assert fields.parse_ttl_ms("0") == 0


def test_a_key_is_utf8_if_it_can_be() -> None:
    assert fields.parse_key("ü".encode().decode("latin-1")) == "ü"
    assert fields.parse_key(b"\xfc".decode("latin-1")) == "ü"
    assert fields.parse_key(None) is None
    with pytest.raises(Refused):
        fields.parse_key("x" * 4097)


PARSERS: list[Callable[[str], object]] = [
    parse_offset,
    parse_name,
    fields.parse_ttl_ms,
    fields.parse_timeout_ms,
    fields.parse_sub_offset,
    fields.parse_seq,
    lambda text: fields.parse_time_ns(text, "t"),
    lambda text: fields.parse_producer(text, text, text),
    lambda text: parse_path(text, text.encode("utf-8", "surrogatepass")),
]


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text() | st.text("0123456789-+.:TZhms/%") | st.text("0ABCXYZ", min_size=26))
def test_parsers_refuse_and_nothing_else(parse: Callable[[str], object], text: str) -> None:
    try:
        parse(text)
    except Refused:
        pass


@pytest.mark.parametrize("name", ["a", "a/b", "pk/k", "_schema", "a b", "\ufffd"])
def test_names_in_paths(name: str) -> None:
    assert parse_path(name, quote(name).encode()) == name


@pytest.mark.parametrize("raw", ["", "/", "a//b", ".", "a/..", "__x", "__ds/x", "%ff", "a%0a"])
def test_what_is_no_name_in_a_path(raw: str) -> None:
    with pytest.raises(Refused):
        parse_path(unquote(raw), raw.encode())


def test_names_in_headers_may_be_paths() -> None:
    assert parse_name("/v1/stream/a/b%20c") == "a/b c"
    assert parse_name("/ds/v1/stream/a") == "a"
    assert parse_name("a/b c") == "a/b c"
    with pytest.raises(Refused):
        parse_name("/elsewhere/a")
