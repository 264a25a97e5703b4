"""The engine: the kernel with all its parts, as surfaces reach them.

What can be done with logs is in the parts, each in a module of its own; nothing is done here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from headrace.core import state as catalog
from headrace.core.errors import Code, Refused
from headrace.core.state import State
from headrace.engine.appender import Appender
from headrace.engine.caps import Caps
from headrace.engine.deleter import Deleter
from headrace.engine.inspection import Inspection
from headrace.engine.kernel import Kernel
from headrace.engine.live import Live
from headrace.engine.logs import Logs
from headrace.engine.metering import Meter
from headrace.engine.plans import Plans
from headrace.engine.ports import Clock, Pool
from headrace.engine.queues import Queues
from headrace.engine.ranking import Ranker
from headrace.engine.reader import Reader
from headrace.engine.routers import Routers
from headrace.engine.shapes import Shapes
from headrace.engine.streams import Streams
from headrace.engine.subscriptions import Subscriptions
from headrace.engine.touching import Touching
from headrace.engine.transactions import Transactions
from headrace.engine.turns import Turns
from headrace.storage.journal import Journal
from headrace.storage.segments import Segments
from headrace.storage.staging import Staging


class Backlog(NamedTuple):
    """Parts of the journal that wait to be sealed, and how much may wait in memory."""

    parts: int = 0
    size_bytes: int = 0
    memory_max_bytes: int = 0
    unsealed_bytes: int = 0
    """Of the journal behind what is sealed, the open part too; 0 when no record waits."""
    age_ms: int = 0
    """How long the oldest record waits."""


class Sealed(NamedTuple):
    """What was sealed, and the manifest version in which it is."""

    records: int
    segments: int
    manifest: int


class Seal(Protocol):
    """Seals what was written before the call."""

    def __call__(self, *, retire: bool = False) -> Awaitable[Sealed]: ...


class Engine(Kernel):
    """All logs of one data directory, in operation."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        segments: Segments,
        clock: Clock,
        pool: Pool,
        caps: Caps,
        staging: Staging,
    ) -> None:
        super().__init__(state, journal, clock, pool, caps)
        self.segments = segments
        self.turns = Turns(clock, pool, self.door)
        self.renew: Callable[[], Awaitable[None]] = _nothing_new
        """Takes over what others have published of segments."""
        self.let_go: Callable[[str], Awaitable[bool]] = _nothing_else
        """Does without an object that is lost; says whether that is possible."""
        self.backlog: Callable[[], Backlog] = Backlog
        """What waits to be sealed."""
        self.seal: Seal = _nothing_to_seal
        """Seals what was written before; with `retire` the journal lets go of it."""
        self.logs = Logs(self)
        self.appender = Appender(self)
        self.reader = Reader(self)
        self.deleter = Deleter(self)
        self.transactions = Transactions(self, staging)
        self.queues = Queues(self)
        self.routers = Routers(self)
        self.streams = Streams(self)
        self.subscriptions = Subscriptions(self)
        self.plans = Plans(self)
        self.shapes = Shapes(self)
        self.touching = Touching(self)
        self.meter: Meter | None = None
        """Measures what is done with streams, if anybody writes it down."""
        self.inspection = Inspection(self)
        self.ranker = Ranker(self)

    # --- finding ---------------------------------------------------------------------------------

    def live(self, name: str) -> Live:
        """A log whose records are JSON: a topic, or a stream of JSON."""
        log = self.state.by_name.get(name)
        if log is None or (log.stream is not None and not self.streams.is_there(log)):
            raise catalog.not_found(name)
        if log.stream is not None and not log.stream.is_json:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{name}" is a stream of {log.stream.content_type}, not of JSON',
                topic=name,
            )
        return self.lives[log.id]

    def state_of(self, name: str) -> Live:
        """A log with its floors as of now. Whoever tells of it must `settle` before."""
        live = self.live(name)
        self.expire_now(live)
        return live


async def _nothing_new() -> None:
    pass


async def _nothing_to_seal(*, retire: bool = False) -> Sealed:
    return Sealed(0, 0, 0)


async def _nothing_else(name: str) -> bool:
    return False
