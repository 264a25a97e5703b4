"""Runs a session on an event loop: sockets, tasks, the clock. All decisions are the session's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager

import msgspec

from headrace.client.flags.actions import (
    Action,
    FetchCancelled,
    FetchWanted,
    SnapshotReply,
    StateChanged,
    StreamCancelled,
    StreamRefusal,
    StreamWanted,
    TreePublished,
    VerificationWanted,
)
from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.problems import RefreshCheck, RefreshError
from headrace.client.flags.session import GroupSession
from headrace.client.http_address import Connect
from headrace.core.digits import parse_digits
from headrace.core.limits import (
    FLAGS_CLIENT_PAUSE_S_MAX,
    FLAGS_CLIENT_REFUSAL_BYTES_MAX,
)
from headrace.http_response import MalformedResponse, ResponseParser

_READ_BYTES = 64 << 10
_EVENTS = "text/event-stream"
_FAILURES = (OSError, MalformedResponse, UnicodeError)
"""UnicodeError: a host that cannot be looked up by its name."""


class GroupDriver:
    """One run of a session, from `run` to `stop`."""

    def __init__(
        self,
        session: GroupSession,
        server: ServerAddress,
        connect: Connect,
        show: Callable[[TreePublished | StateChanged], None],
        executor: Executor | None = None,
    ) -> None:
        self._session = session
        self._server = server
        self._connect = connect
        self._show = show
        self._executor = executor
        self._stopped = asyncio.Event()
        self._stream: asyncio.Task[None] | None = None
        self._fetches: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._verifications: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Keep the group up to date until it is stopped."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as self._tasks:
            try:
                self._tell(self._session.start)
                await self._stopped.wait()
            finally:
                self._end()

    def stop(self) -> None:
        self._stopped.set()

    def _end(self) -> None:
        self._session.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._stream, *self._fetches.values(), *self._verifications):
            if task is not None:
                task.cancel()

    def _tell(self, happened: Callable[..., None], *about: object) -> None:
        """Tell the session what happened, and do what it wants."""
        if self._stopped.is_set():
            return
        happened(*about, self._loop.time())
        for action in self._session.take_actions():
            self._do(action)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake_at := self._session.wake_at) is not None:
            self._timer = self._loop.call_at(wake_at, self._tell, self._session.tick)

    def _do(self, action: Action) -> None:
        match action:
            case StreamWanted():
                self._stream = self._tasks.create_task(self._follow(action))
            case StreamCancelled():
                if self._stream is not None:
                    self._stream.cancel()
            case FetchWanted(number=number, namespace=namespace):
                task = self._tasks.create_task(self._fetch(action))
                self._fetches[namespace, number] = task
                task.add_done_callback(lambda _: self._fetches.pop((namespace, number), None))
            case FetchCancelled(number=number, namespace=namespace):
                if (fetch := self._fetches.get((namespace, number))) is not None:
                    fetch.cancel()
            case VerificationWanted():
                task = self._tasks.create_task(self._verify(action))
                self._verifications.add(task)
                task.add_done_callback(self._verifications.discard)
            case TreePublished() | StateChanged():
                self._show(action)

    # --- what takes time --------------------------------------------------------------------------

    async def _follow(self, wanted: StreamWanted) -> None:
        session, number = self._session, wanted.number
        problem = "the server ended the stream"
        try:
            async with self._ask(wanted.target, wanted.headers) as reply:
                if not reply.is_stream:
                    body = await reply.read_refusal()
                    self._tell(session.stream_refused, number, _refusal_of(reply.head, body))
                    return
                self._tell(session.stream_began, number)
                while (part := await reply.next_part()) is not None:
                    self._tell(session.stream_received, number, part)
        except _FAILURES as error:
            problem = _describe(error)
        self._tell(session.stream_ended, number, problem)

    async def _fetch(self, wanted: FetchWanted) -> None:
        outcome: SnapshotReply | RefreshError
        try:
            async with self._ask(wanted.target, wanted.headers) as reply:
                if reply.head.status == 200:
                    body = await reply.read(wanted.bytes_max)
                    outcome = SnapshotReply(200, body, reply.head.headers.get("etag", ""))
                else:
                    refusal = _refusal_of(reply.head, await reply.read_refusal())
                    outcome = SnapshotReply(
                        refusal.status, code=refusal.code, retry_after_s=refusal.retry_after_s
                    )
        except _FAILURES as error:
            outcome = RefreshError(RefreshCheck.FETCH, _describe(error))
        self._tell(self._session.fetched, wanted.namespace, wanted.number, outcome)

    async def _verify(self, wanted: VerificationWanted) -> None:
        result = await self._loop.run_in_executor(self._executor, wanted.work)
        self._tell(self._session.verified, wanted.namespace, wanted.number, result)

    @asynccontextmanager
    async def _ask(self, target: str, headers: Mapping[str, str]) -> AsyncIterator[_Exchange]:
        """A request and the head of its reply. The connection is gone behind it."""
        reader, writer = await self._connect()
        try:
            writer.write(_format_request(self._server, target, headers))
            exchange = _Exchange(reader)
            await exchange.read_head()
            yield exchange
        finally:
            writer.transport.abort()


class _Exchange:
    """The reply to one request, as it comes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.head = ResponseParser()
        self._reader = reader
        self._first = b""

    @property
    def is_stream(self) -> bool:
        headers = self.head.headers
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        return self.head.status == 200 and media == _EVENTS and _is_plain(headers)

    async def read_head(self) -> None:
        while not self.head.status:
            self._first = self.head.feed(await self._read())

    async def next_part(self) -> bytes | None:
        """What comes next of the body; None behind its end."""
        if self._first:
            part, self._first = self._first, b""
            return part
        return None if self.head.is_complete else self.head.feed(await self._read())

    async def read(self, bytes_max: int) -> bytes:
        """The whole body; MalformedResponse if it is not there, or larger than that."""
        if not _is_plain(self.head.headers):
            raise MalformedResponse("the reply has an encoding that nobody asked for")
        too_large = MalformedResponse(f"the reply has more than {bytes_max} bytes")
        if parse_digits(self.head.headers.get("content-length", "0"), bytes_max) is None:
            raise too_large
        body = bytearray()
        while (part := await self.next_part()) is not None:
            body += part
            if len(body) > bytes_max:
                raise too_large
        return bytes(body)

    async def read_refusal(self) -> bytes:
        """The body of a refusal, as far as it can be read: there is another answer without it."""
        try:
            return await self.read(FLAGS_CLIENT_REFUSAL_BYTES_MAX)
        except MalformedResponse:
            return b""

    async def _read(self) -> bytes:
        data = await self._reader.read(_READ_BYTES)
        if not data:
            raise MalformedResponse("the connection was closed before the end of the reply")
        return data


class _ErrorBody(msgspec.Struct):
    code: str = ""
    message: str = ""
    details: dict[str, object] = {}


class _ErrorReply(msgspec.Struct):
    error: _ErrorBody


_error_reply = msgspec.json.Decoder(_ErrorReply)


def _refusal_of(head: ResponseParser, body: bytes) -> StreamRefusal:
    try:
        error = _error_reply.decode(body).error
    except (msgspec.MsgspecError, RecursionError):
        error = _ErrorBody()
    retry_after = head.headers.get("retry-after", "")
    retry_after_s = parse_digits(retry_after, int(FLAGS_CLIENT_PAUSE_S_MAX)) or 0
    return StreamRefusal(head.status, error.code, error.message, error.details, retry_after_s)


def _format_request(server: ServerAddress, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"GET {target} HTTP/1.1",
        f"host: {server.authority}",
        "accept-encoding: identity",
        "connection: close",
        "user-agent: headrace-flags",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _is_plain(headers: Mapping[str, str]) -> bool:
    return headers.get("content-encoding", "identity").strip().lower() == "identity"


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
