"""Versions of manifests in operation: stored, read back, available for a while, and released.

A version is a row in the log of its namespace, and its number is the row's seq; rows stay while the
namespace does. Contents of files are kept once by the engine (`engine.contents`), with a reference
for each lifetime of a path: from the version that brought it to the one that took it away. A
reference ends when no version before the latter is available any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from hashlib import sha256
from weakref import WeakValueDictionary

import msgspec

from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import (
    DROPPED_REFERENCES_MAX,
    LISTED_ROWS_BYTES_MAX,
    RELEASED_BYTES_MAX,
    RELEASED_ROWS_MAX,
    TREES_KEPT_BYTES,
)
from headrace.core.record import draft
from headrace.core.sized_cache import SizedCache
from headrace.engine.engine import Engine
from headrace.engine.flow.time_slices import slices
from headrace.engine.open_log import OpenLog
from headrace.observe import log_line
from headrace.surfaces.flags.errors import VERSION_CONFLICT, VERSION_NOT_FOUND
from headrace.surfaces.flags.version_rows import (
    EMPTY,
    Paths,
    Tree,
    VersionHead,
    VersionRow,
    VersionSummary,
    brought,
    decode_head,
    decode_paths,
    decode_row,
    encode_row,
    ended,
    follow,
    next_version,
)

_NS = 1_000_000
TREE_PATH_BYTES = 250
"""What a path of a tree takes of memory, about."""
_SWEEP_S = 600.0
"""How often to look for versions that grew old."""
_LISTED_STEP = 16
"""Rows that are read at a time for a list."""


class Retention(msgspec.Struct, frozen=True):
    """How long versions are available: while they are among the newest, or young."""

    versions: int = 100
    age_ms: int = 30 * 86_400_000


class ContentMismatch(Exception):
    """A content is not what its digest says."""


class ManifestVersions:
    """The versions of all namespaces."""

    def __init__(self, engine: Engine, retention: Retention) -> None:
        self._engine = engine
        self._retention = retention
        self._trees: SizedCache[tuple[int, int]] = SizedCache(TREES_KEPT_BYTES, kept_min=1)
        """Trees that were made lately, by log and version; none of them ever changes."""
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._young: dict[int, tuple[int, int]] = {}
        """Namespace → the oldest version that was found to be young, and its time."""
        self._due: set[int] = set()
        """Namespaces that may name contents which they need no more."""
        self._woken = asyncio.Event()

    # --- storing ---------------------------------------------------------------------------------

    def missing(self, tree: Mapping[str, bytes]) -> set[bytes]:
        """Those contents of a tree that are not stored now."""
        return self._engine.contents.missing(tree.values())

    async def put(
        self,
        live: OpenLog,
        tree: Mapping[str, bytes],
        contents: Mapping[bytes, bytes],
        about: VersionSummary,
        if_version: int | None = None,
    ) -> VersionRow:
        """Make a tree the next version, with those of its contents that were missing; durable when
        this returns, and before that nobody sees it.

        With `if_version`, only behind that one: of many who say the same, one succeeds. Raises
        `ContentsMissing` when contents went since somebody looked for those that are missing:
        nothing has changed then, and whoever has them asks again.
        """
        engine, log = self._engine, live.log
        await engine.pool.run(_check_contents, contents)
        joined = await engine.contents.join(contents)
        async with self._lock(live):
            if not engine.admission.open:
                await engine.wait_admitted(log.name, None)
            engine.check_alive(live)
            head = log.head
            if if_version is None or if_version == head:
                before = await self._tree(live, head)
                # From here to the commit nobody else has a turn, and nobody else writes here.
                assert log.head == head, log.name
                now_ms = max(engine.clock.now_ms(), log.last_ts_ms)
                new = next_version(before, tree, about, now_ms)
                version = draft([encode_row(new.row)])
                committed = engine.contents.commit(
                    live, version, new.taken, {**contents, **new.stored}, now_ms, joined
                )
                self._keep(live, new.tree)
        if if_version is not None and if_version != head:
            # The version that is there must still be there after a crash.
            await engine.journal.wait_to_tell(engine.journal.tail, sync=True)
            raise version_conflict(head, if_version)
        await committed
        self._due.add(log.id)
        self._woken.set()
        return new.row

    # --- reading ---------------------------------------------------------------------------------

    async def row(self, live: OpenLog, version: int) -> VersionRow:
        """The row of a version, available or not; refuses one that is not there."""
        self._check_there(live, version)
        return await self._row(live, version)

    async def rows(self, live: OpenLog, before: int | None, limit: int) -> list[VersionHead]:
        """Versions below `before`, or the newest, so many at most and the newest first.

        Fewer when they are very large: whoever wants more asks again before the last of them.
        """
        last = live.visible if before is None else min(before - 1, live.visible)
        found: list[VersionHead] = []
        step, left_bytes = _LISTED_STEP, LISTED_ROWS_BYTES_MAX
        while last > 0 and len(found) < limit and left_bytes > 0:
            first = max(1, last + 1 - min(step, limit - len(found)))
            datas = await self._read(live, first, last, left_bytes)
            if len(datas) <= last - first:
                step = (last + 1 - first) // 2  # so many are too large
                continue
            left_bytes -= sum(map(len, datas))
            found += map(decode_head, reversed(datas))
            last = first - 1
        return found

    async def tree(self, live: OpenLog, version: int) -> Paths:
        """The files of a version that is available, by path; not to be changed."""
        await self.check_available(live, version)
        return (await self._tree(live, version)).paths

    async def check_available(self, live: OpenLog, version: int) -> None:
        """Refuse a version that is not there, or whose files are not kept any more."""
        self._check_there(live, version)
        if version < await self.oldest(live):
            raise _unavailable(version)

    async def read(self, paths: Mapping[str, bytes]) -> dict[str, bytes]:
        """The contents of files of a version, by path; refuses when one is not kept any more."""
        contents = await self._engine.contents.read(set(paths.values()))
        try:
            return {path: contents[digest] for path, digest in paths.items()}
        except KeyError:
            message = "the files of this version are not kept any more"
            raise Refused(Code.GONE, message) from None

    def sort_by_place(self, paths: Mapping[str, bytes]) -> list[str]:
        """These files in the order in which their contents lie in the store."""
        return sorted(paths, key=lambda path: self._engine.contents.place_of(paths[path]))

    async def oldest(self, live: OpenLog) -> int:
        """The oldest version that is available now; all later ones are. 0 when there is none."""
        head, held = live.visible, self._engine.contents.held_from(live)
        counted = head - self._retention.versions + 1
        if counted <= max(1, held):
            return held or min(head, 1)  # as nearly always
        # What was released does not come back, should the clock go back.
        return max(1, held, min(counted, head, await self._oldest_young(live)))

    async def _oldest_young(self, live: OpenLog) -> int:
        """The first version that is young enough to be available for that alone."""
        since_ms = self._engine.clock.now_ms() - self._retention.age_ms
        known = self._young.get(live.log.id)
        if known is not None and known[1] > since_ms:
            return known[0]
        version = 1 + await self._engine.reader.seek(live, (since_ms + 1) * _NS)
        if version <= live.visible:
            for piece in await self._engine.fetcher.fetch(live, [version]):
                self._young[live.log.id] = version, piece.block.ts_at(piece.picks[0])
        return version

    def _check_there(self, live: OpenLog, version: int) -> None:
        self._engine.check_alive(live)
        if not 1 <= version <= live.visible:
            raise _unknown(version)

    async def _tree(self, live: OpenLog, version: int) -> Tree:
        """The tree of a version, from memory or from rows, as long as its base is held."""
        if not version:
            return EMPTY
        known: Tree | None = self._trees.get((live.log.id, version))
        if known is not None:
            return known
        row = await self._row(live, version)
        begin = self._newest_kept(live, row.base, version)
        if begin is None:
            begin = await self._base(live, row)
        between = await self._read(live, begin.version + 1, version)
        tree = follow(begin, map(decode_row, between))
        self._keep(live, tree)
        return tree

    def _keep(self, live: OpenLog, tree: Tree) -> None:
        self._trees.put((live.log.id, tree.version), tree, TREE_PATH_BYTES * len(tree.paths))

    def _newest_kept(self, live: OpenLog, first: int, last: int) -> Tree | None:
        """The newest tree at hand of these versions."""
        kept = (self._trees.get((live.log.id, version)) for version in range(last, first - 1, -1))
        return next(filter(None, kept), None)

    async def _base(self, live: OpenLog, row: VersionRow) -> Tree:
        """The whole tree that a row's begins with."""
        if row.base == 1:
            return EMPTY
        base = row if row.base == row.version else await self._row(live, row.base)
        assert base.tree is not None, f"{live.log.name}: version {base.version} has no whole tree"
        digest = bytes.fromhex(base.tree)
        content = (await self._engine.contents.read([digest])).get(digest)
        if content is None:
            raise _unavailable(row.version)
        return Tree(base.version, decode_paths(content), base.version, 0)

    async def _row(self, live: OpenLog, version: int) -> VersionRow:
        return decode_row((await self._read(live, version, version))[0])

    async def _read(
        self, live: OpenLog, first: int, last: int, bytes_max: int | None = None
    ) -> list[bytes]:
        """The rows of these versions, ascending, wherever they lie; no more than so many bytes of
        them, and a little.
        """
        pieces = await self._engine.fetcher.fetch(live, range(first, last + 1), bytes_max)
        rows = [piece.block.data_at(at) for piece in pieces for at in piece.picks]
        if not rows and first <= last:
            self._engine.check_alive(live)  # else nothing takes rows away
            raise AssertionError(f"{live.log.name}: there is no row {first}")
        return rows

    # --- releasing -------------------------------------------------------------------------------

    async def prune(self, live: OpenLog) -> bool:
        """Release contents that only versions name which are not available any more, of so many at
        most; says whether there may be more. Durable when this returns.
        """
        engine = self._engine
        if live.visible - self._retention.versions + 1 <= engine.contents.held_from(live):
            return False  # as nearly always
        async with self._lock(live):
            engine.check_alive(live)
            held, oldest = engine.contents.held_from(live), await self.oldest(live)
            if not held or oldest <= held:
                return False
            reached, position = await self._release_before(live, oldest)
        await engine.journal.wait_synced(position)
        return reached < oldest

    async def _release_before(self, live: OpenLog, oldest: int) -> tuple[int, int]:
        """Release what only versions before this one need, of so many at most; returns how far it
        came, and the position to wait for.
        """
        contents = self._engine.contents
        held = contents.held_from(live)
        upto = min(oldest, held + RELEASED_ROWS_MAX)
        base, base_tree = await self._base_of(live, held)
        released: list[bytes] = []
        for data in await self._read(live, held + 1, upto, RELEASED_BYTES_MAX):
            row = decode_row(data)
            released += ended(row)
            if row.base != base:
                released += base_tree
                base, base_tree = row.base, _tree_of(row)
            reached = row.version
        return reached, contents.release(live, released, reached)

    async def run(self) -> None:
        """Release what is not needed any more, for as long as the server runs: behind uploads, and
        now and then where versions only grow old.
        """
        loop = asyncio.get_running_loop()
        sweep_at = loop.time()
        while True:
            if loop.time() >= sweep_at:
                sweep_at = loop.time() + _SWEEP_S
                held = self._engine.contents.held
                self._due |= held.held_from.keys() if held is not None else set()
            self._woken.clear()
            await self._release_due()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(sweep_at):
                    await self._woken.wait()

    async def _release_due(self) -> None:
        due, self._due = self._due, set()
        async with aclosing(slices(due)) as logs:
            async for log in logs:
                if self._engine.journal.failure is not None:
                    return  # read-only: the next start goes on
                try:
                    await self._release(log)
                except Refused as refused:
                    log_line("warning", "contents are not released yet", problem=str(refused))
                    self._due |= due  # the next upload tries again, or the next round
                    return

    async def _release(self, log: int) -> None:
        """Release all that a namespace needs no more, if it is still there."""
        live = self._engine.open_logs.get(log)
        try:
            while live is not None and await self.prune(live):
                pass
        except Refused as refused:
            if refused.code is not Code.LOG_NOT_FOUND:
                raise
        except (Corrupt, OSError) as error:
            # Others do not wait for it.
            log_line("warning", f"contents of log {log} are not released", problem=str(error))

    async def delete(self, live: OpenLog) -> None:
        """Remove a namespace: its rows, and every content that only it names, in one frame.

        Where that is too much for one, versions but the newest are released before.
        """
        engine = self._engine
        async with self._lock(live):
            engine.check_alive(live)
            released = await self._references(live)
            if released is None:
                while engine.contents.held_from(live) < live.log.head:
                    _, position = await self._release_before(live, live.log.head)
                    await engine.journal.wait_synced(position)
                released = await self._references(live)
                assert released is not None, "one version names no more than it has files"
            await engine.contents.drop(live, released)
            self._young.pop(live.log.id, None)

    async def _references(self, live: OpenLog) -> list[bytes] | None:
        """All that a namespace names, as often as it does; None if that is too much for a frame."""
        held = self._engine.contents.held_from(live)
        if not held:
            return []
        _, released = await self._base_of(live, held)
        released += (await self._tree(live, held)).paths.values()
        while held < live.log.head:
            upto = min(live.log.head, held + RELEASED_ROWS_MAX)
            for data in await self._read(live, held + 1, upto, RELEASED_BYTES_MAX):
                row = decode_row(data)
                released += brought(row)
                held = row.version
            if len(released) > DROPPED_REFERENCES_MAX:
                return None
        return released

    async def _base_of(self, live: OpenLog, version: int) -> tuple[int, list[bytes]]:
        """The base of a version's tree, and the content that is it, if there is one."""
        row = await self._row(live, version)
        base = row if row.base == version else await self._row(live, row.base)
        return row.base, _tree_of(base)

    def _lock(self, live: OpenLog) -> asyncio.Lock:
        """Held by whoever decides on what a namespace holds next."""
        lock = self._locks.get(live.log.id)
        if lock is None:
            lock = self._locks[live.log.id] = asyncio.Lock()
        return lock


def _tree_of(row: VersionRow) -> list[bytes]:
    return [] if row.tree is None else [bytes.fromhex(row.tree)]


def _check_contents(contents: Mapping[bytes, bytes]) -> None:
    for digest, content in contents.items():
        if sha256(content).digest() != digest:
            raise ContentMismatch(f"a content of {len(content)} bytes is not {digest.hex()}")


def version_conflict(current: int, asked: int) -> Refused:
    """Somebody stores behind another version than the current one."""
    message = f"the current version is {current}, not {asked}"
    return VERSION_CONFLICT.refused(message, current_version=current)


def _unknown(version: int) -> Refused:
    return VERSION_NOT_FOUND.refused(f"there is no version {version}", version=version)


def _unavailable(version: int) -> Refused:
    message = f"version {version} is not available any more"
    return Refused(Code.GONE, message, version=version)
