"""Entity tags: whether a client that asks again has what there is."""

from __future__ import annotations


def tag_matches(header: str | None, tag: str) -> bool:
    """Whether If-None-Match names this tag, however weakly."""
    if header is None:
        return False
    known = (each.strip() for each in header.split(","))
    return any(each == "*" or each.removeprefix("W/") == tag.removeprefix("W/") for each in known)
