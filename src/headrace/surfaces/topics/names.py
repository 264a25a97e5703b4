"""Names on the topics surface: a topic is the log of the same name, and a seq is a seq."""

from __future__ import annotations

import re

from headrace.core.errors import Code, Refused
from headrace.core.names import parse_name

parse_topic = parse_name

_ROUTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")


def parse_router(text: str) -> str:
    """The name of a router: as that of a topic, and `>` may be in it."""
    if _ROUTER.match(text) is None:
        raise Refused(
            Code.INVALID,
            "a router's name has 1 to 255 characters of A-Z a-z 0-9 . _ : - > "
            "and starts with a letter or digit",
            name=text[:300],
        )
    return text
