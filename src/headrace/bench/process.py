"""A real server in a process of its own, for benchmarks and black-box tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.01


class ServerProcess:
    """Starts `headrace serve` on a free port over a data directory; restartable on the same data."""

    def __init__(self, data_dir: Path, *, env: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.port = 0
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the object)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self, *, wait_ready: bool = True) -> ServerProcess:
        """Start and, unless told otherwise, wait until `/v0/ready` answers 200."""
        port_file = self.data_dir.parent / f"{self.data_dir.name}.port"
        port_file.unlink(missing_ok=True)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("TOPICS_", "HEADRACE_"))}
        environ |= {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            **self._env,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "serve"],
            env=environ,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (port_file.exists() and (text := port_file.read_text()).endswith("\n")):
            self._check_alive(deadline)
        self.port = int(text)
        if wait_ready:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/v0/ready", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
            except OSError:
                pass
            self._check_alive(deadline)

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to say goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM and wait: a graceful stop. Returns the exit status."""
        return self._end(signal.SIGTERM)

    def output(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

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
        self._process = None
        return status

    def _check_alive(self, deadline: float) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended while starting:\n{self.output()}")
        if time.monotonic() > deadline:
            self.kill()
            raise TimeoutError(f"the server was not ready in time:\n{self.output()}")
        time.sleep(POLL_S)

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()
        self._log.close()
