"""Where scenarios run: fresh servers side by side on one file system, measured in turns."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace_bench.checkout import Checkout
from headrace_bench.daemon import Daemon
from headrace_bench.errors import BenchError
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import wait_idle
from headrace_bench.redis import Fsync, RedisProcess

# Extra scenarios recover far more than the tests do.
READY_TIMEOUT_S = 600.0
OUTPUT_CHARS_MAX = 2000

REST_S_MAX = 30.0
"""How long upkeep of the one side may go on before the other side's turn begins all the same."""

T = TypeVar("T")
D = TypeVar("D", bound=Daemon)


class Sizes(msgspec.Struct, frozen=True):
    """How much of everything a run does."""

    rounds: int
    warmup_s: float
    window_s: float
    latency_window_s: float
    history_records: int
    topics: int
    streams: int
    jobs: int
    pipeline_records: int
    lag_window_s: float
    search_records: int


FULL = Sizes(
    rounds=5,
    warmup_s=0.5,
    window_s=2.0,
    latency_window_s=4.0,
    history_records=1_000_000,
    topics=100_000,
    streams=1_000_000,
    jobs=20_000,
    pipeline_records=2_000_000,
    lag_window_s=90.0,
    search_records=1_000_000,
)
QUICK = Sizes(
    rounds=3,
    warmup_s=0.2,
    window_s=0.6,
    latency_window_s=1.5,
    history_records=100_000,
    topics=5_000,
    streams=20_000,
    jobs=10_000,
    pipeline_records=300_000,
    lag_window_s=30.0,
    search_records=200_000,
)


@dataclass(frozen=True, slots=True)
class Arena:
    directory: Path
    sizes: Sizes
    with_redis: bool
    say: Callable[[str], None]
    with_peers: bool = True
    """Servers other than Redis, where they are installed."""
    checkout: Checkout | None = None
    """Whose server it is, unless this one's."""

    @contextmanager
    def server(self, env: dict[str, str] | None = None) -> Iterator[ServerProcess]:
        """A fresh Headrace whose data goes away with it."""
        with self.folder() as folder:
            data_dir = folder / "data"
            with ServerProcess(
                data_dir, env=env, ready_timeout_s=READY_TIMEOUT_S, checkout=self.checkout
            ) as server:
                try:
                    yield server
                except BenchError as error:
                    # The reason is often in what the server said, which goes away with it.
                    error.add_note(server.output()[-OUTPUT_CHARS_MAX:])
                    raise

    @contextmanager
    def contenders(self, fsync: Fsync, *, rewrites: bool = True) -> Iterator[Contenders]:
        """A fresh Headrace and, if it is installed, a fresh Redis."""
        with ExitStack() as stack:
            server = stack.enter_context(self.server())
            redis = None
            if self.with_redis:
                folder = stack.enter_context(self.folder())
                redis = stack.enter_context(RedisProcess(folder, fsync=fsync, rewrites=rewrites))
            yield Contenders(server, redis, self)

    def take_turns(self, what: str, *sides: Callable[[], T]) -> list[tuple[T, ...]]:
        """One result of each side for each round, as one tuple for each side.

        The sides of a round run right after each other, and every other round starts with the
        last of them, so that what the machine does meanwhile hits all of them alike.
        """
        results: list[list[T]] = [[] for _ in sides]
        for number in range(self.sizes.rounds):
            self.say(f"{what}, round {number + 1} of {self.sizes.rounds}")
            order = list(zip(results, sides, strict=True))
            for result, measure in order if number % 2 == 0 else reversed(order):
                result.append(measure())
        return [tuple(result) for result in results]

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder on the file system under test; it goes away afterwards."""
        folder = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def rest(daemon: Daemon) -> None:
    """Let a server finish what it does by itself, so that nobody else pays for it."""
    if daemon.running:
        wait_idle(daemon.pid, REST_S_MAX)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """An empty folder in memory, where syncs are free; in the usual place if there is no such."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=memory) as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True)
class Contenders:
    server: ServerProcess
    redis: RedisProcess | None
    arena: Arena

    def compare(
        self,
        what: str,
        of_server: Callable[[ServerProcess], T],
        of_redis: Callable[[RedisProcess], T],
    ) -> tuple[tuple[T, ...], tuple[T, ...]]:
        """The rounds of both sides; none for Redis where it is not installed."""
        if self.redis is None:
            return self.arena.take_turns(what, lambda: of_server(self.server))[0], ()
        server, redis = self.server, self.redis

        def rested(side: D, measure: Callable[[D], T]) -> T:
            for daemon in (server, redis):
                rest(daemon)
            return measure(side)

        ours, theirs = self.arena.take_turns(
            what, lambda: rested(server, of_server), lambda: rested(redis, of_redis)
        )
        return ours, theirs
