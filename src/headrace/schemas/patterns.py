"""Patterns of schemas: which engine takes them, how large they become, which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jsonschema_rs

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    PATTERN_BACKTRACK_MAX,
    PATTERN_BYTES_MAX,
    PATTERN_CACHE_BYTES,
    PATTERNS_BYTES_MAX,
)
from headrace.schemas.proof_budget import ProofBudget


def linear(size_bytes: int = PATTERN_BYTES_MAX) -> Any:
    """The engine that takes as long as a text is long, for automata of this size."""
    return jsonschema_rs.RegexOptions(size_limit=size_bytes, dfa_size_limit=PATTERN_CACHE_BYTES)


def backtracking() -> Any:
    """The engine that gives up after so many steps, for patterns of before this was refused."""
    return jsonschema_rs.FancyRegexOptions(backtrack_limit=PATTERN_BACKTRACK_MAX)


@lru_cache(maxsize=4096)
def automaton_bytes(pattern: str) -> int | None:
    """How large a pattern becomes, about; None if the linear engine does not take it."""
    size = 4096
    while size <= PATTERN_BYTES_MAX:
        try:
            jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=linear(size))
        except ValueError:
            size *= 4
        else:
            return size
    return None


def check_patterns(schema: Any, where: str, budget: ProofBudget) -> None:
    """Refuse patterns that take more than linear time, and more of them than there is room for."""
    budget.spend()
    room = PATTERNS_BYTES_MAX
    for pattern in _patterns(schema):
        budget.spend()
        size = automaton_bytes(pattern)
        if size is None:
            raise Refused(
                Code.INVALID,
                f'{where}: the pattern "{pattern[:80]}" cannot be matched in linear time:'
                " it is malformed, too large (maxLength says how long a text may be without any),"
                " or has backreferences or lookaround",
            )
        room -= size + PATTERN_CACHE_BYTES
        if room < 0:
            raise Refused(Code.INVALID, f"{where} has too many patterns, or too large ones")


def patterns_bytes(schema: Any) -> int:
    """What the patterns of a schema take of memory."""
    sizes = map(automaton_bytes, _patterns(schema))
    return sum((size or PATTERN_BYTES_MAX) + PATTERN_CACHE_BYTES for size in sizes)


def _patterns(schema: Any) -> Iterator[str]:
    """All patterns of a schema, and what looks like one in its values."""
    stack = [schema]
    while stack:
        held = stack.pop()
        if isinstance(held, list):
            stack += held
        if not isinstance(held, dict):
            continue
        stack += held.values()
        inner = held.get("patternProperties")
        for pattern in (held.get("pattern"), *(inner if isinstance(inner, dict) else ())):
            if isinstance(pattern, str):
                yield pattern
