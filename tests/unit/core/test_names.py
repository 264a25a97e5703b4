"""Names as users may write them."""

from __future__ import annotations

import unicodedata

import pytest

from headrace.core.errors import Refused
from headrace.core.names import SortedNames, check_printable, parse_name


@pytest.mark.parametrize("name", ["a", "0", "render-queue:tenantA", "a.b_c:d-e", "a" * 255])
def test_good_names(name: str) -> None:
    assert parse_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "_a", ".", "__system", "a b", "a/b", "a\n", "é", "a" * 256]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(Refused):
        parse_name(name)


def test_printable_names_have_no_control_characters() -> None:
    check_printable("räume/grün ✓", "a name")
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cc"]
    for each in [*controls, "\u2028", "\u2029"]:
        with pytest.raises(Refused):
            check_printable(f"a{each}b", "a name")


def test_names_stay_in_order_as_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.core.names.NAMES_CHUNK", 4)
    names = SortedNames()
    assert list(names.range("", "")) == []
    given = [f"{n * 7919 % 101:03d}" for n in range(101)]
    for name in given:
        names.add(name)
    assert list(names.range("", "")) == sorted(given)
    assert list(names.range("050", "")) == [f"{n:03d}" for n in range(51, 101)]
    assert list(names.range("", "03")) == [f"{n:03d}" for n in range(30, 40)]
    assert list(names.range("035", "03")) == ["036", "037", "038", "039"]
    for name in given[:100]:
        names.remove(name)
    assert list(names.range("", "")) == given[100:]
    names.remove(given[100])
    assert list(names.range("", "")) == []
