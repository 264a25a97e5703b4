"""Values in JSON that users write: of the type that is wanted, or refused with their place."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from headrace.core.errors import refuse_invalid


def need_object(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        refuse_invalid(f"{where} must be an object")
    return raw


def need_list(raw: object, where: str) -> list[Any]:
    if not isinstance(raw, list):
        refuse_invalid(f"{where} must be an array")
    return raw


def need_text(raw: object, where: str) -> str:
    if not isinstance(raw, str):
        refuse_invalid(f"{where} must be a string")
    return raw


def need_bool(raw: object, where: str) -> bool:
    if not isinstance(raw, bool):
        refuse_invalid(f"{where} must be true or false")
    return raw


def refuse_others(keys: Iterable[str], known: Container[str], where: str) -> None:
    """Refuse members that an object does not have."""
    for key in keys:
        if key not in known:
            refuse_invalid(f"{where}.{key[:80]} is not supported")
