"""The process that takes manifests apart: unpacking and parsing never hold the server's loop.

It is started for the first manifest and ends when none has come for a while. One conversation after
the other is held with it, tenants in turn; a long one gives way to others now and then. One that
takes too long is refused, and a process that is stuck is ended. One during which the process ends
by itself is begun anew, once: what ended it may have come from outside. Whoever waits loses nothing
by either.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from headrace.core.cap import Cap
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    MANIFEST_IDLE_S,
    MANIFEST_JOB_S,
    MANIFEST_JOBS_MAX,
    MANIFEST_JOBS_PER_TENANT,
    MANIFEST_MESSAGE_BYTES_MAX,
)
from headrace.core.tenant_queue import TenantQueue
from headrace.observe import log_line
from headrace.processes import subprocesses
from headrace.processes.manifest_messages import (
    CheckUnfinished,
    NotTaken,
    Reply,
    Request,
    decode_reply,
    encode,
)
from headrace.processes.message_pipe import Oversized, exchange
from headrace.processes.scheduling import DEFAULT_NS, ask_for_turns, step_back
from headrace.processes.subprocesses import Child

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

COMMAND = (sys.executable, "-m", "headrace.processes.manifest_worker")
_NICE = 10
_STOP_S = 5.0
"""How long the process may take to end when its input does."""
_TRIES = 2
_CODES = {code.value: code for code in Code}


class Conversation(Protocol):
    """What can be asked while it is one's turn."""

    async def ask(self, request: Request, kind: type[R]) -> R:
        """The answer to a request; refuses what the process refuses."""
        ...


Talk = Callable[[Conversation], Awaitable[T]]
"""Asks what it wants to know; may be called a second time, from its beginning."""


class ManifestProcessCounts(msgspec.Struct):
    """What has happened so far."""

    conversations: int = 0
    starts: int = 0
    failures: int = 0
    """How often the process ended or was ended in the middle of a conversation."""


class ManifestChecker(Protocol):
    """Who takes manifests apart."""

    counts: ManifestProcessCounts

    async def converse(self, tenant: str, talk: Talk[T]) -> T:
        """Have a conversation when it is the turn of the tenant; refuses when too many wait."""
        ...

    async def run(self) -> None:
        """Hold conversations until there are to be no more."""
        ...

    async def close(self) -> None:
        """End what was started for that."""
        ...


class GiveWay(Exception):
    """The process has not done what was asked for in its time: others are to have their turn before
    the talk goes on, from its beginning.
    """

    def __init__(self, files_parsed: int, processor_s: float) -> None:
        super().__init__(f"{files_parsed} files were parsed")
        self.files_parsed = files_parsed
        self.processor_s = processor_s


class ProcessEnded(Exception):
    """The process ended in the middle of a conversation."""


class ProcessConfused(Exception):
    """The process answered what is no answer."""


class _Job(Generic[T]):
    """A conversation that somebody waits for."""

    def __init__(self, tenant: str, talk: Talk[T]) -> None:
        self.tenant = tenant
        self.talk = talk
        self.spent_s = 0.0
        """Of a processor, in turns that it gave up: others may have made it slow."""
        self.done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def fail(self, problem: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(problem)

    def finish(self, result: T) -> None:
        if not self.done.done():
            self.done.set_result(result)


class ManifestProcess:
    """Holds conversations with the process, and looks after it."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        job_s: float = MANIFEST_JOB_S,
        idle_s: float = MANIFEST_IDLE_S,
    ) -> None:
        self._command = command
        self._job_s = job_s
        self._idle_s = idle_s
        self._waiting: TenantQueue[_Job[Any]] = TenantQueue(
            Cap("max_manifest_jobs", MANIFEST_JOBS_MAX),
            Cap("max_manifest_jobs_per_tenant", MANIFEST_JOBS_PER_TENANT),
        )
        self._arrival: asyncio.Future[None] | None = None
        self._child: Child | None = None
        self._stopped = False
        self.counts = ManifestProcessCounts()

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._child is None else self._child.pid

    async def converse(self, tenant: str, talk: Talk[T]) -> T:
        """Have a conversation when it is the turn of the tenant; refuses when too many wait."""
        if self._stopped:
            raise _stopping()
        job = _Job(tenant, talk)
        self._waiting.put(tenant, job)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return await job.done

    # --- the one who talks ------------------------------------------------------------------------

    async def run(self) -> None:
        """Hold conversations until there are to be no more."""
        try:
            while True:
                job = await self._next()
                try:
                    await self._hold(job)
                except BaseException:
                    job.fail(_stopping())
                    raise
        finally:
            self._stopped = True
            while self._waiting:
                self._waiting.take().fail(_stopping())
            if self._child is not None:
                self._child.kill()

    async def close(self) -> None:
        """End the process, if there is one; nobody talks to it any more."""
        self._stopped = True
        await self._end(kill=True)

    async def _next(self) -> _Job[Any]:
        """Who is next; lets the process end when nobody has come for long."""
        while not self._waiting:
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(None if self._child is None else self._idle_s):
                    await self._arrival
            except TimeoutError:
                await self._end()
            finally:
                self._arrival = None
        return self._waiting.take()

    async def _hold(self, job: _Job[Any]) -> None:
        """Hold one conversation; whoever waits for it hears how it ended."""
        for _ in range(_TRIES):
            if job.done.done():
                return  # nobody waits any more
            self.counts.conversations += 1
            problem: Exception
            try:
                async with asyncio.timeout(self._job_s):
                    job.finish(await job.talk(_Pipe(await self._running())))
                return
            except GiveWay as unfinished:
                job.spent_s += unfinished.processor_s
                if job.spent_s < self._job_s:
                    self._waiting.put_back(job.tenant, job)
                else:
                    job.fail(_too_long(self._job_s))
                return
            except TimeoutError:
                job.fail(_too_long(self._job_s))
                problem = TimeoutError(f"a manifest took more than {self._job_s:g} s")
            except ProcessConfused as error:
                job.fail(Refused(Code.INTERNAL, "internal error"))
                problem = error
            except ProcessEnded as error:
                problem = error
            except Exception as error:  # noqa: BLE001  (of the conversation; who began it is told)
                job.fail(error)
                return
            self.counts.failures += 1
            log_line("error", "the manifest process is started anew", problem=str(problem))
            await self._end(kill=True)
        job.fail(Refused(Code.NOT_READY, "the process that checks manifests ended; try again"))

    async def _running(self) -> Child:
        if self._child is None or self._child.returncode is not None:
            await self._end()
            self.counts.starts += 1
            try:
                self._child = child = await subprocesses.start(
                    self._command, subprocesses.environment(bucket=False)
                )
            except OSError as error:  # too many processes, or open files
                raise ProcessEnded(f"it cannot be started: {error}") from None
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)
            step_back(child.pid, _NICE)
            ask_for_turns(child.pid, DEFAULT_NS)  # it inherits ours
        return self._child

    async def _end(self, *, kill: bool = False) -> None:
        """End the process, which does so when its input ends unless something is wrong with it."""
        child = self._child
        if child is None:
            return
        if kill:
            child.kill()
        child.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        self._child = None


class _Pipe:
    """A conversation with the process."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def ask(self, request: Request, kind: type[R]) -> R:
        try:
            raw = await exchange(self._child, encode(request), MANIFEST_MESSAGE_BYTES_MAX)
            reply = decode_reply(raw)
        except (OSError, EOFError) as error:
            raise ProcessEnded(str(error) or type(error).__name__) from None
        except (Oversized, msgspec.MsgspecError) as error:
            raise ProcessConfused(f"an answer that is none: {error}") from None
        return open_reply(reply, kind)


def open_reply(reply: Reply, kind: type[R]) -> R:
    """The answer that was hoped for; refuses what was refused, and gives way to others."""
    if isinstance(reply, NotTaken):
        raise Refused(_CODES[reply.code], reply.message, **reply.detail)
    if isinstance(reply, CheckUnfinished):
        raise GiveWay(reply.files_parsed, reply.processor_s)
    if not isinstance(reply, kind):
        raise ProcessConfused(f"{type(reply).__name__} instead of {kind.__name__}")
    return reply


def _too_long(job_s: float) -> Refused:
    return Refused(
        Code.BODY_TOO_LARGE, f"it takes more than {job_s:g} s to check this manifest", max_s=job_s
    )


def _stopping() -> Refused:
    return Refused(Code.SHUTTING_DOWN, "the server is shutting down")
