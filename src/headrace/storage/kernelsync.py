"""Syncs that run in the kernel and report through an event descriptor: no thread, no hand-over.

A writer thread costs two hand-overs of the interpreter for every commit, and each of them stops the
event loop. Linux can sync a file for us in the background (`io_submit` with IOCB_CMD_FDSYNC) and
signal the end on a descriptor that the loop watches anyway. The few lines of `ctypes` below are all
of that interface we need; where it is missing, the thread does the work (docs/decisions/0010).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import select
from time import perf_counter

from headrace.storage.journal import Journal, Writer, WriterThread

_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit."""
_FDSYNC = 3
_SIGNAL = 1
"""IOCB_FLAG_RESFD: signal the end on a descriptor."""


class _Request(ctypes.Structure):
    """struct iocb, little-endian."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("signal_fd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelSync:
    """One sync at a time, in the background. OSError when the kernel does not offer it."""

    def __init__(self) -> None:
        numbers = _CALLS.get(platform.machine())
        if numbers is None or os.uname().sysname != "Linux":
            raise OSError("no background sync on this system")
        self._setup, self._destroy, self._getevents, self._submit = numbers
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._call(self._setup, 1, ctypes.byref(self._context))
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(opcode=_FDSYNC, flags=_SIGNAL, signal_fd=self._signal)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        self._event = _Event()

    def fileno(self) -> int:
        """Readable when a sync has ended."""
        return self._signal

    def start(self, fd: int) -> None:
        """Begin to sync this file."""
        self._request.fd = fd
        self._call(self._submit, self._context, 1, self._requests)

    def finish(self) -> None:
        """Take the result of a sync that has ended; OSError when it failed."""
        os.eventfd_read(self._signal)
        self._call(self._getevents, self._context, 1, 1, ctypes.byref(self._event), None)
        if self._event.result < 0:
            raise OSError(-self._event.result, os.strerror(-self._event.result))

    def close(self) -> None:
        self._call(self._destroy, self._context)
        os.close(self._signal)

    def _call(self, number: int, *args: object) -> None:
        if self._syscall(ctypes.c_long(number), *args) < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


class KernelWriter:
    """Commits on the loop: hands writes to the operating system, and lets the kernel sync them.

    A commit takes what was enqueued since the last one began. While a sync runs, requests go on and
    the next group gathers; it is committed the moment the sync ends.
    """

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop, sync: KernelSync) -> None:
        self._journal = journal
        self._loop = loop
        self._sync = sync
        self._busy = False
        self._scheduled = False
        self._closed = False
        self._covered = 0
        self._started = 0.0
        loop.add_reader(sync.fileno(), self._synced)

    def wake(self) -> None:
        if not self._scheduled and not self._busy:
            # At the end of this round of the loop: whatever else it brings joins the group.
            self._scheduled = True
            self._loop.call_soon(self._commit)

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._sync.fileno())
        self._sync.close()

    def _commit(self) -> None:
        self._scheduled = False
        journal = self._journal
        if self._busy or self._closed or journal.reached_by_writer.failure is not None:
            return
        try:
            position = journal.write_next()
            if position is not None:
                self._turn(position)
            elif journal.sync_due:
                self._covered = journal.reached_by_writer.written
                self._started = perf_counter()
                self._sync.start(journal.fileno())
                self._busy = True
        except OSError as failure:
            journal.fail(failure)
        journal.reached(journal.reached_by_writer)

    def _synced(self) -> None:
        try:
            self._sync.finish()
            self._journal.synced_to(self._covered, self._started)
        except OSError as failure:
            self._journal.fail(failure)
        self._go_on()

    def _turn(self, position: int) -> None:
        """Changing files syncs and opens, which blocks: that goes to a thread, once a file."""
        self._busy = True
        turning = self._loop.run_in_executor(None, self._turn_page, position)
        turning.add_done_callback(lambda _: self._go_on())

    def _turn_page(self, position: int) -> None:
        try:
            self._journal.turn_page(position)
        except OSError as failure:
            self._journal.fail(failure)

    def _go_on(self) -> None:
        self._busy = False
        self._journal.reached(self._journal.reached_by_writer)
        if self._journal.queue_depth or self._journal.sync_due:
            self._commit()


def best_writer(journal: Journal, loop: asyncio.AbstractEventLoop) -> Writer:
    """The kernel's syncs where they work on this file system, else a thread."""
    try:
        sync = KernelSync()
        sync.start(journal.fileno())
        select.select([sync.fileno()], [], [])
        sync.finish()
    except OSError:
        return WriterThread(journal, loop)
    return KernelWriter(journal, loop, sync)
