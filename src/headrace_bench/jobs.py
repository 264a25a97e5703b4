"""What a load process is told to do and what it answers, as messages between two processes."""

from __future__ import annotations

import msgspec

from headrace_bench.errors import BenchError


class Message(msgspec.Struct, frozen=True, tag=True):
    """A value that crosses the process boundary."""


class Http(Message, frozen=True):
    """Each request gets one HTTP/1.1 reply."""


class Resp(Message, frozen=True):
    """Each request is a Redis pipeline that gets this many bulk replies."""

    replies: int = 1


class Offsets(Message, frozen=True):
    """Each page is what a GET of a stream answers, and says at which offset the next one starts."""


class Numbers(Message, frozen=True):
    """Each page is what a GET of a feed answers, and says behind which number the next one is."""


class Cycle(Message, frozen=True):
    """Prebuilt requests, sent in turn for as long as it takes."""

    requests: tuple[bytes, ...]


class Numbered(Message, frozen=True):
    """Requests that differ in one number, counted up from zero between head and tail."""

    head: bytes
    tail: bytes


class Stamped(Message, frozen=True):
    """One request into which the moment it is sent is written, between head and tail."""

    head: bytes
    tail: bytes


class Timed(Message, frozen=True):
    """Closed loop: as fast as replies come, counted in a window after a warm-up."""

    warmup_s: float
    window_s: float


class Counted(Message, frozen=True):
    """Closed loop: exactly this many requests, all of them counted."""

    requests: int


class Paced(Message, frozen=True):
    """Open loop: a fixed rate; latency counts from when a request was due, sent late or not."""

    rate_per_s: float
    warmup_s: float
    window_s: float

    @property
    def requests(self) -> int:
        return round((self.warmup_s + self.window_s) * self.rate_per_s)


class Appends(Message, frozen=True):
    port: int
    connections: int
    speaks: Http | Resp
    source: Cycle | Numbered | Stamped
    plan: Timed | Counted | Paced


class CatchUp(Message, frozen=True):
    """Read a log page by page from its start until a page brings nothing new, or says so."""

    port: int
    speaks: Http | Resp | Offsets
    log: str
    """Its name; for a stream, its path and query, ending with `offset=`."""
    page_records: int = 0
    """Where the reader may choose."""


class Step(Message, frozen=True):
    """Bytes to send, and what must have come back before the next step."""

    request: bytes
    until: bytes


# What one watcher does to be connected and subscribed.
Opening = tuple[Step, ...]


class Watch(Message, frozen=True):
    """Open watchers, say so, and take `records` stamped records with each of them."""

    port: int
    openings: tuple[Opening, ...]
    records: int
    warmup_s: float


class Listen(Message, frozen=True):
    """Open watchers, say so, and take whatever comes, for so long at most or until ended."""

    port: int
    openings: tuple[Opening, ...]
    window_s_max: float


class Poll(Message, frozen=True):
    """Long-poll a log with many readers, each until it has `records` stamped records."""

    port: int
    speaks: Offsets | Numbers
    path: str
    """With its query, ending where the cursor is put."""
    after: str
    """The cursor that all of them begin with."""
    readers: int
    records: int
    warmup_s: float


class Changes(Message, frozen=True):
    """Open watchers and upload: each time, take one event with each of them."""

    port: int
    openings: tuple[Opening, ...]
    uploads: tuple[bytes, ...]
    warmup_uploads: int


class Hints(Message, frozen=True):
    """Connect consumers over gRPC and store events: each time, take one hint with each of them."""

    port: int
    grpc_port: int
    tenant: str
    consumers: int
    request: bytes
    events: int
    warmup_events: int


class Flood(Message, frozen=True):
    """Append as fast as the watchers get it: `ahead` records are under way to them all the time."""

    port: int
    openings: tuple[Opening, ...]
    request: bytes
    ahead: int
    window_s: float


class Drain(Message, frozen=True):
    """Workers that claim, acknowledge and claim again until the queue is empty."""

    port: int
    speaks: Http | Resp
    queue: str
    workers: int
    claim_jobs: int


class Tally(Message, frozen=True):
    """What a load of appends measured."""

    completed: int
    elapsed_s: float
    failures: int
    first_failure: str
    latencies_ms: list[float]

    @property
    def rate_per_s(self) -> float:
        return self.completed / self.elapsed_s


class Reading(Message, frozen=True):
    """What a catch-up read measured; `cursor` is where it ended."""

    pages: int
    size_bytes: int
    elapsed_s: float
    cursor: str


class Latencies(Message, frozen=True):
    """How long each delivery was under way, from just before it was sent."""

    latencies_ms: list[float]


class Flow(Message, frozen=True):
    """How much was done in how long, and which part of that time this process computed."""

    completed: int
    elapsed_s: float
    busy: float

    @property
    def rate_per_s(self) -> float:
        return self.completed / self.elapsed_s


def require_success(tally: Tally) -> Tally:
    """A rate that contains refusals is no rate: one failure fails the run."""
    if tally.failures:
        total = tally.failures + tally.completed
        raise BenchError(f"{tally.failures} of {total} requests failed; {tally.first_failure}")
    if not tally.completed:
        raise BenchError("no request completed in the window")
    return tally
