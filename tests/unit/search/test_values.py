from __future__ import annotations

import pytest

from headrace.search.config import Binding, Field, FieldKind
from headrace.search.pointers import parse_pointer, resolve
from headrace.search.values import PathReader, analyze, format_date, parse_date_ms, values_of


def field(kind: FieldKind, *, lowercase: bool = False) -> Field:
    return Field("f", kind, (Binding(1, ("f",)),), frozenset(), lowercase)


@pytest.mark.parametrize(
    ("kind", "found", "values"),
    [
        (FieldKind.KEYWORD, ["a", [["B"], 7, None, {"c": 1}], True], ["a", "B"]),
        (
            FieldKind.INTEGER,
            [7, "7", "-0", 1e3, -0.0, 2.5, "07", " 7", True, 2**63],
            [7, 7, 0, 1000, 0],
        ),
        (FieldKind.INTEGER, [-(2**63), str(2**63 - 1), 1e30], [-(2**63), 2**63 - 1]),
        (
            FieldKind.FLOAT,
            [1, "2.5", "1e3", ".5", "nan", "", "1_0", 10**400],
            [1, 2.5, 1000, 0.5],
        ),
        (FieldKind.BOOL, [True, "FALSE", "yes", 1], [1, 0]),
        (FieldKind.DATE, [1.9, "2026-01-01", "12", True, 1e300], [1, 1767225600000, 12]),
        (FieldKind.TEXT, ["a b", 5], ["a b"]),
    ],
)
def test_values_have_canonical_forms(kind: FieldKind, found: object, values: list[object]) -> None:
    assert values_of(field(kind), found) == values


def test_minus_zero_is_zero() -> None:
    assert str(values_of(field(FieldKind.FLOAT), [-0.0])[0]) == "0.0"


def test_lower_case_is_unicode() -> None:
    assert values_of(field(FieldKind.KEYWORD, lowercase=True), "ÀÉ") == ["àé"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-01-01T00:07:28.000Z", 1767226048000),
        ("2026-01-01T02:07:28+02:00", 1767226048000),
        ("2026-01-01t00:07z", 1767226020000),
        ("2026-01-01 00:07:28.1239-00", 1767226048123),
        ("2024-02-29", 1709164800000),
        ("0000-01-01T00:00:00Z", -62167219200000),
        ("2026-02-29", None),
        ("2026-13-01", None),
        ("2026-01-01T24:00:00Z", None),
        ("2026-01-01T00:00:60Z", None),
        ("2026-01-01T00:00:00+25:00", None),
        ("2026-01-01T", None),
        ("20260101", None),
        ("２026-01-01", None),
    ],
)
def test_dates(text: str, ms: int | None) -> None:
    assert parse_date_ms(text) == ms


def test_dates_are_written_with_milliseconds() -> None:
    assert format_date(1767226048001) == "2026-01-01T00:07:28.001Z"
    assert format_date(-1) == "1969-12-31T23:59:59.999Z"
    assert format_date(8_640_000_000_000_000) == "+275760-09-13T00:00:00.000Z"


def test_words_are_letters_and_digits() -> None:
    assert analyze("Foo_bar, GRÜSSE 12½-x日本") == ["foo", "bar", "grüsse", "12½", "x日本"]


def test_pointers() -> None:
    assert parse_pointer("") == ()
    assert parse_pointer("/a~1b/m~0n/") == ("a/b", "m~n", "")
    assert parse_pointer("a") is None
    assert parse_pointer("/~2") is None
    assert resolve({"a": [{"b": 1}]}, ("a", "0", "b")) == 1
    assert resolve({"a": [1]}, ("a", "01")) is None
    assert resolve({"a": [1]}, ("a", "1")) is None
    assert resolve("x", ("a",)) is None


def test_a_reader_takes_what_is_there() -> None:
    reader = PathReader([("a", "b"), ("a",), ("c", "0", "d"), ("e/f",)])
    raws = [
        b'{"a":{"b":1},"c":[{"d":2}],"e/f":3}',
        b'{"a":{"b":1},"a":{"b":5,"b":6}}',
        b'{"a":{"b":"\\ud800"},"e\\u002ff":NaN}',
        b"[]",
        b"nope",
        None,
    ]
    found = reader.read(raws)
    assert found[0] == [1, 6, "\ufffd", None, None, None]
    assert found[1][:2] == [{"b": 1}, {"b": 6}]
    assert found[2] == [2, None, None, None, None, None]
    assert found[3][0] == 3
    assert found[3][2] != found[3][2]
