"""Semantic versions (semver.org 2.0.0): which texts are one, and which of two comes first.

Numbers of any length are compared as the texts they are: none has a zero in front, so that a
longer one is larger.
"""

from __future__ import annotations

import re

from headrace.core.limits import SEMVER_LENGTH_MAX

_NUMBER = r"(?:0|[1-9][0-9]*+)"
_IDENTIFIER = rf"(?:{_NUMBER}(?![0-9A-Za-z-])|[0-9]*+[A-Za-z-][0-9A-Za-z-]*+)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*+))?"
    r"(?:\+[0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*+)?\Z"
)

Identifier = tuple[bool, int, str]
"""Numbers come before words; of two numbers, the shorter one; then by the bytes."""
Semver = tuple[tuple[Identifier, ...], bool, tuple[Identifier, ...]]


def parse_semver(text: str) -> Semver | None:
    """What a version is ordered by; None if it is none. What it was built from does not count."""
    if len(text) > SEMVER_LENGTH_MAX or (match := _SEMVER.match(text)) is None:
        return None
    *numbers, pre = match.groups()
    released = pre is None
    return (
        tuple(map(_identifier, numbers)),
        released,
        () if released else tuple(map(_identifier, pre.split("."))),
    )


def _identifier(text: str) -> Identifier:
    return (False, len(text), text) if text.isdigit() else (True, 0, text)
