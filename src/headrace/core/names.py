"""Names of logs: one namespace, one character set, checked at the edge before any use."""

from __future__ import annotations

import re

from headrace.core.errors import Code, Refused

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")
SYSTEM_PREFIX = "__"


def parse_name(text: str) -> str:
    """A log name as a user may write it; refuses everything else."""
    if _NAME.match(text) is None:
        raise Refused(
            Code.INVALID,
            "a name has 1 to 255 characters of A-Z a-z 0-9 . _ : - "
            "and starts with a letter or digit",
            name=text[:300],
        )
    return text
