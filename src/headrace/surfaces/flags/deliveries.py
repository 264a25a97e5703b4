"""New versions on their way to connections: worked out once for all who are told the same.

Of each namespace one task is at work while somebody waits for a version. It takes the newest one
there is, so that versions which come in a burst are told as one; finds the closures of all
subscriptions that wait and what changed in each since it was last told; and writes that to the
connections, in slices. What a connection is told is decided by what it has: a version and a hash
are all that is kept of that, however far behind it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial

import msgspec

from headrace.core.batching import batches
from headrace.core.errors import Code, Refused
from headrace.core.limits import DELTA_BYTES_MAX, DELTAS_KEPT_BYTES, SLICE_MS
from headrace.core.sized_cache import SizedCache
from headrace.delivery.channel import is_gone
from headrace.delivery.endings import StreamFailed
from headrace.delivery.hub import Hub
from headrace.delivery.sse import chunk
from headrace.engine.flow.time_slices import slices
from headrace.engine.open_log import OpenLog
from headrace.flags.delta import Closure, diff
from headrace.flags.subscription import FlagSet
from headrace.surfaces.flags.events import (
    Delivered,
    ResyncReason,
    encode_delta,
    encode_resync,
    encode_snapshot,
    frame,
)
from headrace.surfaces.flags.following import FollowedNamespace
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.manifests import LoadedManifest
from headrace.surfaces.flags.names import parse_log
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.web.live_connections import REVOKED

Group = tuple[FlagSet, Delivered | None]
"""Those who want the same flags and have got the same of them are told the same."""

_PORTION = 16
"""Connections that are written to before the time is looked at: links are signed for each."""
_B64 = 3 / 4
"""What base64 makes of a byte, the other way round."""


class NewVersion(msgspec.Struct, frozen=True):
    """A version of a namespace on its way to those who wait for it."""

    live: OpenLog
    manifest: LoadedManifest
    oldest: int
    """The oldest version that is available."""
    key: bytes
    """What signs links to it."""


class VersionNotice(msgspec.Struct, frozen=True):
    """What a group is told of a version."""

    closure: Closure
    delivered: Delivered
    """What they have then."""
    delta: bytes = b""
    """The event; empty: they are to fetch a snapshot."""
    chunked: bytes = b""
    """The same as it goes over the wire in chunks."""
    size_bytes: int = 0
    """Of the snapshot, before it is packed."""
    is_pruned: bool = False
    """Whether there is no delta since what they have is not available any more."""


class _Waiting:
    """Who waits for the newest version of a namespace."""

    __slots__ = ("live", "next", "served")

    def __init__(self, live: OpenLog) -> None:
        self.live = live
        self.next: dict[FollowedNamespace, None] = {}
        self.served: dict[FollowedNamespace, None] = {}
        """Those whom a version is just brought to."""


class Deliveries:
    """The versions that are on their way, of all namespaces."""

    def __init__(
        self,
        store: ManifestStore,
        metrics: StreamMetrics,
        *,
        files_max: int,
        has_ended: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._engine = store.engine
        self._metrics = metrics
        self._files_max = files_max
        """Files that a delta may change."""
        self._has_ended = has_ended
        """Whether the credential of a principal is not good any more."""
        self._waiting: dict[int, _Waiting] = {}
        self._turn = asyncio.Lock()
        """Held by who writes to connections."""
        self._deltas: SizedCache[tuple[int, FlagSet, int, int]] = SizedCache(DELTAS_KEPT_BYTES)
        """By log, flags and both versions; empty where there is none that may be sent."""

    def ask(self, hub: Hub, each: FollowedNamespace) -> None:
        """Tell a connection of the newest version of a namespace, unless it knows it."""
        live = each.live
        if live is None:
            return
        waiting = self._waiting.get(live.log.id)
        if waiting is None:
            waiting = self._waiting[live.log.id] = _Waiting(live)
            hub.tasks.start(self._serve(waiting), partial(_fail, waiting))
        waiting.next[each] = None

    async def _serve(self, waiting: _Waiting) -> None:
        live = waiting.live
        try:
            while waiting.next and not is_gone(self._engine, live):
                waiting.served, waiting.next = waiting.next, {}
                version = live.visible
                try:
                    await self._bring(live, version, waiting.served)
                except Refused as refused:
                    if is_gone(self._engine, live):
                        return  # its followers hear of that
                    if refused.code is not Code.GONE or live.visible == version:
                        raise
                    # So many versions came meanwhile that this one is gone: take the newest.
                    waiting.next = waiting.served | waiting.next
        finally:
            del self._waiting[live.log.id]

    async def _bring(
        self, live: OpenLog, number: int, served: Mapping[FollowedNamespace, None]
    ) -> None:
        """Tell all of these of a version."""
        version = NewVersion(
            live,
            await self._store.manifests.load(live, number),
            await self._store.versions.oldest(live),
            await self._store.keys.newest(),
        )
        groups: dict[Group, list[FollowedNamespace]] = {}
        for each in served:
            if each.live is live:
                groups.setdefault((each.link.flags, each.delivered), []).append(each)
        # Closed here, should the version be gone in the middle of it.
        async with aclosing(slices(groups.items(), SLICE_MS, 0)) as sliced:
            async for (flags, before), members in sliced:
                notice = await self._prepare(version, flags, before)
                if notice is not None:
                    await self._send_all(version, members, notice)

    # --- what is told -----------------------------------------------------------------------------

    async def _prepare(
        self, version: NewVersion, flags: FlagSet, before: Delivered | None
    ) -> VersionNotice | None:
        """What is told to those who have this; None if nothing changed for them."""
        live = version.live
        closure = self._store.closures.of(live, version.manifest, flags)
        delivered = Delivered(live.log.id, closure.version, closure.hash)
        is_pruned = False
        if before is not None and before.log == live.log.id:
            if before.closure_hash == closure.hash:
                return None
            delta = None
            if before.version >= version.oldest:
                delta = await self._delta(version, flags, before, closure)
            if delta:
                return VersionNotice(closure, delivered, delta, chunk(delta))
            is_pruned = delta is None
        size_bytes = self._store.tarballs.measure(closure)
        return VersionNotice(closure, delivered, size_bytes=size_bytes, is_pruned=is_pruned)

    async def _delta(
        self, version: NewVersion, flags: FlagSet, before: Delivered, closure: Closure
    ) -> bytes | None:
        """An event that says what changed; empty if that is too much for one, None if what they
        have is not available any more.
        """
        live = version.live
        key = (live.log.id, flags, before.version, closure.version)
        known: bytes | None = self._deltas.get(key)
        if known is None:
            try:
                known = await self._make_delta(version, flags, before, closure)
            except Refused as refused:
                if refused.code is not Code.GONE or live.visible > closure.version:
                    raise  # else it is the version before, whose time is up since we looked
                return None
            self._deltas.put(key, known, len(known) + flags.size_bytes)
        return known

    async def _make_delta(
        self, version: NewVersion, flags: FlagSet, before: Delivered, closure: Closure
    ) -> bytes:
        live, manifest = version.live, version.manifest
        earlier = await self._store.manifests.load(live, before.version)
        old = self._store.closures.of(live, earlier, flags)
        changes = diff(old, closure, earlier.digests, manifest.digests)
        for change in changes:
            self._metrics.churned(change.op)
        wanted = {change.digest for change in changes if change.digest is not None}
        content_bytes = sum(self._engine.contents.sizes_of(wanted))
        if len(changes) > self._files_max or content_bytes > DELTA_BYTES_MAX * _B64:
            return b""
        contents = await self._engine.contents.read(wanted)
        if len(contents) < len(wanted):
            raise Refused(Code.GONE, f"version {closure.version} is not available any more")
        _, namespace = parse_log(live.log.name)
        data = encode_delta(namespace, before, closure, changes, contents)
        if len(data) > DELTA_BYTES_MAX:
            return b""
        return frame(b"version", namespace, closure.version, data)

    async def _send_all(
        self, version: NewVersion, members: list[FollowedNamespace], notice: VersionNotice
    ) -> None:
        """Bring a version to all who are told the same of it, in slices.

        One namespace at a time: where many have something to tell, each would take its slice of
        every round of the loop.
        """
        async with (
            self._turn,
            aclosing(slices(batches(members, lambda _: 1, _PORTION), SLICE_MS, 0)) as portions,
        ):
            async for portion in portions:
                for each in portion:
                    self._send(version, each, notice)

    def _send(self, version: NewVersion, each: FollowedNamespace, notice: VersionNotice) -> None:
        """Bring a version to one connection, as it is now."""
        stream, link = each.stream, each.link
        if stream.closed or each.live is not version.live:
            return
        if stream.blocked:
            each.is_behind = True  # it is told of all that came when it has drained
            return
        if self._has_ended(link.principal):
            stream.end(REVOKED)
            return
        before, each.delivered = each.delivered, notice.delivered
        if notice.delta:
            each.sent_inline = True
            stream.tell(notice.chunked if stream.chunked else notice.delta)
            self._metrics.sent("version", "inline")
            return
        number = notice.closure.version
        url = link.sign(version.key, number, self._engine.clock.now_ms())
        reason = _resync_reason(each, before, notice)
        if reason is None:
            name, kind = b"version", "snapshot"
            data = encode_snapshot(link.namespace, before, notice.closure, url, notice.size_bytes)
        else:
            name, kind = b"resync", str(reason)
            data = encode_resync(link.namespace, number, reason, url)
        stream.tell(stream.wrap(frame(name, link.namespace, number, data)))
        self._metrics.sent(name.decode(), kind)


def _resync_reason(
    each: FollowedNamespace, before: Delivered | None, notice: VersionNotice
) -> ResyncReason | None:
    """Why a client is to abandon what it has, if it is."""
    if before is not None and before.log != notice.delivered.log:
        return "unknown_since"
    return "version_too_old" if notice.is_pruned and each.sent_inline else None


def _fail(waiting: _Waiting) -> None:
    """A version cannot be told: clients come again, and begin with a snapshot."""
    for each in (*waiting.served, *waiting.next):
        each.stream.end(StreamFailed(500, "a version cannot be read at the moment"))
