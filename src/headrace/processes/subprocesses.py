"""Child processes of the server, started without a copy of its memory's map.

The event loop forks to start a process. A server that knows a million logs stands still for that,
a tenth of a second, while the kernel copies the tables of its pages; `subprocess` need not do so.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from asyncio.streams import FlowControlMixin
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

_LINE_MAX = 1 << 20
_CLIENT_KEYS = (
    "TOPICS_API_KEYS",
    "HEADRACE_API_KEY",
    "HEADRACE_ADMIN_TOKEN",
    "HEADRACE_JWT_SECRET",
    "HEADRACE_USERS",
    "HEADRACE_CONFIG",
    "NOTIFICATIONS_CONFIG",
)
"""Where keys of clients are, or may be: children are told all they need by their arguments."""
_OF_BUCKETS = "AWS_"


class Child:
    """A process with its input and outputs as streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._transports: list[asyncio.BaseTransport] = []
        self.pid = process.pid
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader | None = None

    async def connect(self) -> None:
        """Let the loop look after the pipes."""
        process, loop = self._process, asyncio.get_running_loop()
        assert process.stdin is not None
        assert process.stdout is not None
        transport, protocol = await loop.connect_write_pipe(FlowControlMixin, process.stdin)
        self._transports.append(transport)
        self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        self.stdout = await self._read(process.stdout)
        if process.stderr is not None:
            self.stderr = await self._read(process.stderr)

    async def _read(self, pipe: IO[Any]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=_LINE_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
        self._transports.append(transport)
        return reader

    @property
    def returncode(self) -> int | None:
        """What it ended with; None while it lives."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        """Wait until it has ended; returns what it ended with."""
        status = await asyncio.to_thread(self._process.wait)
        for transport in self._transports:
            transport.close()
        return status

    def give_up(self) -> None:
        """End it at once, when not all of its pipes could be connected."""
        self._process.kill()
        self._process.wait()
        for transport in self._transports:
            transport.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):  # the loop has closed what it could not connect
                    pipe.close()


def environment(*, bucket: bool) -> dict[str, str]:
    """Our environment for a child: without keys of clients, which it has no use for, and without
    the credentials of a bucket unless it goes there.
    """
    hidden = _CLIENT_KEYS if bucket else (*_CLIENT_KEYS, _OF_BUCKETS)
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


async def start(
    command: Sequence[str], environ: Mapping[str, str], *, stderr: bool = False
) -> Child:
    """Start a process in a session of its own: a Ctrl-C at the terminal is the server's."""
    # The loop is kept for a millisecond; its own way to do this keeps it for far longer.
    process = subprocess.Popen(  # noqa: ASYNC220
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr else None,
        start_new_session=True,
        env=environ,
    )
    child = Child(process)
    # Not to be broken off: the loop would close a pipe, and we, later, whatever has its number by
    # then. The error of that would take the place of the cancellation.
    connecting = asyncio.ensure_future(child.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        if connecting.done():
            child.give_up()
        else:
            connecting.add_done_callback(lambda _: child.give_up())
        raise
    return child
