"""Compares a JSON answer with an expected one and says every difference in words.

Objects match partially: keys that are not named are not looked at, unless the expected object has
`"<only>": true`. Everything else matches exactly, types included: `1`, `1.0` and `true` are three
values. A string in angle brackets is a matcher:

    <any> <absent> <null> <bool> <int> <number> <string> <object> <array>
    <int 1..500> <number 0..>     inclusive bounds, either may be left out
    <match REGEX>                 a string that matches as a whole
    <length 3>                    of a string, array or object
    <maybe int 1..>               absent, or what the rest says
    <not JSON>                    there, and not this value

and as the first item of an array:

    <unordered>  the other items, in any order
    <includes>   at least the other items, in any order
    <each>       every item matches the one that follows (an empty array does not)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_MATCHER = re.compile(r"<(\w+)(?: (.*))?>", re.DOTALL)
_ABSENT = object()


def find_differences(expected: Any, actual: Any, at: str = "$") -> list[str]:
    """All differences, each with its path; none when the answer is as expected."""
    return list(_compare(expected, actual, at))


def within(value: float, bounds: str) -> bool:
    """Whether a number lies in `low..high`, both inclusive and optional."""
    low, dots, high = bounds.partition("..")
    if not dots:
        raise ValueError(f"not a range: {bounds!r}")
    return (not low or value >= float(low)) and (not high or value <= float(high))


def _compare(expected: Any, actual: Any, at: str) -> Iterator[str]:
    if isinstance(expected, str) and (matcher := _MATCHER.fullmatch(expected)):
        word, argument = matcher.groups()
        if word not in _WORDS:
            raise ValueError(f"{at}: unknown matcher {expected!r}")
        if not _WORDS[word](actual, argument):
            yield _unlike(at, expected, actual)
    elif isinstance(expected, dict) and isinstance(actual, dict):
        yield from _compare_objects(expected, actual, at)
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from _compare_arrays(expected, actual, at)
    elif type(expected) is not type(actual) or expected != actual:
        yield _unlike(at, expected, actual)


def _compare_objects(expected: dict[str, Any], actual: dict[str, Any], at: str) -> Iterator[str]:
    named = {key: value for key, value in expected.items() if key != "<only>"}
    for key, value in named.items():
        yield from _compare(value, actual.get(key, _ABSENT), f"{at}.{key}")
    if expected.get("<only>"):
        for key in sorted(actual.keys() - named.keys()):
            yield f"{at}.{key}: not expected to be here, got {_show(actual[key])}"


def _compare_arrays(expected: list[Any], actual: list[Any], at: str) -> Iterator[str]:
    match expected:
        case ["<each>", pattern]:
            if not actual:
                yield f"{at}: expected items, got an empty array"
            for index, item in enumerate(actual):
                yield from _compare(pattern, item, f"{at}[{index}]")
        case ["<unordered>" | "<includes>" as how, *patterns]:
            left = list(actual)
            for pattern in patterns:
                found = next(
                    (item for item in left if not find_differences(pattern, item)), _ABSENT
                )
                if found is _ABSENT:
                    yield f"{at}: expected an item like {_show(pattern)}, got {_show(actual)}"
                else:
                    left.remove(found)
            if how == "<unordered>" and len(patterns) != len(actual):
                yield f"{at}: expected {len(patterns)} items, got {len(actual)}: {_show(actual)}"
        case _:
            if len(expected) != len(actual):
                yield f"{at}: expected {len(expected)} items, got {len(actual)}: {_show(actual)}"
            for index, (pattern, item) in enumerate(zip(expected, actual, strict=False)):
                yield from _compare(pattern, item, f"{at}[{index}]")


def _unlike(at: str, expected: Any, actual: Any) -> str:
    return f"{at}: expected {_show(expected)}, got {_show(actual)}"


def _show(value: Any) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"


def _is_int(value: Any, bounds: str | None) -> bool:
    return type(value) is int and (bounds is None or within(value, bounds))


def _is_number(value: Any, bounds: str | None) -> bool:
    return type(value) in (int, float) and (bounds is None or within(value, bounds))


def _matches(value: Any, pattern: str | None) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern or "", value, re.DOTALL) is not None


def _has_length(value: Any, length: str | None) -> bool:
    return isinstance(value, str | list | dict) and len(value) == int(length or "0")


def _is_maybe(value: Any, rest: str | None) -> bool:
    return value is _ABSENT or not find_differences(f"<{rest}>", value)


def _is_not(value: Any, unwanted: str | None) -> bool:
    return value is not _ABSENT and bool(find_differences(json.loads(unwanted or ""), value))


_WORDS: dict[str, Callable[[Any, str | None], bool]] = {
    "any": lambda value, _: value is not _ABSENT,
    "absent": lambda value, _: value is _ABSENT,
    "null": lambda value, _: value is None,
    "bool": lambda value, _: isinstance(value, bool),
    "int": _is_int,
    "number": _is_number,
    "string": lambda value, _: isinstance(value, str),
    "object": lambda value, _: isinstance(value, dict),
    "array": lambda value, _: isinstance(value, list),
    "match": _matches,
    "length": _has_length,
    "maybe": _is_maybe,
    "not": _is_not,
}
