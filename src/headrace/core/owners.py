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
WEBHOOKS = "webhooks"
TRACKERS = "trackers"
SYSTEM = "system"
"""The server, for logs that it writes by itself."""

DATED = frozenset((FLAGS, SYSTEM, WEBHOOKS, TRACKERS))
"""Owners who tell when a log was made; with a million of others, that would take memory."""

ROUTED = frozenset((FEEDS,))
"""Owners whose logs routers may lead from, though they are of topics."""

ERASABLE = frozenset((TOPICS, STREAMS, NOTIFICATIONS, FEEDS, WEBHOOKS))
"""Owners of records that stand for themselves: one may go, and all others mean what they did."""

SYSTEM_PREFIX = "__"
SUBSCRIPTION_PREFIX = "__ds/subscriptions/"
FLAGS_PREFIX = "__flags/"
"""What flags keep beside their namespaces."""
FLAGS_CONTENTS = f"{FLAGS_PREFIX}contents"
"""Contents of manifests, by digest."""
WEBHOOK_PREFIX = "__webhooks/"
"""Webhooks, each with its dead letters; behind it the surface that made one, and its name there."""
DELIVERIES_PREFIX = "__deliveries/"
"""What each webhook sent lately."""
TRACKER_PREFIX = "__trackers/"

HIDDEN = (
    SUBSCRIPTION_PREFIX,
    FLAGS_PREFIX,
    WEBHOOK_PREFIX,
    DELIVERIES_PREFIX,
    TRACKER_PREFIX,
)
"""Names of logs that no surface shows: they are parts of something else."""

RESERVED = {
    SUBSCRIPTION_PREFIX: SUBSCRIPTIONS,
    WEBHOOK_PREFIX: WEBHOOKS,
    TRACKER_PREFIX: TRACKERS,
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
    return name.startswith(HIDDEN)


def check_name(name: str, owner: str) -> None:
    """Refuse a name for a new log that is another owner's to give."""
    if name.startswith(_PREFIXES) and RESERVED[_prefix(name)] != owner:
        raise reserved(name)


def reserved(name: str) -> Refused:
    """Nobody but its owner makes or writes a log of such a name."""
    return Refused(Code.INVALID, f"names that begin with {_prefix(name)} are reserved", name=name)


def _prefix(name: str) -> str:
    return next(prefix for prefix in _PREFIXES if name.startswith(prefix))
