"""Trackers: named cursors over a log, for consumers that keep none themselves.

One node at a time holds a tracker: each poll renews its lease. What was handed out comes again
until it is acknowledged, so every record is handed out at least once; whoever takes over from a
node whose lease ran out begins where that one's acknowledgements end. Fences tell holders apart.
"""

from __future__ import annotations

import msgspec

from headrace.core.entry import NotePoll, SetTracker
from headrace.core.errors import Code, Refused
from headrace.core.limits import TRACKER_LEASE_MS


class Tracker(msgspec.Struct, gc=False, array_like=True, tag="tracker"):
    """State of a tracker."""

    source: int
    """The log that it reads, by id: a later one of the same name is another."""
    source_name: str
    cursor: int
    """Everything up to here is acknowledged."""
    given: int
    """Up to here records were handed out."""
    node: str = ""
    """Who held it last; nobody yet, if empty."""
    lease_until_ms: int = 0
    fence: int = 0
    """Above all that were given out before; another holder gets another one."""

    def holder(self, now_ms: int) -> str | None:
        """Who holds it now."""
        return self.node if self.node and now_ms < self.lease_until_ms else None


def poll(
    log: int,
    tracker: Tracker,
    node: str,
    *,
    ack: int | None,
    fence: int | None,
    lost_upto: int,
    now_ms: int,
) -> NotePoll:
    """The lease for a node that asks, and its acknowledgement; or a refusal.

    A loss right behind the cursor, up to `lost_upto`, can be acknowledged, too: it was never given.
    """
    holder = tracker.holder(now_ms)
    if holder not in (None, node):
        raise Refused(
            Code.TRACKER_LEASED,
            f'"{holder}" holds the tracker',
            active_node=holder,
            lease_expires_at_ms=tracker.lease_until_ms,
        )
    if fence is not None and (node, fence) != (tracker.node, tracker.fence):
        raise Refused(
            Code.FENCED, "the tracker was taken over since this fence was given", fence=fence
        )
    cursor = tracker.cursor if ack is None else ack
    ackable = max(tracker.given, lost_upto)
    if not tracker.cursor <= cursor <= ackable:
        raise Refused(
            Code.INVALID,
            f"seqs from {tracker.cursor} to {ackable} can be acknowledged",
            field="ack_seq",
            cursor_seq=tracker.cursor,
            given_seq=ackable,
        )
    return NotePoll(
        log,
        node,
        now_ms + TRACKER_LEASE_MS,
        tracker.fence + (node != tracker.node),
        cursor,
        max(tracker.given, cursor),
    )


def give(log: int, tracker: Tracker, upto: int) -> NotePoll:
    """Records up to here are handed out to the holder."""
    return NotePoll(log, tracker.node, tracker.lease_until_ms, tracker.fence, tracker.cursor, upto)


def apply(tracker: Tracker | None, entry: SetTracker | NotePoll) -> Tracker:
    """Make an entry true."""
    if isinstance(entry, SetTracker):
        # Fences go on: who held it before must not be taken for a holder of now.
        fence = 0 if tracker is None else tracker.fence + 1
        return Tracker(entry.source, entry.source_name, entry.cursor, entry.cursor, fence=fence)
    assert tracker is not None, entry
    tracker.node, tracker.lease_until_ms = entry.node, entry.lease_until_ms
    tracker.fence, tracker.cursor, tracker.given = entry.fence, entry.cursor, entry.given
    return tracker
