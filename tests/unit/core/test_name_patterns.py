"""Names and prefixes of logs, and what is said of those that nobody has."""

from __future__ import annotations

import pytest

from headrace.core.name_patterns import NamePatterns, parse_patterns, unknown_log


def test_names_and_prefixes() -> None:
    wanted = parse_patterns(["orders", "web-*", "orders"])
    assert wanted == NamePatterns(("orders",), ("web-",))
    assert [name for name in ("orders", "orders2", "web-1", "web", "x") if wanted.takes(name)] == [
        "orders",
        "web-1",
    ]
    assert str(wanted) == "orders, web-*"
    assert not parse_patterns([])
    assert parse_patterns(["*"]).takes("anything")


@pytest.mark.parametrize("text", ["", "a*b", "*a", "**"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|at the end"):
        parse_patterns(["a", text])


@pytest.mark.parametrize(
    ("pattern", "known", "said"),
    [
        ("order", ["orders", "web"], "there is no log order; did you mean orders?"),
        ("wbe-*", ["orders", "web-1"], "no log begins with wbe-; did you mean web-1?"),
        ("zzz", ["a", "b", "c", "d", "e"], "there is no log zzz; there are a, b, c and 2 more"),
        ("zzz", ["a"], "there is no log zzz; there is only a"),
        ("zzz", [], "there is no log zzz: there is none at all"),
    ],
)
def test_unknown_logs(pattern: str, known: list[str], said: str) -> None:
    assert unknown_log(pattern, known) == said
