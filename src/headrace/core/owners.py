"""Owners of logs: the surface or part that makes a log and alone writes to it.

Topics and streams share the plain names. Names with one of the prefixes below are their owner's:
nobody else makes such a log. One that is there already stays with who made it.
"""

from __future__ import annotations

from headrace.core.errors import Code, Refused

TOPICS = "topics"
STREAMS = "streams"
SUBSCRIPTIONS = "subscriptions"
NOTIFICATIONS = "notifications"
FLAGS = "flags"
FEEDS = "feeds"
SYSTEM = "system"
"""The server, for logs that it writes by itself."""

DATED = frozenset((FLAGS, SYSTEM))
"""Owners who tell when a log was made; with a million of others, that would take memory."""

SYSTEM_PREFIX = "__"
SUBSCRIPTION_PREFIX = "__ds/subscriptions/"
FLAGS_PREFIX = "__flags/"
"""What flags keep beside their namespaces; no surface shows it."""
FLAGS_CONTENTS = f"{FLAGS_PREFIX}contents"
"""Contents of manifests, by digest."""

RESERVED = {
    SUBSCRIPTION_PREFIX: SUBSCRIPTIONS,
    SYSTEM_PREFIX: SYSTEM,
    "notify:": NOTIFICATIONS,
    "flags:": FLAGS,
    "feed:": FEEDS,
}
"""Whose names begin like this; the first prefix that fits counts."""
_PREFIXES = tuple(RESERVED)


def is_hidden(name: str) -> bool:
    """Whether a log is for its owner alone: nobody else lists, reads or searches it, not even
    from the object store.
    """
    return name.startswith(FLAGS_PREFIX)


def check_name(name: str, owner: str) -> None:
    """Refuse a name for a new log that is another owner's to give."""
    if name.startswith(_PREFIXES) and RESERVED[_prefix(name)] != owner:
        raise reserved(name)


def reserved(name: str) -> Refused:
    """Nobody but its owner makes or writes a log of such a name."""
    return Refused(Code.INVALID, f"names that begin with {_prefix(name)} are reserved", name=name)


def _prefix(name: str) -> str:
    return next(prefix for prefix in _PREFIXES if name.startswith(prefix))
