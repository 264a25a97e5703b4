"""A router as its destination holds it: where it takes records from, how, and how far it came."""

from __future__ import annotations

import msgspec

from headrace.core.match import TagMatch


class Rule(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a router does with the records it passes on."""

    keep_node: bool = True
    keep_tag: bool = True
    match: TagMatch | None = None
    """Which records it takes; None for all."""
    allow_cycle: bool = False
    exactly_once: bool = False


class InboundRoute(msgspec.Struct, gc=False, array_like=True):
    """One router into a log."""

    source: int
    """The log it takes records from."""
    rule: Rule
    cursor: int
    """Every record of the source up to here was copied, passed over, or found lost."""
    forwarded: int = 0
    """Copies made."""
    created_by: str = ""
    """Id of the key that made it, for the caps of each key; nothing where nobody knows."""
