"""JSON pointers (RFC 6901): where in a document a value is."""

from __future__ import annotations

import re

from headrace.core.errors import refuse_invalid

Path = tuple[str, ...]

_ESCAPE = re.compile(r"~[01]")
_BAD = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def parse_pointer(text: str) -> Path | None:
    """The steps of a pointer; None if it is none."""
    if not text:
        return ()
    if not text.startswith("/") or _BAD.search(text):
        return None
    return tuple(_ESCAPE.sub(lambda m: "~/"[m[0] == "~1"], step) for step in text[1:].split("/"))


def need_pointer(raw: object, where: str) -> Path:
    """The steps of a pointer that somebody wrote; refuses what is none."""
    path = parse_pointer(raw) if isinstance(raw, str) else None
    if path is None:
        refuse_invalid(f"{where} must be a JSON pointer")
    return path


def is_index(step: str) -> bool:
    """Whether a step could lead into an array."""
    return _INDEX.fullmatch(step) is not None


def resolve(document: object, path: Path) -> object:
    """What the path leads to; None when it leads nowhere, as for null."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and is_index(step) and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document
