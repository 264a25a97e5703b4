"""The servers that speak the protocol of streams, side by side: alike but for where streams are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace_bench.arena import Arena
from headrace_bench.control import create_stream
from headrace_bench.peers import durable_streams, prisma
from headrace_bench.peers.durable_streams import DurableStreamsProcess
from headrace_bench.peers.prisma import PrismaProcess
from headrace_bench.process import ServerProcess
from headrace_bench.scenarios.rivals import OURS

StreamDaemon = ServerProcess | DurableStreamsProcess | PrismaProcess
Folder = Callable[[], AbstractContextManager[Path]]

PREFIX = "/ds/v1/stream/"
TEXT = "text/plain"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class StreamHost:
    """A running server, and below which path its streams are."""

    daemon: StreamDaemon
    prefix: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def create(self, content_type: str) -> str:
        """A stream that nobody used before; returns its path."""
        path = f"{self.prefix}bench-{next(self._numbers)}"
        create_stream(self.daemon.port, path, content_type)
        return path


@contextmanager
def stream_hosts(arena: Arena, node_folder: Folder | None = None) -> Iterator[Hosts]:
    """Headrace and every peer that is installed, each over a folder of its own.

    All of them sync before they acknowledge. Where the files of the Node server are may be chosen.
    """
    with ExitStack() as stack:
        hosts = {OURS: StreamHost(stack.enter_context(arena.server()), PREFIX)}
        if arena.with_peers and durable_streams.is_installed():
            folder = stack.enter_context((node_folder or arena.folder)())
            node = stack.enter_context(DurableStreamsProcess(folder))
            hosts[durable_streams.NAME] = StreamHost(node, durable_streams.PREFIX)
        if arena.with_peers and prisma.is_installed():
            gates = {prisma.NAME: None, prisma.NAME_WIDE: prisma.WIDE_GATE}
            for name, gate in gates.items():
                folder = stack.enter_context(arena.folder())
                process = stack.enter_context(PrismaProcess(folder, ingest_gate=gate))
                hosts[name] = StreamHost(process, prisma.PREFIX)
        yield hosts


Hosts = Mapping[str, StreamHost]


def stream_installs() -> dict[str, str]:
    """Who Headrace is held against, and how to install them."""
    return {
        durable_streams.NAME: durable_streams.format_install(),
        prisma.NAME: prisma.format_install(),
        prisma.NAME_WIDE: prisma.format_install(),
    }
