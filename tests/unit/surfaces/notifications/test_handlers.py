"""Handlers: which values a field takes, and the one canonical text of each."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import I64_MAX
from headrace.surfaces.notifications.handlers import (
    DateHandler,
    EnumHandler,
    ExpverHandler,
    FloatHandler,
    IntHandler,
    ScalarHandler,
    StringHandler,
    TimeHandler,
    format_float,
    parse_float,
    parse_int,
)

DASHED = DateHandler("%Y-%m-%d")
WORDS = EnumHandler(("North", "SOUTH", "İ"))


@pytest.mark.parametrize(
    ("handler", "text", "canonical"),
    [
        (StringHandler(), "A b.C", "A b.C"),
        (StringHandler(), " ", " "),
        (StringHandler(4), "üü", "üü"),
        (DateHandler(), "2025-03-04", "20250304"),
        (DateHandler(), "20250304", "20250304"),
        (DateHandler(), "2025-063", "20250304"),
        (DateHandler(), "2024-366", "20241231"),
        (DateHandler(), "2024-02-29", "20240229"),
        (DateHandler(), "0001-01-01", "00010101"),
        (DateHandler(), "9999-365", "99991231"),
        (DASHED, "20250304", "2025-03-04"),
        (DASHED, "0999-001", "0999-01-01"),
        (TimeHandler(), "6", "0600"),
        (TimeHandler(), "06", "0600"),
        (TimeHandler(), "6:05", "0605"),
        (TimeHandler(), "06:05", "0605"),
        (TimeHandler(), "0605", "0605"),
        (TimeHandler(), "0", "0000"),
        (TimeHandler(), "23:59", "2359"),
        (WORDS, "north", "north"),
        (WORDS, "NORTH", "north"),
        (WORDS, "South", "south"),
        (ExpverHandler(), "1", "0001"),
        (ExpverHandler(), "0001", "0001"),
        (ExpverHandler(), "12345", "12345"),
        (ExpverHandler(), "XyZ1", "xyz1"),
        (ExpverHandler(), "٣", "٣"),
        (ExpverHandler("7"), "", "0007"),
        (ExpverHandler("Prod"), "", "prod"),
        (IntHandler(), "007", "7"),
        (IntHandler(), "+7", "7"),
        (IntHandler(), "-0", "0"),
        (IntHandler(), "0" * 900 + "5", "5"),
        (IntHandler(), str(I64_MAX), str(I64_MAX)),
        (IntHandler(), str(-I64_MAX - 1), str(-I64_MAX - 1)),
        (IntHandler((1, 7)), "1", "1"),
        (IntHandler((1, 7)), "7", "7"),
        (FloatHandler(), "1e3", "1000"),
        (FloatHandler(), "1E-7", "0.0000001"),
        (FloatHandler(), "1.50", "1.5"),
        (FloatHandler(), "5.", "5"),
        (FloatHandler(), ".5", "0.5"),
        (FloatHandler(), "+1", "1"),
        (FloatHandler(), "-0.0", "0"),
        (FloatHandler(), "100", "100"),
        (FloatHandler(), "1e22", "1" + "0" * 22),
        (FloatHandler(), "-123456.789e-10", "-0.0000123456789"),
        (FloatHandler((-1.5, 2.0)), "-1.5", "-1.5"),
    ],
)  # fmt: skip
def test_canonical_texts(handler: ScalarHandler, text: str, canonical: str) -> None:
    assert handler.canonical("f", text) == canonical
    assert handler.canonical("f", canonical) == canonical


@pytest.mark.parametrize(
    ("handler", "texts"),
    [
        (StringHandler(), [""]),
        (StringHandler(3), ["abcd", "üü"]),
        (
            DateHandler(),
            ["", "2025", "2025-3-4", "2025-02-29", "2025-13-01", "2025-00-01", "20250230",
             "2025-366", "2025-000", "2025-999", "0000-01-01", "0000-001", "2025/03/04",
             "25-03-04", "2025-0304", "202503-04", " 20250304", "20250304\n", "٢٠٢٥٠٣٠٤",
             "2025-03-04T00:00:00Z"],
        ),
        (
            TimeHandler(),
            ["", "24", "23:60", "2360", "123", "12345", "6:5", ":30", "06:", "-1", "6pm", "٦",
             "06:00:00", "6\n"],
        ),
        (WORDS, ["", "west", "north ", "nor"]),
        (EnumHandler(("1",)), ["1.0", "01"]),
        (ExpverHandler(), [""]),
        (
            IntHandler(),
            ["", "+", "-", "5.0", "1e3", "0x10", "1_000", " 5", "5\n", "٣", "five", "--5",
             str(I64_MAX + 1), str(-I64_MAX - 2), "9" * 10_000, "0" * 10_000],
        ),
        (IntHandler((1, 7)), ["0", "8", "-1"]),
        (
            FloatHandler(),
            ["", ".", "e5", "1e", "nan", "NaN", "inf", "-Infinity", "1e400", "-1e400", "1_0.5",
             " 1", "1\n", "٣.5", "0x1p3", "1,5", "1.5.2", "true"],
        ),
        (FloatHandler((0.0, 1.0)), ["-0.1", "1.1", "1e300"]),
    ],
)  # fmt: skip
def test_other_texts_are_refused(handler: ScalarHandler, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(Refused, match="Field 'depth' ") as refused:
            handler.canonical("depth", text)
        assert refused.value.code is Code.INVALID
        assert refused.value.detail == {"field": "depth"}
        assert len(refused.value.message) < 400
        assert refused.value.message.isascii() or "İ" in refused.value.message


def test_a_long_enumeration_is_not_said_whole() -> None:
    handler = EnumHandler(tuple(f"v{n}" for n in range(1000)))
    with pytest.raises(Refused, match=r"v19 and 980 more"):
        handler.canonical("f", "x")


@given(st.integers(-I64_MAX - 1, I64_MAX))
def test_whole_numbers_come_back(number: int) -> None:
    text = IntHandler().canonical("f", f"{number:+025d}")
    assert text == str(number)
    assert parse_int(text) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_without_exponents(number: float) -> None:
    text = format_float(number)
    assert parse_float(text) == number
    assert FloatHandler().canonical("f", repr(number)) == text
    assert FloatHandler().canonical("f", text) == text
    assert set(text) <= set("-.0123456789")
    assert not text.endswith((".0", "."))
    assert "." not in text or not text.endswith("0")
    # Shortest: one digit less would be another number, wherever it is a matter of digits.
    digits = len(Decimal(text).as_tuple().digits)
    assert digits == 1 or "." not in text or float(f"{number:.{max(digits - 2, 0)}e}") != number


@given(st.dates(), st.sampled_from(["%Y%m%d", "%Y-%m-%d"]))
def test_the_three_forms_of_a_day_are_one(day: date, form: str) -> None:
    handler = DateHandler(form)
    year = f"{day.year:04d}"
    forms = [
        f"{year}-{day.month:02d}-{day.day:02d}",
        f"{year}{day.month:02d}{day.day:02d}",
        f"{year}-{day.timetuple().tm_yday:03d}",
    ]
    canonical = {handler.canonical("f", text) for text in forms}
    assert len(canonical) == 1
    assert canonical <= set(forms)


@given(st.integers(0, 23), st.integers(0, 59))
def test_the_forms_of_a_time_are_one(hour: int, minute: int) -> None:
    forms = [f"{hour}:{minute:02d}", f"{hour:02d}:{minute:02d}", f"{hour:02d}{minute:02d}"]
    forms += [str(hour), f"{hour:02d}"] if not minute else []
    assert {TimeHandler().canonical("f", text) for text in forms} == {f"{hour:02d}{minute:02d}"}


HANDLERS = st.sampled_from(
    [StringHandler(), StringHandler(5), DateHandler(), DASHED, TimeHandler(), WORDS,
     ExpverHandler(), ExpverHandler("a"), IntHandler(), IntHandler((-5, 5)), FloatHandler(),
     FloatHandler((-1.0, 1.0))]
)  # fmt: skip


@given(
    HANDLERS,
    st.text(max_size=12) | st.text("0123456789+-.:eE٣", max_size=12) | st.floats().map(repr),
)
def test_a_text_has_a_canonical_form_or_is_refused(handler: ScalarHandler, text: str) -> None:
    try:
        canonical = handler.canonical("f", text)
    except Refused:
        return
    assert handler.canonical("f", canonical) == canonical
