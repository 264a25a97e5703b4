"""Messages over a pipe between the server and a process beside it: each with its length before it.

The process reads and writes them as they come; it may need next to nothing else of Python, so this
module does not import what only the server needs.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from headrace.processes.subprocesses import Child

_LENGTH = struct.Struct("<I")


class Oversized(Exception):
    """A message says that it is longer than any message is."""


def read_message(stream: BinaryIO) -> bytes | None:
    """The next message; None when the other side is gone, in the middle of one too."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(header)
    body = stream.read(size)
    return body if len(body) == size else None


def write_message(stream: BinaryIO, body: bytes) -> None:
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


async def exchange(child: Child, body: bytes, reply_bytes_max: int) -> bytes:
    """Send a message to a process and wait for its answer.

    OSError or EOFError when the process is gone, `Oversized` when its answer cannot be one.
    """
    child.stdin.write(_LENGTH.pack(len(body)))
    child.stdin.write(body)
    await child.stdin.drain()
    (size,) = _LENGTH.unpack(await child.stdout.readexactly(_LENGTH.size))
    if size > reply_bytes_max:
        raise Oversized(f"{size} bytes")
    return await child.stdout.readexactly(size)
