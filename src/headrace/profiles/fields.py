"""Fields of the search configurations and schemas that come with profiles."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}
WORD = {"type": "string", "minLength": 1}
TEXT_OR_NULL = {"type": ["string", "null"]}
INTEGER = {"type": "integer"}
INTEGER_OR_NULL = {"type": ["integer", "null"]}
NUMBER_OR_NULL = {"type": ["number", "null"]}


def keyword(pointer: str, normalizer: str = "identity_v1") -> dict[str, Any]:
    """A text that is found as a whole or by how it begins."""
    flags = ("exact", "prefix", "exists", "sortable")
    return _bind("keyword", pointer, *flags, normalizer=normalizer)


def typed(pointer: str, kind: str, *more: str) -> dict[str, Any]:
    """A number or a time."""
    return _bind(kind, pointer, "exact", "column", "exists", "sortable", *more)


def words(pointer: str) -> dict[str, Any]:
    """A text that is found by its words, and by phrases."""
    return _bind("text", pointer, "exists", "positions", analyzer="unicode_word_v1")


def _bind(kind: str, pointer: str, *flags: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **more, **dict.fromkeys(flags, True)}
