"""Syncs of the journal in a process of their own, and the journal writer that asks for them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

from headrace.processes import sync_worker
from headrace.processes.scheduling import come_first
from headrace.processes.subprocesses import environment
from headrace.storage.journal import Journal, Writer, WriterThread
from headrace.storage.loopwriter import LoopWriter

_STOP_S = 5.0


class SyncProcess:
    """A small process that syncs one file when told to, for a `LoopWriter`."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(sync_worker.__file__)), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=environment(bucket=False),
                start_new_session=True,  # a Ctrl-C at the terminal is the server's to handle
            )
        come_first(self._process.pid)  # it does next to nothing, and appends wait for it

    def fileno(self) -> int:
        return self._socket.fileno()

    def use(self, file: int) -> None:
        socket.send_fds(self._socket, [b"f"], [file])

    def start(self) -> None:
        self._socket.send(sync_worker.SYNC)

    def finish(self) -> None:
        answer = self._socket.recv(sync_worker.ERROR_BYTES)
        if not answer:
            raise OSError("the sync process is gone")
        if error := int.from_bytes(answer, "little", signed=True):
            raise OSError(error, os.strerror(error))

    def close(self) -> None:
        self._socket.close()
        self._process.wait(_STOP_S)


def best_writer(journal: Journal, loop: asyncio.AbstractEventLoop) -> Writer:
    """A loop writer where files can be handed to another process, else a thread."""
    try:
        file = journal.fileno()
    except OSError:
        return WriterThread(journal, loop)
    sync = SyncProcess()
    sync.use(file)
    return LoopWriter(journal, loop, sync)
