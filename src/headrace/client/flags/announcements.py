"""What the events of a stream announce about a namespace; nothing of it is believed yet."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from headrace.client.flags.event_parser import StreamedEvent
from headrace.core.limits import FLAGS_CLIENT_DELTA_FILES_MAX, I64_MAX
from headrace.flags.delta import DeltaEntry

PROTOCOL = "v2"
DOWNGRADE = "protocol_downgrade"
RESTARTED = "unknown_since"
"""The reason of a resync behind which versions may be lower than before."""
_NAMES = frozenset(("version", "resync"))
_HASH = re.compile(r"\Asha256:[0-9a-f]{64}\Z")

_Version = Annotated[int, msgspec.Meta(ge=1, le=I64_MAX)]
_Hash = Annotated[str, msgspec.Meta(pattern=_HASH.pattern)]
_Size = Annotated[int, msgspec.Meta(ge=0)]
_Url = Annotated[str, msgspec.Meta(max_length=16 << 10)]


class DeltaAnnounced(msgspec.Struct, frozen=True):
    """A new version, as a difference to one before it."""

    version: _Version
    closure_hash: _Hash
    prev_closure_hash: _Hash
    files: Annotated[
        tuple[DeltaEntry, ...],
        msgspec.Meta(min_length=1, max_length=FLAGS_CLIENT_DELTA_FILES_MAX),
    ]

    @property
    def size_bytes(self) -> int:
        """What it brings, as it was sent."""
        return sum(len(entry.path) + len(entry.content_b64 or "") for entry in self.files)


class SnapshotAnnounced(msgspec.Struct, frozen=True):
    """A version, and where to get all of it."""

    version: _Version
    closure_hash: _Hash
    snapshot_url: _Url
    snapshot_size_bytes: _Size = 0


class ResyncAnnounced(msgspec.Struct, frozen=True):
    """What is held counts no more; where to get what does."""

    current_version: _Version
    reason: str
    snapshot_url: _Url = ""
    closure_hash: _Hash | None = None
    """The protocol does not promise it; the ETag of the snapshot says it, too."""


Announcement = DeltaAnnounced | SnapshotAnnounced | ResyncAnnounced


class UnreadableEvent(Exception):
    """An event that is not what the protocol says."""

    def __init__(self, message: str, namespace: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.namespace = namespace
        """The slug of the namespace that it is about, as far as that can be told."""


class UnknownProtocol(UnreadableEvent):
    """An event of a protocol that this client does not speak."""


class _Head(msgspec.Struct):
    protocol: str
    namespace: str
    delivery: str = ""


_head = msgspec.json.Decoder(_Head)
_delta = msgspec.json.Decoder(DeltaAnnounced)
_snapshot = msgspec.json.Decoder(SnapshotAnnounced)
_resync = msgspec.json.Decoder(ResyncAnnounced)


def parse_announcement(event: StreamedEvent) -> tuple[str, Announcement] | None:
    """The slug of a namespace and what is announced of it; None for events of other kinds."""
    if event.name not in _NAMES:
        return None
    try:
        head = _head.decode(event.data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableEvent(f"an event cannot be read: {error}") from None
    if head.protocol != PROTOCOL:
        problem = f"the server speaks {head.protocol[:64]!r}, this client {PROTOCOL!r}"
        raise UnknownProtocol(problem, head.namespace)
    try:
        return head.namespace, _decode(event, head.delivery)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableEvent(f"an event cannot be read: {error}", head.namespace) from None


def _decode(event: StreamedEvent, delivery: str) -> Announcement:
    if event.name == "resync":
        return _resync.decode(event.data)
    match delivery:
        case "inline":
            return _delta.decode(event.data)
        case "snapshot":
            return _snapshot.decode(event.data)
        case _:
            raise msgspec.ValidationError(f"the delivery {delivery[:64]!r} is not known")


def is_closure_hash(text: str) -> bool:
    """Whether this is written as the hash of a closure is."""
    return _HASH.match(text) is not None
