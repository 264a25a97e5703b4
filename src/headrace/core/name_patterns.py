"""Which logs somebody means: names, and prefixes that end in a star."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

import msgspec

from headrace.core.limits import NAMES_COMPARED_MAX, NAMES_SHOWN

STAR = "*"


class NamePatterns(msgspec.Struct, frozen=True):
    """Names of logs, and what names may begin with."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.prefixes)

    def takes(self, name: str) -> bool:
        """Whether a log of this name is meant."""
        return name in self.names or any(map(name.startswith, self.prefixes))

    def __str__(self) -> str:
        return ", ".join([*self.names, *(prefix + STAR for prefix in self.prefixes)])


def parse_patterns(texts: Iterable[str]) -> NamePatterns:
    """Names as they are written down; ValueError for a star that is not at the end."""
    given = list(dict.fromkeys(texts))
    for text in given:
        if not text:
            raise ValueError("the name of a log is empty")
        if STAR in text[:-1]:
            raise ValueError(f"{text}: {STAR} stands at the end of a name")
    return NamePatterns(
        tuple(text for text in given if not text.endswith(STAR)),
        tuple(text[:-1] for text in given if text.endswith(STAR)),
    )


def unknown_log(pattern: str, known: Sequence[str]) -> str:
    """One sentence on a name that no log has, or a prefix that none begins with."""
    prefix = pattern.endswith(STAR)
    said = f"no log begins with {pattern[:-1]}" if prefix else f"there is no log {pattern}"
    compared = list(islice(known, NAMES_COMPARED_MAX))
    if near := get_close_matches(pattern.rstrip(STAR), compared, NAMES_SHOWN):
        return f"{said}; did you mean {' or '.join(near)}?"
    if not known:
        return f"{said}: there is none at all"
    if len(known) == 1:
        return f"{said}; there is only {known[0]}"
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    return f"{said}; there are {', '.join(known[:NAMES_SHOWN])}{more}"


def unsealed_log(pattern: str, known: Sequence[str], where: object) -> str:
    """The same where only a store is asked: the log may be there, and nothing of it sealed."""
    return f"{unknown_log(pattern, known)} (in {where}, where only what is sealed is known)"
