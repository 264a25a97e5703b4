"""Names as users may write them."""

from __future__ import annotations

import pytest

from headrace.core.errors import Refused
from headrace.core.names import parse_name


@pytest.mark.parametrize("name", ["a", "0", "render-queue:tenantA", "a.b_c:d-e", "a" * 255])
def test_good_names(name: str) -> None:
    assert parse_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "_a", ".", "__system", "a b", "a/b", "a\n", "é", "a" * 256]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(Refused):
        parse_name(name)
