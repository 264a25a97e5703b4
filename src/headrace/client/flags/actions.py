"""What a group wants done: by whoever has sockets, threads and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from headrace.client.flags.problems import FlagState, RefreshError
from headrace.client.flags.trees import FlagTree


class StreamWanted(msgspec.Struct, frozen=True):
    """Connect and ask for events."""

    number: int
    target: str
    headers: Mapping[str, str]


class StreamCancelled(msgspec.Struct, frozen=True):
    """Give up that connection; nothing more is heard of it."""

    number: int


class FetchWanted(msgspec.Struct, frozen=True):
    """Fetch a snapshot, on a connection of its own."""

    number: int
    namespace: str
    target: str
    headers: Mapping[str, str]
    bytes_max: int
    """Of the body."""


class FetchCancelled(msgspec.Struct, frozen=True):
    """Give up fetching."""

    number: int
    namespace: str


class VerificationWanted(msgspec.Struct, frozen=True):
    """Do this work, which may take long and touches nothing else."""

    number: int
    namespace: str
    work: Callable[[], FlagTree | RefreshError]


class ReconnectWanted(msgspec.Struct, frozen=True):
    """A namespace cannot go on without a new first event."""

    namespace: str
    error: RefreshError


class TreePublished(msgspec.Struct, frozen=True):
    """Serve this tree from now on."""

    namespace: str
    tree: FlagTree
    previous: FlagTree | None


class StateChanged(msgspec.Struct, frozen=True):
    """A namespace is known better, or less well."""

    namespace: str
    state: FlagState
    previous: FlagState
    error: RefreshError | None


Action = (
    StreamWanted
    | StreamCancelled
    | FetchWanted
    | FetchCancelled
    | VerificationWanted
    | ReconnectWanted
    | TreePublished
    | StateChanged
)


class SnapshotReply(msgspec.Struct, frozen=True):
    """What a server answered to a request for a snapshot."""

    status: int
    body: bytes = b""
    etag: str = ""
    code: str = ""
    """Of a refusal."""
    retry_after_s: float = 0.0


class StreamRefusal(msgspec.Struct, frozen=True):
    """What a server answered instead of a stream."""

    status: int
    code: str = ""
    message: str = ""
    details: Mapping[str, object] = {}
    retry_after_s: float = 0.0
