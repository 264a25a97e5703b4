"""Turns: one job of upkeep at a time in a store, whoever runs it.

Jobs are safe beside each other (`storage/leases`); what two at once would cost is work done twice.
So a turn is a lease like any other, and whoever finds another one lets go of his and waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.lease import decode_lease
from headrace.storage.leases import HeldLease, hold_lease, is_over, now_ms
from headrace.storage.objects import Objects

TURN = "maintain"
_BESIDE = frozenset(("index",))
"""Jobs that go on all the time, in small steps, and are in nobody's way."""


@contextmanager
def take_turn(objects: Objects) -> Iterator[HeldLease | None]:
    """Hold the turn; None where somebody else is at work.

    Of two who come at once, both may find the other and go; never do both stay: who stored his
    lease last sees the other's.
    """
    with hold_lease(objects, TURN) as lease:
        yield None if list(_others(objects, lease.token)) else lease


def _others(objects: Objects, token: str) -> Iterator[str]:
    """What other jobs that are at work do."""
    now = now_ms(objects)
    for listed in objects.list(layout.LEASES):
        if layout.is_clock(listed.name) or layout.job_of(listed.name) == token:
            continue
        if is_over(listed, now):
            continue
        with suppress(FileNotFoundError, Corrupt):
            job = decode_lease(objects.get(listed.name), listed.name).job
            if job not in _BESIDE:
                yield job
