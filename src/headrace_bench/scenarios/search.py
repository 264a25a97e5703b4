"""Search: a million records, indexed by the pipeline, against DuckDB and Prisma Streams.

Everybody is asked the same questions over the same records, one at a time; every answer is checked
against DuckDB's, which looks at every record.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import cycle, islice
from time import perf_counter
from typing import Any, NamedTuple

from headrace_bench import evlog
from headrace_bench.arena import Arena, rest
from headrace_bench.control import (
    TIMEOUT_S,
    create_stream,
    create_topic,
    install_schema,
    read_details,
)
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, Counted, Cycle, Http
from headrace_bench.peers import duck, prisma
from headrace_bench.peers.duck import Duck, open_duck
from headrace_bench.peers.prisma import PrismaProcess
from headrace_bench.process import ServerProcess
from headrace_bench.questions import Answer, Question, differ, make_questions
from headrace_bench.report import RatioAtMost, Reach, Row
from headrace_bench.scenarios.pipeline import wait_pipeline
from headrace_bench.scenarios.rivals import OURS, make_rows, map_rounds
from headrace_bench.scenarios.streamhosts import JSON
from headrace_bench.scenarios.workload import make_batches
from headrace_bench.stats import percentile
from headrace_bench.wire import format_post
from headrace_bench.worker import run_appends

STREAM = "app"
PATH = f"/v1/stream/{STREAM}"
FILLER = "filler"
BATCH_RECORDS = 1000
BATCHES_AT_ONCE = 50
QUESTIONS = 6
"""Of each kind."""
ASKED_MIN = 2
SEAL_BYTES = 16 << 20
PRISMA_ENV = {"DS_SEGMENT_MAX_INTERVAL_MS": "2000", "DS_SEARCH_COMPANION_BATCH_SEGMENTS": "16"}
"""Without these it never indexes the last records, and the others late."""
PERCENTILES = (("p50", 0.5), ("p99", 0.99))
REACHES: Mapping[str, Reach] = {duck.NAME: RatioAtMost(1), prisma.NAME: RatioAtMost(0.5)}
HELD = ("exact", "range", "text", "aggregate")
"""The kinds of questions whose p50 the reaches are for."""
_WAIT_S = 600.0


class NoAnswer(BenchError):
    """A server did not answer, or wrongly."""


class TooLate(NoAnswer):
    """A server gave up, or a part of the answer."""


class Side(NamedTuple):
    """Somebody who answers."""

    ask: Callable[[Question], object]
    read: Callable[[Question, object], Answer]
    may_be_late: bool = False


def search(arena: Arena) -> Iterator[Row]:
    records = arena.sizes.search_records
    with ExitStack() as stack:
        server = stack.enter_context(_headrace(arena, records))
        ducks = stack.enter_context(open_duck(server.data_dir, STREAM))
        arena.say("indexing")
        _wait_indexed(server, ducks, records)
        sides = {
            OURS: stack.enter_context(_over_http(server.port)),
            duck.NAME: Side(partial(_ask_duck, ducks), _read_rows),
        }
        if arena.with_peers and prisma.is_installed():
            arena.say("Prisma: writing and indexing")
            peer = stack.enter_context(_prisma(arena, records))
            theirs = stack.enter_context(_over_http(peer.port))
            sides[prisma.NAME] = theirs._replace(may_be_late=True)
        samples = list(islice(evlog.documents(records), 0, None, records // QUESTIONS))[:QUESTIONS]
        rest(server)
        for kind, questions in make_questions(records, samples).items():
            yield from _compare(
                arena, f"search {records:,} records: {kind}", kind, questions, sides
            )


# --- the data -------------------------------------------------------------------------------------


@contextmanager
def _headrace(arena: Arena, records: int) -> Iterator[ServerProcess]:
    """A server with records in segments, and its pipeline at work."""
    env = {"HEADRACE_PIPELINE": "local", "HEADRACE_SEAL_BYTES": str(SEAL_BYTES)}
    with arena.server(env) as server:
        arena.say(f"writing {records:,} records")
        _write(server.port, records)
        create_topic(server.url, FILLER, "disk")
        batches = make_batches(FILLER, BATCH_RECORDS)  # until the last record is sealed, too
        count = 2 * SEAL_BYTES // len(batches[0])
        run_appends(Appends(server.port, 1, Http(), Cycle(batches), Counted(count)))
        yield server


@contextmanager
def _prisma(arena: Arena, records: int) -> Iterator[PrismaProcess]:
    with (
        arena.folder() as folder,
        PrismaProcess(folder, ingest_gate=prisma.WIDE_GATE, env=PRISMA_ENV) as peer,
    ):
        _write(peer.port, records)
        deadline = time.monotonic() + _WAIT_S
        while not _is_indexed(read_details(peer.port, PATH)):
            if time.monotonic() > deadline:
                raise BenchError("Prisma does not come to the end of indexing")
            time.sleep(1)
        yield peer


def _write(port: int, records: int) -> None:
    """One after the other, so that everybody has them in the same order."""
    create_stream(port, PATH, JSON)
    install_schema(port, PATH, evlog.SEARCH)
    source = evlog.documents(records)
    left = records // BATCH_RECORDS
    while left:
        count = min(left, BATCHES_AT_ONCE)
        bodies = [b"[%b]" % b",".join(islice(source, BATCH_RECORDS)) for _ in range(count)]
        requests = Cycle(tuple(format_post(PATH, body) for body in bodies))
        run_appends(Appends(port, 1, Http(), requests, Counted(count)))
        left -= count


def _wait_indexed(server: ServerProcess, ducks: Duck, records: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while (sealed := ducks.look()) < records:
        if time.monotonic() > deadline:
            raise BenchError(f"{sealed} of {records} records are sealed, and no more")
        time.sleep(1)
    wait_pipeline(
        server, lambda told: bool(told["segments"]) and not told["waiting_segments"], "the index"
    )
    rest(server)


def _is_indexed(told: Mapping[str, Any]) -> bool:
    """Whether every record of a stream is in an index, by what is told of it."""
    stream, index = told["stream"], told["index_status"]
    return (
        int(stream["pending_rows"]) == 0
        and stream["segment_count"] == stream["uploaded_segment_count"]
        and all(family["fully_indexed_uploaded_segments"] for family in index["search_families"])
    )


# --- asking ---------------------------------------------------------------------------------------


def _compare(
    arena: Arena, what: str, kind: str, questions: Sequence[Question], sides: Mapping[str, Side]
) -> Iterator[Row]:
    expected = {q: sides[duck.NAME].read(q, sides[duck.NAME].ask(q)) for q in questions}
    silences: dict[str, str] = {}
    taking: dict[str, Callable[[], list[float]]] = {}
    for name, side in sides.items():
        try:  # the first answers warm everything up
            first_ms = [_measure_ms(side, question, expected) for question in questions]
        except NoAnswer as error:
            if name == OURS:
                raise
            silences[name] = str(error)
            continue
        if name == OURS:
            asked = f"{what}, asked for the first time, p50"
            yield Row(what=asked, unit="ms", headrace=(percentile(first_ms, 0.5),))
        window_s = arena.sizes.window_s / 2  # there are many kinds, and many answers in a second
        taking[name] = partial(_ask_all, side, cycle(questions), expected, window_s)
    results = arena.take_turns(what, *taking.values())
    rounds = dict(zip(taking, results, strict=True))
    installs = {duck.NAME: "", prisma.NAME: prisma.format_install()}
    for name, part in PERCENTILES:
        parts = map_rounds(rounds, partial(percentile, part=part))
        reaches = REACHES if name == "p50" and kind in HELD else {}
        yield from make_rows(f"{what}, {name}", "ms", parts, installs, reaches, silences)


def _ask_all(
    side: Side,
    questions: Iterator[Question],
    expected: Mapping[Question, Answer],
    window_s: float,
) -> list[float]:
    latencies_ms: list[float] = []
    until = perf_counter() + window_s
    while perf_counter() < until or len(latencies_ms) < ASKED_MIN:
        start = perf_counter()
        try:
            latencies_ms.append(_measure_ms(side, next(questions), expected))
        except TooLate:
            if not side.may_be_late:
                raise
            latencies_ms.append((perf_counter() - start) * 1000)  # it would have taken longer
    return latencies_ms


def _measure_ms(side: Side, question: Question, expected: Mapping[Question, Answer]) -> float:
    start = perf_counter()
    raw = side.ask(question)
    elapsed_ms = (perf_counter() - start) * 1000
    if wrong := differ(side.read(question, raw), expected[question]):
        raise NoAnswer(f"a wrong answer to {question.body.decode()}: {wrong}")
    return elapsed_ms


@contextmanager
def _over_http(port: int) -> Iterator[Side]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def ask(question: Question) -> bytes:
        headers = {"Content-Type": JSON}
        connection.request("POST", f"{PATH}/{question.resource}", question.body, headers)
        reply = connection.getresponse()
        raw = reply.read()
        if reply.status == http.HTTPStatus.REQUEST_TIMEOUT:
            raise TooLate("no whole answer in the time there is")
        if reply.status != http.HTTPStatus.OK:
            raise BenchError(f"{question.body.decode()} answered {reply.status}: {raw[:500]!r}")
        return raw

    with closing(connection):
        yield Side(ask, lambda question, raw: question.read_reply(raw))  # type: ignore[arg-type]


def _ask_duck(ducks: Duck, question: Question) -> object:
    return ducks.ask(question.sql)


def _read_rows(question: Question, rows: object) -> Answer:
    return question.read_rows(rows)  # type: ignore[arg-type]
