"""Sealing and blanking in a process of its own: they never hold the server's interpreter.

Run as a module it is that process: it reads jobs from standard input and answers on standard
output, each message with its length before it, and ends when its input ends, however the server
went away.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats.arrow import leave_pandas_out
from headrace.formats.manifest import Segment
from headrace.processes import subprocesses
from headrace.processes.message_pipe import Oversized, exchange, read_message, write_message
from headrace.processes.scheduling import step_back
from headrace.processes.subprocesses import Child
from headrace.storage.disk import RealDisk
from headrace.storage.objects import Objects
from headrace.storage.sealing import SealFailed, SealJob, Unreadable, seal
from headrace.storage.stores import open_objects

_ANSWER_BYTES_MAX = 1 << 30
_NICE = 10
_NICE_SESSION = 10
"""How far the session of this process steps back behind others, where they are scheduled first."""


class BlankJob(msgspec.Struct, frozen=True, tag=True):
    """A file to be made of zeroes.

    Its name is used once: a forgotten process must not write over what has become a journal file.
    """

    path: str
    size_bytes: int


Job = SealJob | BlankJob


class SealAnswer(msgspec.Struct, frozen=True):
    segment: Segment | None = None
    problem: str | None = None
    unreadable: bool = False
    """It is the journal that is the problem."""


class ProcessSealer:
    """Hands jobs to the process, starting it when there is none."""

    def __init__(self, root: Path, objects: str | None = None) -> None:
        self._root = root
        self._objects = objects
        self._process: Child | None = None
        self._hurried = False

    async def seal(self, job: SealJob) -> Segment | None:
        return await self._ask(job)

    async def blank(self, path: str, size_bytes: int) -> None:
        await self._ask(BlankJob(path, size_bytes))

    def hurry(self, hurried: bool) -> None:
        if hurried is not self._hurried:
            self._hurried = hurried
            self._set_pace()

    def _set_pace(self) -> None:
        if self._process is not None:
            step_back(self._process.pid, 0 if self._hurried else _NICE_SESSION)

    async def _ask(self, job: Job) -> Segment | None:
        process = await self._running()
        body = msgspec.msgpack.encode(job)
        try:
            reply = await exchange(process, body, _ANSWER_BYTES_MAX)
        except (OSError, EOFError, Oversized) as error:
            await self.close()
            raise SealFailed(f"the sealing process ended: {error}") from None
        answer = msgspec.msgpack.decode(reply, type=SealAnswer)
        if answer.problem is not None:
            raise (Unreadable if answer.unreadable else SealFailed)(answer.problem)
        return answer.segment

    async def _running(self) -> Child:
        if self._process is None or self._process.returncode is not None:
            where = [str(self._root), *([self._objects] if self._objects else [])]
            self._process = await subprocesses.start(
                [sys.executable, "-m", __name__, *where],
                subprocesses.environment(bucket=self._objects is not None),
            )
            self._set_pace()
        return self._process

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()


def _serve(root: Path, where: str | None, jobs: BinaryIO, answers: BinaryIO) -> None:
    disk = RealDisk(root)
    objects = open_objects(where, disk)
    while (body := read_message(jobs)) is not None:
        job: Job = msgspec.msgpack.decode(body, type=Job)
        try:
            answer = SealAnswer(segment=_do(disk, objects, job))
        except (OSError, Corrupt, SealFailed) as error:
            answer = SealAnswer(problem=str(error), unreadable=isinstance(error, Corrupt))
        write_message(answers, msgspec.msgpack.encode(answer))


def _do(disk: RealDisk, objects: Objects, job: Job) -> Segment | None:
    match job:
        case SealJob():
            return seal(disk, objects, job)
        case BlankJob():
            disk.blank(job.path, job.size_bytes)
            return None


if __name__ == "__main__":
    os.nice(_NICE)
    leave_pandas_out()
    with suppress(BrokenPipeError):  # the server is gone; nobody waits for the answer
        where = sys.argv[2] if len(sys.argv) > 2 else None
        _serve(Path(sys.argv[1]), where, sys.stdin.buffer, sys.stdout.buffer)
