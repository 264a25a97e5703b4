"""How many open files the process may have, and how many of them may be connections.

A journal that cannot open its next file stops every writer, so connections leave room for it:
for the files of the engine, and for those that wait to be accepted, which come all at once.
"""

from __future__ import annotations

import resource

from headrace.core.limits import FILES_RESERVED, LISTEN_BACKLOG_MAX


def raise_limit() -> int:
    """Make the soft limit the hard one; returns how many open files there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # a system whose kernel has another limit: what there is has to do
    return soft


def backlog(descriptors: int) -> int:
    """How many connections may wait to be accepted."""
    return min(LISTEN_BACKLOG_MAX, max(descriptors // 8, 1))


def room_for_connections(descriptors: int) -> int:
    """How many connections there may be beside everything else."""
    return max(descriptors - min(FILES_RESERVED, descriptors // 2) - backlog(descriptors), 1)
