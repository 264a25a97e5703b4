"""A child process that is always ended, with what it said kept for error messages."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

STOP_TIMEOUT_S = 120.0
POLL_S = 0.01


class Daemon:
    """Starts and ends one process at a time; subclasses say which and when it is ready."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the object)

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to say goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM and wait: a graceful stop. Returns the exit status."""
        return self._end(signal.SIGTERM)

    def output(self) -> str:
        """What the process said so far and, if it ended by itself, how."""
        # Not seek and read: the process writes at the same file position.
        size_bytes = os.fstat(self._log.fileno()).st_size
        said = os.pread(self._log.fileno(), size_bytes, 0).decode(errors="replace")
        status = None if self._process is None else self._process.poll()
        return said if status is None else f"{said}(ended with status {status})\n"

    def _launch(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        assert self._process is None, "already started"
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the parent, which then ends its children in order.
            start_new_session=True,
        )

    def _pause(self, deadline: float) -> None:
        """Wait a moment for the process to get ready; raise if it ended or the time is up."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended while starting:\n{self.output()}")
        if time.monotonic() > deadline:
            self.kill()
            raise TimeoutError(f"the server was not ready in time:\n{self.output()}")
        time.sleep(POLL_S)

    def _end(self, how: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(how)
        try:
            status = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._process = None
        return status

    def start(self) -> Self:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            # Also on Ctrl-C: nobody calls __exit__ for what was never entered.
            self.kill()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._log.close()
