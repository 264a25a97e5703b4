"""The journal: frames in order, committed in groups by one writer.

Everything runs on the event loop except `commit`, which the writer calls: it takes whatever has
been enqueued since the last call, writes it, syncs it if somebody waits for that, and reports how
far it got. The next commit starts when the last one ends; there is no timer, so a group is as large
as the disk is slow.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from headrace.core.entry import Entry
from headrace.core.errors import Code, Refused
from headrace.core.limits import JOURNAL_RETRY_S
from headrace.formats import layout
from headrace.formats.frame import encode_frame, encode_group
from headrace.observe import Histogram, log_line
from headrace.storage import unsynced
from headrace.storage.disk import AppendFile, Buffer, Disk, SyncFailed, passes

SYNC_LATENCY_US = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 1_000_000)


class Stats:
    """What the journal has done; read by the metrics."""

    def __init__(self) -> None:
        self.frames = 0
        self.batches = 0
        self.syncs = 0
        self.bytes_written = 0
        self.rotations = 0
        self.queue_peak = 0
        self.turned_away = 0
        self.sync_latency_us = Histogram(
            "topics_wal_fsync_latency_us", "Time of one sync of the journal.", SYNC_LATENCY_US
        )


class Progress(msgspec.Struct, frozen=True):
    """How far the writer got, or why it cannot go on."""

    written: int
    synced: int
    failure: OSError | None = None
    stall: OSError | None = None
    """Why it has to try again what it was about to do."""


class Writer(Protocol):
    """Runs `commit` somewhere: a thread, or the loop itself in simulations."""

    def wake(self) -> None:
        """There is something to commit."""

    def close(self) -> None:
        """Finish what was enqueued, then stop."""


_Waiter = tuple[int, Callable[[], None] | None, asyncio.Future[None]]


class Journal:
    """Appends entries; tells when they were written and when they were synced."""

    def __init__(self, disk: Disk, position: int) -> None:
        self.stats = Stats()
        self.written = position
        self.synced = position
        self.failure: OSError | None = None
        """Why nothing is written any more."""
        self.stall: OSError | None = None
        """Why nothing can be written at the moment."""
        self._retry: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Future[None]] = set()
        """Waits of those who only want to tell of something."""
        self.spares: deque[str] = deque()
        """Blank files to go on in, where there are any."""
        self._disk = disk
        self.tail = position
        """The position the next frame will have."""
        self.file_start = position
        self._lock = threading.Lock()  # guards the two below: the writer swaps them away
        self._pending: list[Buffer | int] = []  # frames, and positions where a new file starts
        self._frames_pending = 0
        self.reached_by_writer = Progress(position, position)  # its own count, ahead of ours
        self._sync_wanted = position
        self._waiting_written: deque[_Waiter] = deque()
        self._waiting_synced: deque[_Waiter] = deque()
        self._file: AppendFile | None = None
        self._noted = False
        self.loop: asyncio.AbstractEventLoop
        """That it was opened on; to ask for the running one costs a system call."""
        self._writer: Writer | None = None

    def open(self, make_writer: Callable[[Journal, asyncio.AbstractEventLoop], Writer]) -> None:
        """Open the first file and start to write."""
        self._file = self._open(self.tail)
        self.loop = asyncio.get_running_loop()
        self._writer = make_writer(self, self.loop)

    @property
    def pending_bytes(self) -> int:
        return self.tail - self.written

    @property
    def queue_depth(self) -> int:
        return self._frames_pending

    def enqueue(
        self, entries: Sequence[Entry], *, sync: bool = False, together: bool = False
    ) -> int:
        """Put entries in order; returns the position behind them, to wait for.

        A crash leaves all or none of entries that belong `together`.
        """
        if self.failure is not None:
            raise self.refusal()
        frames: list[Buffer] = []
        tail = self.tail  # moves when all of them are encoded: some may fail to be
        if together and len(entries) > 1:
            frames.append(encode_group(entries, tail, self.synced))
            tail += len(frames[0])
        else:
            for entry in entries:
                frame = encode_frame(entry, tail, self.synced)
                frames.append(frame)
                tail += len(frame)
        self.tail = tail
        if sync:
            self._sync_wanted = tail
        count, stats = len(frames), self.stats
        with self._lock:
            self._pending += frames
            self._frames_pending = pending = self._frames_pending + count
        stats.frames += count
        if pending > stats.queue_peak:
            stats.queue_peak = pending
        assert self._writer is not None
        self._writer.wake()
        return tail

    def rotate(self) -> int:
        """Go on in a new file; returns the position where it starts."""
        if self.failure is not None:
            raise self.refusal()
        if self.tail > self.file_start:
            with self._lock:
                self._pending.append(self.tail)
            self.file_start = self.tail
            self._sync_wanted = self.tail
            self.stats.rotations += 1
            assert self._writer is not None
            self._writer.wake()
        return self.tail

    def refusal(self) -> Refused:
        if self.failure is None:
            return Refused(
                Code.STORAGE_UNAVAILABLE,
                "nothing can be written at the moment; try again later",
                cause=str(self.stall),
            )
        return Refused(
            Code.READ_ONLY,
            "the journal could not be written; the server is read-only until it is restarted",
            cause=str(self.failure),
        )

    def wait_written(
        self, position: int, then: Callable[[], None] | None = None
    ) -> asyncio.Future[None]:
        """Done when the operating system has accepted everything below `position`.

        `then` is called at that moment, in journal order, whether or not anybody still waits.
        """
        return self._wait(position, then, self.written, self._waiting_written)

    def wait_synced(
        self, position: int, then: Callable[[], None] | None = None
    ) -> asyncio.Future[None]:
        """Done when everything below `position` is on stable storage; `then` as above."""
        if position > self._sync_wanted:
            self._sync_wanted = position
            if self._writer is not None:
                self._writer.wake()
        return self._wait(position, then, self.synced, self._waiting_synced)

    async def wait_to_tell(self, position: int, *, sync: bool) -> None:
        """Wait for one of both, to tell of what is below; refuses while nothing can be written.

        Whoever changed something waits until that has passed: only then it is known what became of
        it. Who wants to know something can ask again.
        """
        if position <= (self.synced if sync else self.written):
            return
        if self.stall is not None:
            raise self.refusal()
        waiting = self.wait_synced(position) if sync else self.wait_written(position)
        self._telling.add(waiting)
        try:
            await waiting
        finally:
            self._telling.discard(waiting)

    def _wait(
        self,
        position: int,
        then: Callable[[], None] | None,
        reached: int,
        waiting: deque[_Waiter],
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.loop.create_future()
        if position <= reached:
            if then is not None:
                then()
            future.set_result(None)
        elif self.failure is not None:
            future.set_exception(self.refusal())
        else:
            # Positions are asked for in order, but for late-comers that wait for an older one.
            last = waiting[-1][0] if waiting else 0
            waiting.append((max(position, last), then, future))
        return future

    def reached(self, progress: Progress) -> None:
        """On the loop: the writer got this far; wake whoever waited for it."""
        self.written, self.synced = progress.written, progress.synced
        for limit, waiting in (
            (self.written, self._waiting_written),
            (self.synced, self._waiting_synced),
        ):
            while waiting and waiting[0][0] <= limit:
                _, then, future = waiting.popleft()
                # Who wrote goes on first, and what `then` shows is there when that happens: a
                # thousand followers need not be served before the reply.
                if not future.done():
                    future.set_result(None)
                if then is not None:
                    then()
        if progress.failure is not None:
            self._fail(progress.failure)
        elif progress.stall is not self.stall or progress.stall is not None:
            self._note_stall(progress.stall)

    def _note_stall(self, stall: OSError | None) -> None:
        """The writer has to wait for something, or no longer; who waits for it waits on."""
        if self.stall is None:
            log_line("error", "the journal cannot be written, will try again", problem=str(stall))
        elif stall is None:
            log_line("info", "the journal is written again")
        self.stall = stall
        if stall is None:
            return
        for waiting in self._telling:
            if not waiting.done():
                waiting.set_exception(self.refusal())
        if self._retry is None:
            self._retry = self.loop.call_later(JOURNAL_RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        assert self._writer is not None
        self._writer.wake()

    def _fail(self, failure: OSError) -> None:
        if self.failure is None:
            log_line("error", "the journal failed, read-only until a restart", problem=str(failure))
        self.failure = failure
        for waiting in (self._waiting_written, self._waiting_synced):
            for _, _, future in waiting:
                if not future.done():
                    future.set_exception(self.refusal())
            waiting.clear()

    # --- for the writer ---------------------------------------------------------------------------

    def commit(self, report: Callable[[Progress], None]) -> None:
        """Write what is pending, sync it if wanted, and report each step. Blocks."""
        if self.reached_by_writer.failure is not None:
            return  # a sync that works after one that failed says nothing about what was lost
        try:
            while (position := self.write_next()) is not None:
                self.turn_page(position)
        except OSError as failure:
            self.fail(failure)
        if self.sync_due:
            if self._waiting_written:
                report(self.reached_by_writer)
            try:
                self.sync()
            except OSError as failure:
                self.fail(failure)
        report(self.reached_by_writer)
        self.note_failure()

    def write_next(self) -> int | None:
        """Write what is pending, up to where a new file starts; returns that position."""
        with self._lock:
            pending, self._pending = self._pending, []
            turn = next((at for at, item in enumerate(pending) if isinstance(item, int)), None)
            if turn is not None:
                self._pending = pending[turn + 1 :]
            self._frames_pending = len(self._pending)
        frames = pending[:turn]
        if frames:
            assert self._file is not None
            try:
                self._file.write(frames)  # type: ignore[arg-type]
            except OSError:
                # The same bytes go to the same place again: what is there of them does no harm.
                self._put_back(pending if turn is None else pending[: turn + 1])
                raise
            size = sum(map(len, frames))  # type: ignore[arg-type]
            self.stats.batches += 1
            self.stats.bytes_written += size
            reached = self.reached_by_writer
            self.reached_by_writer = Progress(reached.written + size, reached.synced)
        return pending[turn] if turn is not None else None  # type: ignore[return-value]

    def turn_page(self, position: int) -> None:
        """Go on in a new file; the old one is complete on stable storage before that."""
        assert self._file is not None
        self.sync()
        try:
            opened = self._open(position)
        except OSError:
            self._put_back([position])
            raise
        self._file.close()
        self._file = opened
        reached = self.reached_by_writer
        self.reached_by_writer = Progress(reached.written, reached.synced)

    def _put_back(self, items: list[Buffer | int]) -> None:
        with self._lock:
            self._pending = items + self._pending
            self._frames_pending = len(self._pending)

    @property
    def sync_due(self) -> bool:
        """Whether somebody waits for a sync, and something was written that can be synced.

        There may be no room for more: what was told of is not left to a power loss meanwhile.
        """
        reached = self.reached_by_writer
        return reached.failure is None and min(self._sync_wanted, reached.written) > reached.synced

    def sync(self) -> None:
        assert self._file is not None
        started = time.perf_counter()
        try:
            self._file.sync()
        except OSError as failure:
            raise SyncFailed(*failure.args) from failure
        self.synced_to(self.reached_by_writer.written, started)

    def synced_to(self, position: int, started: float) -> None:
        """A sync that began at `started` covered everything below `position`."""
        self.stats.sync_latency_us.observe((time.perf_counter() - started) * 1e6)
        self.stats.syncs += 1
        reached = self.reached_by_writer
        self.reached_by_writer = Progress(reached.written, position, stall=reached.stall)

    def fail(self, failure: OSError) -> None:
        """What was to be done failed: for now if that may pass, else for good."""
        reached = self.reached_by_writer
        stalls = passes(failure)
        self.reached_by_writer = Progress(
            reached.written,
            reached.synced,
            None if stalls else failure,
            failure if stalls else None,
        )

    def note_failure(self) -> None:
        """Remember beyond this process that a sync failed; to be tried again if that fails. Blocks.

        Whoever comes next might otherwise take what is in the cache, or no longer, for all there
        ever was.
        """
        failure = self.reached_by_writer.failure
        if isinstance(failure, SyncFailed) and not self._noted:
            try:
                unsynced.note(self._disk, str(failure))
                self._noted = True
            except OSError as problem:
                log_line("error", "a failed sync could not be noted", problem=str(problem))

    def fileno(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def _open(self, position: int) -> AppendFile:
        path = layout.journal_file(position)
        # A process that died before its first whole frame here left the name; nothing in it counts.
        self._disk.remove(path)
        file = self._open_spare(path) or self._disk.create_append(path)
        try:
            self._disk.sync_folder(layout.JOURNAL)
        except OSError as failure:
            file.close()
            if passes(failure):
                raise
            raise SyncFailed(*failure.args) from failure
        return file

    def _open_spare(self, path: str) -> AppendFile | None:
        try:
            self._disk.rename(self.spares.popleft(), path)
        except (IndexError, FileNotFoundError):
            return None
        return self._disk.open_blank(path)

    async def close(self) -> None:
        """Commit what is pending and stop the writer."""
        if self.failure is None and self.stall is None:
            await self.wait_synced(self.tail)
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()


def ignore(committed: asyncio.Future[None]) -> None:
    """Nobody waits for this: if it fails, the server is read-only, and that is known."""
    committed.add_done_callback(_read_exception)


def _read_exception(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


class WriterThread:
    """Runs commits in one thread; each covers all that was enqueued while the last one ran."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._loop = loop
        self._stopping = False
        self._awake = False
        self._signal = threading.Lock()  # a bare lock wakes a thread faster than a semaphore
        self._signal.acquire()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._signal.release()

    def close(self) -> None:
        self._stopping = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._signal.acquire()
            if self._stopping:
                return
            # From here on a wake-up asks for another commit: it may come too late for this one.
            self._awake = False
            self._journal.commit(self._report)

    def _report(self, progress: Progress) -> None:
        self._loop.call_soon_threadsafe(self._journal.reached, progress)
