"""Many watchers of one log in one process: every byte is received, only stamps are looked at.

Whatever a server wraps a record in, its stamp comes through as it was sent, so that the same few
lines read server-sent events and WebSocket messages of every server.
"""

from __future__ import annotations

import gc
import select
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter, perf_counter_ns, process_time, sleep
from types import TracebackType
from typing import Self

from headrace_bench.errors import BenchError
from headrace_bench.jobs import Flood, Flow, Latencies, Listen, Offsets, Opening, Poll, Watch
from headrace_bench.link import RECEIVE_BYTES, SILENCE_S_MAX, Connection, connect, wait_replies
from headrace_bench.replies import (
    EXCERPT_BYTES_MAX,
    FeedPage,
    HttpReply,
    StreamPage,
    format_excerpt,
)
from headrace_bench.wire import STAMP_BYTES, STAMP_MARK, format_get

BUFFER_BYTES = 256 * 1024
EVENTS_MAX = 4096
# After each look, so that many deliveries are taken at once: a process that is woken for each of
# them is a load on the server's core, which watchers elsewhere would not be.
WATCH_PAUSE_S = 0.0002
FLOOD_PAUSE_S = 0.01
GREETING_BYTES_MAX = 64 * 1024
_OPENED = (b"HTTP/1.1 200", b"HTTP/1.1 101")


def watch(job: Watch, say_ready: Callable[[], None]) -> Latencies:
    """Take every delivery and note how old its stamp is."""
    aged_ns: list[tuple[int, int]] = []
    with Watchers(job.port, job.openings) as watchers, no_collection():
        say_ready()
        while len(aged_ns) < job.records * len(job.openings):
            aged_ns += watchers.wait_stamps()
            sleep(WATCH_PAUSE_S)
    return Latencies(_after_warmup(aged_ns, job.warmup_s))


def listen(job: Listen, say_ready: Callable[[], None]) -> Flow:
    """Take everything; quiet is fine."""
    received = 0
    with Watchers(job.port, job.openings) as watchers, no_collection():
        say_ready()
        start, computed_s = perf_counter(), process_time()
        stop = start + job.window_s_max
        while (left_s := stop - perf_counter()) > 0:
            for fd, _ in watchers.poller.poll(left_s, EVENTS_MAX):
                received += watchers.count_records(fd)
            sleep(FLOOD_PAUSE_S)
    elapsed_s = perf_counter() - start
    return Flow(received, elapsed_s, (process_time() - computed_s) / elapsed_s)


def _after_warmup(aged_ns: list[tuple[int, int]], warmup_s: float) -> list[float]:
    """How old stamps were when they came, in milliseconds; without those of the warm-up."""
    start_ns = min(stamp_ns for _, stamp_ns in aged_ns) + round(warmup_s * 1e9)
    return [(now_ns - stamp_ns) / 1e6 for now_ns, stamp_ns in aged_ns if stamp_ns >= start_ns]


def poll(job: Poll, say_ready: Callable[[], None]) -> Latencies:
    """Take every record by long-polling, each reader behind what it has."""
    aged_ns: list[tuple[int, int]] = []
    with Pollers(job) as pollers, no_collection():
        say_ready()
        while len(aged_ns) < job.records * job.readers:
            aged_ns += pollers.wait_stamps()
            sleep(WATCH_PAUSE_S)
    return Latencies(_after_warmup(aged_ns, job.warmup_s))


def flood(job: Flood) -> Flow:
    """Send for a while, and count from the first request until the last watcher has everything."""
    received = 0
    with (
        Watchers(job.port, job.openings) as watchers,
        Writers(job) as writers,
        no_collection(),
    ):
        watchers.poller.register(writers.fileno(), select.EPOLLIN)
        start, computed_s = perf_counter(), process_time()
        stop = start + job.window_s
        while writers.busy or received < writers.sent * len(job.openings) or not received:
            if perf_counter() < stop or not writers.sent:
                writers.send(received // len(job.openings))
            for fd in watchers.wait():
                if fd == writers.fileno():
                    writers.take_replies()
                else:
                    received += watchers.count_records(fd)
            sleep(FLOOD_PAUSE_S)
        elapsed_s = perf_counter() - start
        computed_s = process_time() - computed_s
    return Flow(received, elapsed_s, computed_s / elapsed_s)


class Watchers:
    """Connections that only receive, behind one epoll."""

    def __init__(self, port: int, openings: tuple[Opening, ...]) -> None:
        self._port = port
        self._openings = openings
        self._sockets: dict[int, socket.socket] = {}
        self._buffer = bytearray(BUFFER_BYTES)
        self._split: dict[int, bytes] = {}
        self.poller = select.epoll()

    def __enter__(self) -> Self:
        for opening in self._openings:
            link = open_watcher(self._port, opening)
            self._sockets[link.fileno()] = link
            self.poller.register(link.fileno(), select.EPOLLIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.poller.close()
        for link in self._sockets.values():
            link.close()

    def wait(self) -> list[int]:
        """Which connections have something to receive."""
        ready = self.poller.poll(SILENCE_S_MAX, EVENTS_MAX)
        if not ready:
            raise BenchError(f"nothing came for {SILENCE_S_MAX:.0f} s: deliveries are missing")
        return [fd for fd, _ in ready]

    def wait_stamps(self) -> Iterator[tuple[int, int]]:
        """The stamps that came, each after the time when it came."""
        buffer = self._buffer
        for fd in self.wait():
            split = self._split.pop(fd, b"")
            buffer[: len(split)] = split
            size_bytes = self._receive(fd, len(split))
            now_ns = perf_counter_ns()
            stamps_ns, stop = parse_stamps(buffer, size_bytes)
            for stamp_ns in stamps_ns:
                yield now_ns, stamp_ns
            if stop < size_bytes:
                self._split[fd] = bytes(buffer[stop:size_bytes])

    def receive(self, fd: int) -> bytes:
        """What came on a connection."""
        return bytes(memoryview(self._buffer)[: self._receive(fd, 0)])

    def count_records(self, fd: int) -> int:
        return self._buffer.count(STAMP_MARK, 0, self._receive(fd, 0))

    def _receive(self, fd: int, offset: int) -> int:
        """Receive behind `offset`; how much the buffer then holds."""
        received = self._sockets[fd].recv_into(memoryview(self._buffer)[offset:])
        if not received:
            raise BenchError("the server closed the connection of a watcher")
        return offset + received


class Pollers:
    """Readers that each ask for what comes next, and ask again when they have it."""

    def __init__(self, job: Poll) -> None:
        self._job = job
        self._selector = selectors.EpollSelector()
        self._cursors: dict[Connection, str] = {}

    def __enter__(self) -> Self:
        for _ in range(self._job.readers):
            page = StreamPage() if isinstance(self._job.speaks, Offsets) else FeedPage()
            connection = Connection(self._job.port, page, self._selector)
            self._cursors[connection] = self._job.after
            self._ask(connection)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._cursors:
            connection.close()
        self._selector.close()

    def wait_stamps(self) -> Iterator[tuple[int, int]]:
        """The stamps that came, each after the time when it came."""
        for connection in wait_replies(self._selector, SILENCE_S_MAX):
            now_ns = perf_counter_ns()
            page = connection.reply
            assert isinstance(page, StreamPage | FeedPage)
            if not page.succeeded():
                raise BenchError(f"a long-poll failed; {format_excerpt(page)}")
            self._cursors[connection] = page.cursor()
            body = page.body
            self._ask(connection)
            for stamp_ns in parse_stamps(bytearray(body), len(body))[0]:
                yield now_ns, stamp_ns

    def _ask(self, connection: Connection) -> None:
        connection.send(format_get(self._job.path + self._cursors[connection], "*/*"), 0.0)


class Writers:
    """Connections that append the same record again and again."""

    def __init__(self, job: Flood) -> None:
        self._job = job
        self._selector = selectors.EpollSelector()
        self._idle: deque[Connection] = deque()
        self.sent = 0

    def __enter__(self) -> Self:
        for _ in range(self._job.ahead):
            self._idle.append(Connection(self._job.port, HttpReply(), self._selector))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()

    @property
    def busy(self) -> bool:
        return len(self._idle) < self._job.ahead

    def fileno(self) -> int:
        """Readable, for another epoll, when one of the connections is."""
        return self._selector.fileno()

    def send(self, delivered: int) -> None:
        """Send what may be sent when `delivered` records have arrived everywhere."""
        while self._idle and self.sent - delivered < self._job.ahead:
            self._idle.popleft().send(self._job.request, 0.0)
            self.sent += 1

    def take_replies(self) -> None:
        for connection in wait_replies(self._selector, 0):
            if not connection.reply.succeeded():
                raise BenchError(f"an append failed; {format_excerpt(connection.reply)}")
            self._idle.append(connection)


def parse_stamps(buffer: bytearray, size_bytes: int) -> tuple[list[int], int]:
    """The whole stamps in the beginning of a buffer, and where one starts whose end is to come."""
    stamps_ns: list[int] = []
    start = buffer.find(STAMP_MARK, 0, size_bytes)
    while start >= 0:
        stop = start + STAMP_BYTES
        if stop > size_bytes:
            return stamps_ns, start
        stamps_ns.append(int(buffer[start + 1 : stop]))
        start = buffer.find(STAMP_MARK, stop, size_bytes)
    return stamps_ns, size_bytes


def open_watcher(port: int, opening: Opening) -> socket.socket:
    """Connect and subscribe; what comes with the last greeting holds no records yet."""
    with ExitStack() as stack:
        link = stack.enter_context(connect(port))
        for step in opening:
            link.sendall(step.request)
            _wait_for(link, step.until)
        link.setblocking(False)
        stack.pop_all()
    return link


def _wait_for(link: socket.socket, until: bytes) -> None:
    held = bytearray()
    while until not in held:
        chunk = link.recv(RECEIVE_BYTES)
        held += chunk
        refused = held.startswith(b"HTTP/") and not held.startswith(_OPENED)
        if not chunk or refused or len(held) > GREETING_BYTES_MAX:
            excerpt = held[:EXCERPT_BYTES_MAX].decode(errors="replace")
            raise BenchError(f"a watcher could not subscribe; {excerpt}")


@contextmanager
def no_collection() -> Iterator[None]:
    """A pause of the collector would be measured as one of the server."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
