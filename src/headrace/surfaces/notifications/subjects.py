"""Subjects: the tokens of a notification, joined by dots, as tag and key of its record.

A token is percent-encoded for exactly the characters that mean something in a subject, so that
`1.45` is one token. What a client sees of it, the topic, is the decoded join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from headrace.core.errors import Code, Refused

WILDCARD = "*"

_ENCODED = str.maketrans({".": "%2E", "*": "%2A", ">": "%3E", "%": "%25"})
_ESCAPE = re.compile(r"%(.{0,2})", re.DOTALL)
_DECODED = {"2E": ".", "2A": "*", "3E": ">", "25": "%"}


def format_subject(tokens: Iterable[str]) -> str:
    """The subject of these tokens, as it is stored."""
    return ".".join(token.translate(_ENCODED) for token in tokens)


def parse_subject(subject: str) -> tuple[str, ...]:
    """The tokens of a subject; refuses one that `format_subject` does not make."""
    if "%" not in subject:
        tokens = tuple(subject.split("."))
    else:
        tokens = tuple(_ESCAPE.sub(_decode, token) for token in subject.split("."))
    if "*" in subject or ">" in subject:
        raise Refused(Code.INVALID, "a subject holds no wildcard")
    return tokens


def _decode(found: re.Match[str]) -> str:
    character = _DECODED.get(found[1])
    if character is None:
        raise Refused(Code.INVALID, f"a subject holds %2E, %2A, %3E or %25, not {found[0]!r}")
    return character


def format_topic(tokens: Sequence[str | None]) -> str:
    """The topic of these tokens as clients see it: nothing encoded, `*` for any token."""
    return ".".join(WILDCARD if token is None else token for token in tokens)
