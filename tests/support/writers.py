"""Journal writers without a thread, for a virtual loop: what they do takes as long as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.storage.journal import Journal, Progress
from headrace.storage.loopwriter import LoopWriter as ServerWriter
from support.virtual import VirtualLoop

Delay = Callable[[], float]


def server_writer(journal: Journal, delay_s: Delay) -> ServerWriter:
    """The writer that servers use, with a sync process of our own."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    journal.fileno = lambda: 0  # type: ignore[method-assign]
    return ServerWriter(journal, loop, VirtualSync(journal, loop, delay_s))


class VirtualSync:
    """A sync in the background of a virtual loop; a crash before its end undoes it.

    It syncs the file that it was last told to use, as the sync process does.
    """

    def __init__(self, journal: Journal, loop: VirtualLoop, delay_s: Delay) -> None:
        self._journal = journal
        self._loop = loop
        self._delay_s = delay_s
        self._failure: OSError | None = None
        self._file = journal._file

    def fileno(self) -> int:
        return id(self)

    def use(self, file: int) -> None:
        self._file = self._journal._file

    def start(self) -> None:
        self._loop.call_later(self._delay_s(), self._end)

    def _end(self) -> None:
        try:
            assert self._file is not None
            self._file.sync()
        except OSError as failure:
            self._failure = failure
        self._loop.readable(self.fileno())

    def finish(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        pass


class LoopWriter:
    """Commits some time after it was woken, and reports some time after that."""

    def __init__(self, journal: Journal, delay_s: Delay = lambda: 0.0) -> None:
        self._journal = journal
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._awake = False
        self._stopped = False

    def wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._loop.call_later(self._delay_s(), self._commit)

    def close(self) -> None:
        """Nothing happens after this, whatever was woken before."""
        self._stopped = True

    def _commit(self) -> None:
        if not self._stopped:
            self._awake = False
            self._journal.commit(self._report)

    def _report(self, progress: Progress) -> None:
        if not self._stopped:
            self._loop.call_soon(self._journal.reached, progress)
