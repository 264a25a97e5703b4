"""Columns of numbers that documents have as texts: made at once, they are what each text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.search.config import Binding, Field, FieldKind
from headrace.search.extraction import read_columns
from headrace.search.values import PathReader, values_of

NINES = "9" * 18
TEXTS = [
    *["0", "-0", "5", "-17", "12", NINES, f"-{NINES}", f"9{NINES}", "007", "+3", " 3", "3 ", "1\n"],
    *["", "-", "0x10", "1.0", "1.45", "-2.5", "0.0000001", "1e5", "1.", ".5", "nan", "inf", "1_0"],
    *["9" * 100 + ".5", "9" * 101, "1e999", "٣"],
]


@pytest.mark.parametrize("kind", [FieldKind.INTEGER, FieldKind.FLOAT])
@given(st.lists(st.none() | st.sampled_from(TEXTS) | st.integers(-5, 5).map(str), max_size=5))
def test_numbers_as_texts(kind: FieldKind, found: list[str | None]) -> None:
    field = Field("f", kind, (Binding(1, ("f",)),), frozenset())

    class Given(PathReader):
        def read(self, raws: object) -> list[list[str | None]]:
            return [found]

    (column,), _ = read_columns([field], Given([("f",)]), [b""] * len(found))
    each = [(row, value) for row, text in enumerate(found) for value in values_of(field, text)]
    assert list(zip(column.rows.tolist(), column.values.to_pylist(), strict=True)) == each
