"""What goes out on a stream of changes: versions as deltas or as links to snapshots, and resyncs.

Each event is one line of compact JSON.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from headrace.core.limits import CLOSURE_TOKEN_S
from headrace.core.selector import EVERYTHING, Selector
from headrace.delivery.events import Event, PlainView, Records
from headrace.delivery.sse import event
from headrace.flags.closure_token import RequestedClosure, sign_closure_token
from headrace.flags.delta import Closure, DeltaEntry, FileChange
from headrace.flags.subscription import FlagSet, encode_subscription

PROTOCOL: Literal["v2"] = "v2"
KEEPALIVE = b":keepalive\n\n"
NEW_VERSION = b"new"
"""What followers of a namespace are given: that there is something new."""

ResyncReason = Literal["version_too_old", "unknown_since"]


class Delivered(msgspec.Struct, frozen=True):
    """What was last delivered of a namespace on one connection."""

    log: int
    """The namespace may be deleted and made again: that is another log."""
    version: int
    closure_hash: str


class InlineEvent(msgspec.Struct):
    """A new version as a delta."""

    protocol: str
    namespace: str
    version: int
    prev_version: int
    prev_closure_hash: str
    closure_hash: str
    delivery: str
    files: list[DeltaEntry]


class SnapshotEvent(msgspec.Struct):
    """A new version as a whole, to be fetched."""

    protocol: str
    namespace: str
    version: int
    prev_version: int | None
    prev_closure_hash: str | None
    closure_hash: str
    delivery: str
    snapshot_url: str
    snapshot_size_bytes: int


class ResyncEvent(msgspec.Struct):
    """What the client has of a namespace is worth nothing any more."""

    protocol: str
    namespace: str
    current_version: int
    reason: ResyncReason
    snapshot_url: str


class SnapshotLink(msgspec.Struct, frozen=True):
    """Where one principal fetches closures of one namespace."""

    base_url: str
    principal: str
    tenant: str
    namespace: str
    flags: FlagSet

    def sign(self, key: bytes, version: int, now_ms: int) -> str:
        """The URL of a version, good for a minute from now on."""
        closure = RequestedClosure(self.tenant, self.namespace, version, self.flags)
        token = sign_closure_token(key, self.principal, closure, now_ms // 1000 + CLOSURE_TOKEN_S)
        return (
            f"{self.base_url}/api/v1/tenants/{self.tenant}/namespaces/{self.namespace}/closure"
            f"?version={version}&subscription={encode_subscription(self.flags)}&token={token}"
        )


def encode_delta(
    namespace: str,
    before: Delivered,
    closure: Closure,
    changes: Iterable[FileChange],
    contents: Mapping[bytes, bytes],
) -> bytes:
    """The data of a version that is told as what changed since another."""
    return msgspec.json.encode(
        InlineEvent(
            PROTOCOL,
            namespace,
            closure.version,
            before.version,
            before.closure_hash,
            closure.hash,
            "inline",
            [_changed(change, contents) for change in changes],
        )
    )


def _changed(change: FileChange, contents: Mapping[bytes, bytes]) -> DeltaEntry:
    if change.digest is None:
        return DeltaEntry(change.path, change.op)
    content = b64encode(contents[change.digest]).decode()
    return DeltaEntry(change.path, change.op, change.digest.hex(), content)


def encode_snapshot(
    namespace: str, before: Delivered | None, closure: Closure, url: str, size_bytes: int
) -> bytes:
    """The data of a version that is to be fetched."""
    return msgspec.json.encode(
        SnapshotEvent(
            PROTOCOL,
            namespace,
            closure.version,
            None if before is None else before.version,
            None if before is None else before.closure_hash,
            closure.hash,
            "snapshot",
            url,
            size_bytes,
        )
    )


def encode_resync(namespace: str, version: int, reason: ResyncReason, url: str) -> bytes:
    """The data of a resync."""
    return msgspec.json.encode(ResyncEvent(PROTOCOL, namespace, version, reason, url))


def frame(name: bytes, namespace: str, version: int, data: bytes) -> bytes:
    """An event of a namespace; its id is what a client comes back with."""
    return event(name, data, f"{namespace}:{version}".encode())


class VersionView(PlainView, frozen=True, kw_only=True):
    """That there is a new version: the same for everybody, whatever they want of it."""

    selector: Selector = EVERYTHING
    gets_superseded: bool = True

    def encode(self, name: str, told: Event, position: int) -> bytes:
        return NEW_VERSION if isinstance(told, Records) else b""


VERSIONS = VersionView()
