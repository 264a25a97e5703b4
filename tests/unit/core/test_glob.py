"""Globs over names: what they match, that it takes few steps, and how many stars they may have."""

from __future__ import annotations

import random
from functools import cache

import pytest

from headrace.core import glob as module
from headrace.core.errors import Code, Refused
from headrace.core.glob import Glob, check_glob
from headrace.core.limits import GLOB_LENGTH_MAX, GLOB_STARS_MAX


@pytest.mark.parametrize(
    ("glob", "good", "bad"),
    [
        ("events/*", ["events/a", "events/"], ["events", "events/a/b", "event/a", "x/events/a"]),
        ("events/**", ["events", "events/a", "events/a/b"], ["eventsa", "event"]),
        ("**", ["a", "a/b/c"], []),
        ("**/log", ["log", "a/log", "a/b/log"], ["alog", "a/logs"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["az", "a/bz", "a/z/b"]),
        ("a-*.log", ["a-1.log", "a-.log"], ["a-1xlog", "a-/1.log"]),
        ("a/**/b/*c/**", ["a/b/c", "a/x/b/c", "a/b/x/b/cc/z"], ["a/b", "a/c/b", "b/c", "a/b/x"]),
        ("**/**", ["a", "a/b"], []),
        ("a*b*a", ["aba", "abba", "aabba"], ["a", "ab", "ba", "abab"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("a/**/a", ["a/a", "a/b/a"], ["a"]),
        ("plain", ["plain"], ["plains", "plain/a"]),
    ],
)
def test_globs(glob: str, good: list[str], bad: list[str]) -> None:
    pattern = Glob(glob)
    assert [name for name in good if not pattern.matches(name)] == []
    assert [name for name in bad if pattern.matches(name)] == []
    assert all(name.startswith(pattern.prefix) for name in good)


@pytest.mark.parametrize(
    ("glob", "prefix"),
    [
        ("plain", "plain"),
        ("acme/*", "acme/"),
        ("acme/a*", "acme/a"),
        ("acme/**", "acme"),
        ("acme/**/**", "acme"),
        ("acme/*/**", "acme/"),
        ("acme/**/*", "acme/"),
        ("acme/**/z", "acme/"),
        ("acme/**a", "acme/"),
        ("**", ""),
    ],
)
def test_the_prefix_is_what_every_match_begins_with(glob: str, prefix: str) -> None:
    assert Glob(glob).prefix == prefix


def naively(glob: list[str], name: list[str]) -> bool:
    """By trying everything."""
    if not glob:
        return not name
    if glob[0] == "**":
        return any(naively(glob[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and segment(glob[0], name[0]) and naively(glob[1:], name[1:])


@cache
def segment(glob: str, text: str) -> bool:
    if not glob:
        return not text
    if glob[0] == "*":
        return segment(glob[1:], text) or (bool(text) and segment(glob, text[1:]))
    return bool(text) and glob[0] == text[0] and segment(glob[1:], text[1:])


def test_matching_is_what_trying_everything_finds() -> None:
    dice = random.Random(11)
    for _ in range(3000):
        glob = "/".join(dice.choice(("a", "b", "*", "**", "a*", "*b", "a*b*a")) for _ in range(4))
        name = "/".join("".join(dice.choices("ab", k=dice.randint(1, 4))) for _ in range(4))
        assert Glob(glob).matches(name) is naively(glob.split("/"), name.split("/")), (glob, name)


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("tenant42:" + "*a" * 120 + "*b", "tenant42:" + "a" * 1000),
        ("/".join(["**", "a"] * 60) + "/b", "/".join("a" * 500)),
        ("/".join(["**", *"aaaaaaaab"] * 12), "/".join("a" * 500)),
    ],
)
def test_no_segment_is_looked_at_too_often(
    glob: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    plain = module._Segment.matches

    def counted(self: module._Segment, segment: str) -> bool:
        nonlocal looks
        looks += 1
        return plain(self, segment)

    monkeypatch.setattr(module._Segment, "matches", counted)
    assert not Glob(glob).matches(name)
    assert looks <= len(glob.split("/")) * len(name.split("/"))


def test_a_glob_has_a_length_and_a_number_of_stars() -> None:
    check_glob("a/" + "*a" * GLOB_STARS_MAX)
    for bad in ("", "a" * (GLOB_LENGTH_MAX + 1), "*a" * (GLOB_STARS_MAX + 1)):
        with pytest.raises(Refused) as refused:
            check_glob(bad)
        assert refused.value.code is Code.INVALID
