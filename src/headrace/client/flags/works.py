"""What a mirror may have under way: one thing at a time."""

from __future__ import annotations

import msgspec

from headrace.client.flags.announcements import DeltaAnnounced
from headrace.client.flags.problems import RefreshError


class WantedSnapshot(msgspec.Struct, frozen=True):
    """A closure that is to be fetched as a whole."""

    version: int
    closure_hash: str | None
    """None: the reply says it."""
    url: str = ""
    """With a token in it; empty: the credential of the client is to do."""

    @classmethod
    def behind(cls, delta: DeltaAnnounced) -> WantedSnapshot:
        """The closure that a delta leads to."""
        return cls(delta.version, delta.closure_hash)

    def is_same_as(self, other: WantedSnapshot | None) -> bool:
        """Whether both are of one closure, wherever it comes from."""
        return other is not None and (self.version, self.closure_hash) == (
            other.version,
            other.closure_hash,
        )


class SnapshotFetch(msgspec.Struct, frozen=True):
    """A request for a snapshot."""

    number: int
    snapshot: WantedSnapshot
    etag: str | None
    """What the server may answer to be unchanged."""
    deadline: float


class TreeVerification(msgspec.Struct, frozen=True):
    """A tree that is being looked at."""

    number: int
    about: WantedSnapshot | DeltaAnnounced | None
    """None: nobody wants it any more. It goes on all the same, and nothing else is begun before its
    end: a server that announces one version after the other must not make work pile up.
    """


class RefusedTree(msgspec.Struct, frozen=True):
    """A tree that is what was announced, but cannot be served. It will not get better."""

    etag: str
    error: RefreshError


def snapshot_of(work: SnapshotFetch | TreeVerification | None) -> WantedSnapshot | None:
    """The snapshot that there is work on."""
    match work:
        case (
            SnapshotFetch(snapshot=snapshot) | TreeVerification(about=WantedSnapshot() as snapshot)
        ):
            return snapshot
        case _:
            return None
