"""Contents in operation: bytes that are kept once in a log of the server's own, by their SHA-256,
and named by versions in other logs.

A version, the contents that are new with it and its references are one frame: a crash leaves all of
it or nothing. So are references that end and the deletion of contents that nobody names any more.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from io import BytesIO
from itertools import accumulate

import msgspec

from headrace.core import contents as core_contents
from headrace.core import log as core_log
from headrace.core import ranges, supersession
from headrace.core import state as core_state
from headrace.core.batching import batches
from headrace.core.config import Durability, LogConfig
from headrace.core.contents import Contents
from headrace.core.entry import Append, Create, Entry
from headrace.core.errors import Code, Refused
from headrace.core.limits import RECORD_OVERHEAD_BYTES, SLICE_MS
from headrace.core.log import Log, check_owner
from headrace.core.owners import FLAGS, FLAGS_CONTENTS, SYSTEM
from headrace.core.record import Drafts, Texts
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.logs.control import Logs
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog

_CONFIG = LogConfig(durability=Durability.FSYNC, auto_create=False)
_MEDIA = "application/octet-stream"
_READ_STEP = 64
_JOINED_STEP_BYTES = 256 << 10
"""Contents that are copied before the time is looked at."""


class ContentsMissing(Exception):
    """A version names contents that are neither there nor brought with it; nothing changed.

    They may have been there when somebody looked, and gone with the last version that named them.
    """

    def __init__(self, digests: set[bytes]) -> None:
        super().__init__(f"{len(digests)} contents are missing")
        self.digests = digests


class JoinedContents(msgspec.Struct, frozen=True):
    """Contents in one piece, as a frame takes them."""

    digests: list[bytes]
    drafts: Drafts


class ContentStore:
    """The contents of one engine, and how versions come to name them and cease to."""

    def __init__(self, kernel: Kernel, fetcher: Fetcher, logs: Logs) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._logs = logs

    @property
    def held(self) -> Contents | None:
        """What is there; nothing while there has never been anything."""
        log = self._kernel.state.by_name.get(FLAGS_CONTENTS)
        return log.contents if log is not None else None

    def __len__(self) -> int:
        held = self.held
        return 0 if held is None else len(held)

    @property
    def size_bytes(self) -> int:
        """What the records of all contents count for."""
        log = self._kernel.state.by_name.get(FLAGS_CONTENTS)
        return 0 if log is None else log.size_bytes

    def missing(self, wanted: Iterable[bytes]) -> set[bytes]:
        """Those of these contents that are not there."""
        return core_contents.missing(self.held, wanted)

    def sizes_of(self, digests: Iterable[bytes]) -> list[int]:
        """How many bytes each of these contents has; refuses when one is gone."""
        held = self.held or Contents()
        try:
            return [held.size_of(digest) - RECORD_OVERHEAD_BYTES for digest in digests]
        except KeyError:
            raise Refused(Code.GONE, "a content is not kept any more") from None

    def place_of(self, digest: bytes) -> int:
        """Where a content lies among the others, from the oldest to the newest; 0 if it is gone."""
        held = self.held
        return 0 if held is None else held.seq_of(digest) or 0

    def held_from(self, live: OpenLog) -> int:
        """The oldest version in this log whose contents are all there; 0 when it has none."""
        return core_contents.held_from(self.held, live.log.id)

    # --- reading ---------------------------------------------------------------------------------

    async def read(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """These contents; those that are gone by now are left out.

        What memory holds is copied in slices; the rest is read from segments in one go, in the
        order it lies there.
        """
        log = self._kernel.state.by_name.get(FLAGS_CONTENTS)
        if log is None or log.contents is None:
            return {}
        held = log.contents
        wanted = {seq: digest for digest in digests if (seq := held.seq_of(digest)) is not None}
        live, found = self._kernel.open_logs[log.id], dict[bytes, bytes]()
        sealed: list[int] = []
        portions = batches(sorted(wanted), lambda _: 1, _READ_STEP)
        async with aclosing(slices(portions, SLICE_MS, 0)) as sliced:
            async for seqs in sliced:
                # What was in memory a slice ago may not be any more.
                at = bisect_left(seqs, live.tail.start)
                sealed += seqs[:at]
                for piece in self._fetcher.fetch_now(live, seqs[at:]) or ():
                    for pick in piece.picks:
                        found[wanted[piece.block.seq_at(pick)]] = piece.block.data_at(pick)
        if sealed:
            parts = list(ranges.pairs(ranges.from_seqs(sealed)))
            for seq, data in await self._fetcher.sealed(self._read_sealed, log, parts):
                found[wanted[seq]] = data
        return found

    def _read_sealed(self, log: Log, parts: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
        blocks = self._fetcher.segments.parts(log, parts)
        return [
            (block.seq_at(at), block.data_at(at)) for block in blocks for at in range(block.count)
        ]

    # --- naming ----------------------------------------------------------------------------------

    async def join(self, contents: Mapping[bytes, bytes]) -> JoinedContents:
        """Contents in one piece, put together in slices: a manifest may have many megabytes."""
        digests, data, ends = sorted(contents), BytesIO(), array("I")
        portions = batches(digests, lambda each: len(contents[each]), _JOINED_STEP_BYTES)
        async with aclosing(slices(portions, SLICE_MS, 0)) as sliced:
            async for portion in sliced:
                for digest in portion:
                    data.write(contents[digest])
                    ends.append(data.tell())
        return _joined(digests, data.getvalue(), ends)

    def commit(
        self,
        live: OpenLog,
        version: Drafts,
        taken: Sequence[bytes],
        contents: Mapping[bytes, bytes],
        now_ms: int,
        joined: JoinedContents | None = None,
    ) -> asyncio.Future[None]:
        """Append a version that names contents, and those of them that are not there yet; durable
        when what this returns is done, and then readers may see it.

        Contents that were `joined` before are not put together again, if all of them are needed.
        Raises `ContentsMissing`, or refuses, and nothing has changed.
        """
        kernel = self._kernel
        kernel.check_open()
        kernel.check_alive(live)
        check_owner(live.log, FLAGS)
        needed = self.missing(taken)
        if not needed <= contents.keys():
            raise ContentsMissing(needed - contents.keys())
        store, created = self._store(now_ms)
        parts = _put_together(needed, contents, joined)
        blocks = core_log.all_numbered(store, [part.drafts for part in parts], now_ms)
        added = [digest for part in parts for digest in part.digests]
        sizes = [size for block in blocks for size in block.sizes()]
        first = blocks[0].first if blocks else 0
        refer = core_contents.name(
            store.contents, store.id, live.log.id, taken, added, first, sizes
        )
        admitted = supersession.append(live.log, live.keyed, version, None, now_ms)
        kernel.caps.check_growth(kernel.state, admitted.growth_bytes + sum(sizes))
        brought = [Append(store.id, block) for block in blocks]
        entries: list[Entry] = [*created, *brought, refer, admitted.append]
        position = kernel.commit(entries, sync=True, together=True)
        ends = [(live, admitted.append.block.last)]
        if blocks:
            ends.append((kernel.open_logs[store.id], blocks[-1].last))
        return kernel.show_when_committed(position, ends)[live.log.id]

    def _store(self, now_ms: int) -> tuple[Log, list[Create]]:
        """The log of contents; before anything was in it, as it will be, and its creation."""
        state = self._kernel.state
        if (log := state.by_name.get(FLAGS_CONTENTS)) is not None:
            return log, []
        create = core_state.create(state, FLAGS_CONTENTS, SYSTEM, _CONFIG, now_ms)
        return core_state.new_log(create), [create]

    def release(self, live: OpenLog, released: Sequence[bytes], oldest: int) -> int:
        """Versions before `oldest` need their contents no more: end so many references, and delete
        what nobody names any more. Returns the position to wait for.
        """
        kernel = self._kernel
        kernel.check_writable()
        kernel.check_alive(live)
        entries = self._releasing(live, released, oldest)
        return kernel.commit(entries, sync=True, together=True)

    async def drop(self, live: OpenLog, released: Sequence[bytes]) -> None:
        """Remove a log with all its versions, and what only they named; durable when this returns.

        `released` are all references it has; nobody may append to it meanwhile.
        """
        dropped = await self._logs.drop(
            live.log.name,
            if_empty=False,
            owner=FLAGS,
            beside=lambda live: self._releasing(live, released, 0) if self.held_from(live) else (),
        )
        if dropped is None:
            raise core_state.not_found(live.log.name)

    def _releasing(self, live: OpenLog, released: Sequence[bytes], oldest: int) -> list[Entry]:
        store = self._kernel.state.by_name[FLAGS_CONTENTS]
        assert store.contents is not None, "whoever holds something has named it"
        entry, delete = core_contents.release(
            store.contents, store.id, live.log.id, released, oldest
        )
        return [entry] if delete is None else [entry, delete]


def _put_together(
    needed: set[bytes], contents: Mapping[bytes, bytes], joined: JoinedContents | None
) -> list[JoinedContents]:
    """The contents that are needed, in as few pieces as there are."""
    parts: list[JoinedContents] = []
    if joined is not None and joined.digests and needed.issuperset(joined.digests):
        parts.append(joined)
        needed = needed.difference(joined.digests)
    if needed:
        digests = sorted(needed)
        datas = [contents[digest] for digest in digests]
        parts.append(_joined(digests, b"".join(datas), array("I", accumulate(map(len, datas)))))
    return parts


def _joined(digests: list[bytes], data: bytes, ends: array[int]) -> JoinedContents:
    keys: Texts = [digest.hex() for digest in digests]
    return JoinedContents(digests, Drafts(data, ends.tobytes(), keys=keys, media=_MEDIA))
