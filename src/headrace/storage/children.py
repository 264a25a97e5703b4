"""Child processes of the server, started without a copy of its memory's map.

The event loop forks to start a process. A server that knows a million logs stands still for that,
a tenth of a second, while the kernel copies the tables of its pages; `subprocess` need not do so.
"""

from __future__ import annotations

import asyncio
import subprocess
from asyncio.streams import FlowControlMixin
from collections.abc import Sequence
from typing import IO, Any

_LINE_MAX = 1 << 20


class Child:
    """A process with its input and outputs as streams."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader | None,
    ) -> None:
        self._process = process
        self.pid = process.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr

    @property
    def returncode(self) -> int | None:
        """What it ended with; None while it lives."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        """Wait until it has ended; returns what it ended with."""
        return await asyncio.to_thread(self._process.wait)


async def start(command: Sequence[str], *, stderr: bool = False) -> Child:
    """Start a process in a session of its own: a Ctrl-C at the terminal is the server's."""
    # The loop is kept for a millisecond; its own way to do this keeps it for far longer.
    process = subprocess.Popen(  # noqa: ASYNC220
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr else None,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(FlowControlMixin, process.stdin)
    return Child(
        process,
        asyncio.StreamWriter(transport, protocol, None, loop),
        await _read(process.stdout),
        await _read(process.stderr) if process.stderr is not None else None,
    )


async def _read(pipe: IO[Any]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=_LINE_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    return reader
