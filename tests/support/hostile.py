"""A disk on its worst day: forgets what was not synced, undoes names, fails calls, dies anywhere.

`HostileDisk` is one process's view of a `World`, the bytes that outlive processes. A view that
crashed does nothing more; `kill` and `lose_power` give a new view of what is left, on a copy, so
that one crash can be survived in many ways.

A sync that failed leaves its pages clean: no later sync writes them, and the cache may drop them at
any time, so that what was read once is not there the next time. A folder is a name in the one above
it, and the data directory itself is no exception: without a sync there, it goes with all it holds.
(A folder sync that fails may be tried again: file systems with a journal of their own either keep
such a change for the next commit or take no more changes at all.)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from random import Random
from threading import Lock
from typing import Any

import pyarrow as pa

from headrace.formats.layout import JOURNAL, TEMPORARY

PAGE_BYTES = 64
"""Small, so that even a short frame lies on several pages."""


BLANK_BYTES = 5 * PAGE_BYTES
"""A file is blanked in pieces, each synced."""

HARMLESS = frozenset(
    {
        "list",
        "exists",
        "size",
        "modified_ms",
        "read",
        "open_read",
        "open_blank",
        "open",
        "close",
        "lock",
    }
)
"""Calls that change nothing: to die there is to die at the next one that does."""


class Crash(BaseException):
    """The process is no more. Not an Exception: nothing may catch it and go on."""


class Survival(Enum):
    """What becomes of unsynced bytes and names when the power goes."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"
    PAGES = "pages"


class _Content:
    """A file without its names: what programs see, and what the platters hold."""

    def __init__(self) -> None:
        self.cached = bytearray()
        self.stable = bytearray()
        self.dirty: list[tuple[int, int]] = []
        self.abandoned: list[tuple[int, int]] = []  # a sync failed: clean in the cache, not on disk
        self.emptied = False
        self.unseen = False
        """Writing back failed with nobody there to be told; the next sync says so, once."""

    def clone(self) -> _Content:
        twin = _Content()
        twin.cached, twin.stable = self.cached[:], self.stable[:]
        twin.dirty, twin.abandoned = self.dirty[:], self.abandoned[:]
        twin.emptied, twin.unseen = self.emptied, self.unseen
        return twin

    def read(self) -> bytes:
        """What a program reads; it may be the last to see what no sync brought to the disk."""
        seen = bytes(self.cached)
        self.evict()
        return seen

    def evict(self, random: Random | None = None) -> None:
        """The cache drops pages that it takes for clean: all that a sync failed on, or some."""
        pages = [page for low, high in self.abandoned for page in _pages(low, high)]
        kept = [page for page in pages if random is not None and random.random() < 0.5]
        stable = b"" if self.emptied else self.stable
        for low, high in set(pages) - set(kept):
            self.cached[low:high] = stable[low:high].ljust(high - low, b"\0")
        self.abandoned = kept

    def empty(self) -> None:
        self.emptied = bool(self.stable)
        self.cached.clear()
        self.dirty.clear()
        self.abandoned.clear()

    def write(self, start: int, data: bytes) -> None:
        """New bytes in the cache; the platters keep the old ones until they land, part by part."""
        if data:
            stop = start + len(data)
            self.dirty.append((start, stop))
            self.cached[start:stop] = data
            cuts = ((low, min(high, start), max(low, stop), high) for low, high in self.abandoned)
            halves = (half for a, b, c, d in cuts for half in ((a, b), (c, d)))
            self.abandoned = [(low, high) for low, high in halves if low < high]

    def sync(self) -> None:
        if self.emptied:
            self.stable.clear()
            self.emptied = False
        for start, stop in self.dirty:
            self._land(start, stop)
        self.dirty.clear()

    def fail_sync(self) -> None:
        """As Linux does it: the pages count as clean afterwards, and no later sync writes them."""
        self.abandoned += self.dirty
        self.dirty.clear()

    def lose_power(self, survival: Survival, random: Random) -> None:
        pending = sorted(self.dirty + self.abandoned)
        if survival is not Survival.NOTHING and self.emptied:
            self.stable.clear()
        match survival:
            case Survival.NOTHING:
                pending = []
            case Survival.PREFIX:
                stop = random.randint(pending[0][0], pending[-1][1]) if pending else 0
                pending = [(low, min(high, stop)) for low, high in pending if low < stop]
            case Survival.PAGES:
                pages = [page for low, high in pending for page in _pages(low, high)]
                self._lengthen(random, pages)
                pending = [page for page in pages if random.random() < 0.5]
        for low, high in pending:
            self._land(low, high)
        self.cached = bytearray(self.stable)
        self.dirty.clear()
        self.abandoned.clear()
        self.emptied = self.unseen = False

    def _lengthen(self, random: Random, pages: list[tuple[int, int]]) -> None:
        """The length may reach the disk before the bytes do: zeroes where they should be."""
        if pages and random.random() < 0.5:
            self.stable.extend(bytes(max(0, pages[-1][1] - len(self.stable))))

    def _land(self, start: int, stop: int) -> None:
        self.stable.extend(bytes(max(0, stop - len(self.stable))))
        self.stable[start:stop] = self.cached[start:stop]


def _pages(start: int, stop: int) -> Iterable[tuple[int, int]]:
    while start < stop:
        end = min(stop, (start // PAGE_BYTES + 1) * PAGE_BYTES)
        yield start, end
        start = end


class _Folder:
    """Names as programs see them, as they are on disk, and the changes between."""

    def __init__(self) -> None:
        self.names: _Names = {}
        self.stable: _Names = {}
        self.changes: list[tuple[str, str, _Content | _Folder | None]] = []  # (old, new, what)

    def change(self, old: str, new: str, what: _Content | _Folder | None) -> None:
        """Take away `old`, give `what` the name `new`; either may be empty."""
        self.changes.append((old, new, what))
        _change(self.names, old, new, what)

    def sync(self) -> None:
        self.stable = dict(self.names)
        self.changes.clear()

    def lose_power(self, survival: Survival, random: Random) -> None:
        changes = self.changes
        match survival:
            case Survival.NOTHING:
                changes = []
            case Survival.PREFIX:
                changes = changes[: random.randint(0, len(changes))]
            case Survival.PAGES:
                changes = [change for change in changes if random.random() < 0.5]
        for change in changes:
            _change(self.stable, *change)
        self.names = dict(self.stable)
        self.changes = []


_Names = dict[str, _Content | _Folder]


def _change(names: _Names, old: str, new: str, what: _Content | _Folder | None) -> None:
    names.pop(old, None)
    if new and what is not None:
        names[new] = what


_ROOT = "data"


class World:
    """The bytes that outlive processes."""

    def __init__(self) -> None:
        self.above = _Folder()
        """Where the data directory is, once somebody has made it."""
        self.boot = 1
        self.locked: set[str] = set()
        self.torn: tuple[_Content, int, bytes] | None = None
        """The write that is under way: where in which file, and what."""

    def clone(self) -> World:
        """A world of its own; a file with two names still is one file."""
        twins: dict[int, _Content | _Folder] = {}

        def twin(what: _Content | _Folder | None) -> Any:
            if isinstance(what, _Content) and id(what) not in twins:
                twins[id(what)] = what.clone()
            elif isinstance(what, _Folder) and id(what) not in twins:
                held = twins[id(what)] = _Folder()
                held.names = {name: twin(content) for name, content in what.names.items()}
                held.stable = {name: twin(content) for name, content in what.stable.items()}
                held.changes = [(old, new, twin(content)) for old, new, content in what.changes]
            return twins.get(id(what))

        world = World()
        world.boot = self.boot
        world.above = twin(self.above)
        if self.torn is not None:
            world.torn = (twin(self.torn[0]), *self.torn[1:])
        return world

    def walk(self) -> Iterator[tuple[str, _Content | _Folder]]:
        """Everything that has a name, by its path: folders before what is in them.

        Which names a folder has is looked up after it was handed out.
        """
        waiting: list[tuple[str, _Content | _Folder]] = [("", self.above)]
        while waiting:
            path, what = waiting.pop()
            yield path, what
            if isinstance(what, _Folder):
                waiting += ((f"{path}/{name}", inner) for name, inner in what.names.items())

    @property
    def files(self) -> dict[str, _Content]:
        return {path: what for path, what in self.walk() if isinstance(what, _Content)}

    def contents(self) -> frozenset[tuple[str, bytes, bytes]]:
        """Every file by its path, as seen and as stable; for comparing."""
        return frozenset(
            (path, bytes(content.cached), bytes(content.stable))
            for path, content in self.files.items()
        )


class HostileDisk:
    """One process's disk. Every call has a number, from 0; `crash_at` and `faults` go by it."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.calls = 0
        self.trace: list[tuple[str, str]] = []
        self.crash_at: int | None = None
        self.faults: dict[int, int] = {}
        """Call number → errno it fails with. A write that fails has written half."""
        self.before: Callable[[int, str, str], None] = lambda number, kind, path: None
        """Told number, kind and path of each call before it happens."""
        self.sync_failed = False
        """A sync of the journal failed: what it covered may be gone while the machine goes on."""
        self._dead = False
        self._one_step = Lock()
        """Held from the look at a name to its change: several threads may want it."""

    # What happens to it

    def crash(self) -> None:
        """From here on every call raises Crash."""
        self._dead = True

    def copy(self) -> HostileDisk:
        """This moment, to be crashed on its own."""
        twin = HostileDisk(self.world.clone())
        twin._dead = True
        return twin

    def kill(self, torn: Random | None = None, evicted: Random | None = None) -> HostileDisk:
        """What the next process finds after this one was killed: everything written.

        When it was killed inside a write, `torn` draws how much of that write is there; after a
        sync that failed, `evicted` draws which of its pages are still in the cache.
        """
        self._dead = True
        world = self.world.clone()
        if torn and world.torn:
            content, start, data = world.torn
            content.write(start, data[: torn.randint(0, len(data))])
        world.torn = None
        for content in world.files.values() if evicted else ():
            content.evict(evicted)
        return HostileDisk(world)

    def fail_to_write_back(self, random: Random) -> HostileDisk:
        """Killed, and what it left unsynced did not reach the disk either; the machine goes on."""
        left = self.kill()
        for content in left.world.files.values():
            if content.dirty:
                content.fail_sync()
                content.unseen = True
                content.evict(random)
        return left

    def lose_power(self, survival: Survival, random: Random) -> HostileDisk:
        """What is found when the power is back."""
        self._dead = True
        world = self.world.clone()
        world.boot += 1
        world.torn = None
        settled: set[int] = set()
        for _, what in world.walk():
            if id(what) not in settled:
                what.lose_power(survival, random)
                settled.add(id(what))
        return HostileDisk(world)

    def _call(self, kind: str, path: str) -> None:
        if self._dead:
            raise Crash(f"{kind} {path} after the crash")
        number = self.calls
        self.before(number, kind, path)
        self.calls += 1
        self.trace.append((kind, path))
        if number == self.crash_at:
            self._dead = True
            raise Crash(f"call {number}: {kind} {path}")
        if code := self.faults.get(number):
            raise OSError(code, os.strerror(code), path)

    def _put(self, kind: str, path: str, content: _Content, start: int, data: bytes) -> None:
        """One write, which a crash or a full disk may cut."""
        if not self._dead:
            self.world.torn = (content, start, data)
        try:
            self._call(kind, path)
        except OSError:
            content.write(start, data[: len(data) // 2])
            raise
        self.world.torn = None
        content.write(start, data)

    def _sync_content(self, kind: str, path: str, content: _Content) -> None:
        try:
            self._call(kind, path)
            if content.unseen:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        except OSError:
            self.sync_failed |= path.endswith(".log")
            content.unseen = False
            content.fail_sync()
            raise
        content.sync()

    # The Disk protocol

    def boot_id(self) -> str:
        return f"boot-{self.world.boot}"

    def make_folder(self, path: str) -> None:
        self._call("make_folder", path)
        folder = self.world.above
        for name in (_ROOT, *filter(None, path.split("/"))):
            if name not in folder.names:
                folder.change("", name, _Folder())
            folder = _as_folder(folder.names[name])

    def list(self, folder: str, *, unfinished: bool = False) -> list[str]:
        self._call("list", folder)
        names = [*self._folder(folder).names]  # at once, as other threads may change it
        return sorted(name for name in names if name.endswith(TEMPORARY) is unfinished)

    def exists(self, path: str) -> bool:
        self._call("exists", path)
        try:
            folder, name = self._place(path)
        except FileNotFoundError:
            return False
        return name in folder.names

    def size(self, path: str) -> int:
        self._call("size", path)
        return len(self._content(path).cached)

    def modified_ms(self, path: str) -> int:
        self._call("modified_ms", path)
        self._content(path)
        return 0

    def read(self, path: str) -> bytes:
        self._call("read", path)
        return self._content(path).read()

    def map(self, path: str) -> memoryview:
        return memoryview(self.read(path))

    def open_read(self, path: str) -> pa.NativeFile:
        self._call("open_read", path)
        return pa.BufferReader(self._content(path).read())

    def create_append(self, path: str) -> HostileFile:
        self._call("create_append", path)
        folder, name = self._place(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "exists", path)
        content = _Content()
        folder.change("", name, content)
        return HostileFile(self, path, content)

    def open_blank(self, path: str) -> HostileFile:
        self._call("open_blank", path)
        return HostileFile(self, path, self._content(path))

    def blank(self, path: str, size_bytes: int) -> None:
        self._call("open", path)
        content = self._open_or_create(path)
        size_bytes = max(size_bytes, len(content.cached))
        for start in range(0, size_bytes, BLANK_BYTES):
            piece = bytes(min(BLANK_BYTES, size_bytes - start))
            self._put("blank", path, content, start, piece)
            self._sync_content("sync", path, content)

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        data = b"".join(parts)
        self._call("truncate", path)
        content = self._open_or_create(path)
        content.empty()
        self._put("write", path, content, 0, data)
        self._sync_content("sync", path, content)

    def _open_or_create(self, path: str) -> _Content:
        folder, name = self._place(path)
        if name not in folder.names:
            folder.change("", name, _Content())
        return self._content(path)

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        content = self._content(old)
        folder, old_name = self._place(old)
        target, new_name = self._place(new)
        assert folder is target, "a rename across folders has no crash rule here"
        folder.change(old_name, new_name, content)

    def link(self, old: str, new: str) -> None:
        self._call("link", new)
        content = self._content(old)
        folder, name = self._place(new)
        with self._one_step:
            if name in folder.names:
                raise FileExistsError(errno.EEXIST, "exists", new)
            folder.change("", name, content)

    def remove(self, path: str) -> None:
        self._call("remove", path)
        folder, name = self._place(path)
        with self._one_step:
            if name in folder.names:
                folder.change(name, "", None)

    def sync(self, path: str) -> None:
        self._sync_content("sync", path, self._content(path))

    def sync_folder(self, folder: str) -> None:
        try:
            self._call("sync_folder", folder)
        except OSError:
            self.sync_failed |= folder == JOURNAL
            raise
        self._folder(folder).sync()

    def sync_root(self) -> None:
        self._call("sync_root", "")
        self.world.above.sync()

    def lock(self, path: str) -> None:
        self._call("lock", path)
        if path in self.world.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "held by another", path)
        folder, name = self._place(path)
        if name not in folder.names:
            folder.change("", name, _Content())
        self.world.locked.add(path)

    def _folder(self, path: str) -> _Folder:
        try:
            folder = _as_folder(self.world.above.names[_ROOT])
            for name in filter(None, path.split("/")):
                folder = _as_folder(folder.names[name])
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path) from None
        return folder

    def _place(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _content(self, path: str) -> _Content:
        folder, name = self._place(path)
        try:
            content = folder.names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None
        assert isinstance(content, _Content)
        return content


def _as_folder(what: _Content | _Folder) -> _Folder:
    assert isinstance(what, _Folder)
    return what


class HostileFile:
    """A file of a hostile disk that is written from its start to its end."""

    def __init__(self, disk: HostileDisk, path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._end = 0

    def write(self, parts: Sequence[bytes]) -> None:
        data = b"".join(parts)
        self._disk._put("append", self._path, self._content, self._end, data)
        self._end += len(data)

    def sync(self) -> None:
        self._disk._sync_content("sync", self._path, self._content)

    def close(self) -> None:
        self._disk._call("close", self._path)

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a hostile file has no number")
