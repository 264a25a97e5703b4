"""What the benchmark of search asks: as requests to servers of streams, and as SQL for DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

import msgspec

from headrace.search.values import format_date, parse_date_ms
from headrace_bench import evlog
from headrace_bench.errors import BenchError

PAGE_HITS = 50
ROLLUP, INTERVAL, INTERVAL_MS = "latency", "1m", 60_000
_SUM_PRECISION = 1e-9
"""Sums of floats depend on the order of adding."""


class Page(msgspec.Struct, frozen=True):
    """The best hits, and how many records match if that was told."""

    total: int | None
    sources: list[Any]


Cells = dict[tuple[int, str], tuple[int, float, float, float]]
"""Count, sum, least and greatest duration of each minute and service."""


class Hits(msgspec.Struct, frozen=True):
    """A page of what matches a query."""

    query: str
    where: str
    """The same in SQL."""
    rank: str = "seq"
    """What hits are sorted by, the greatest first."""
    sort: tuple[str, ...] = ()

    resource = "_search"

    @property
    def body(self) -> bytes:
        body: dict[str, Any] = {"q": self.query, "size": PAGE_HITS}
        return msgspec.json.encode(body | ({"sort": self.sort} if self.sort else {}))

    @property
    def sql(self) -> str:
        best = f"arg_max({{'seq': seq, 'data': data}}, {self.rank}, {PAGE_HITS})"
        return f"select count(*), {best} from records where {self.where}"

    def read_rows(self, rows: list[tuple[Any, ...]]) -> Page:
        ((total, best),) = rows
        return Page(total, [msgspec.json.decode(hit["data"]) for hit in best or ()])

    def read_reply(self, raw: bytes) -> Page:
        reply = msgspec.json.decode(raw)
        total = reply["total"]
        return Page(
            total["value"] if total["relation"] == "eq" else None,
            [hit["source"] for hit in reply["hits"]],
        )


class Windows(msgspec.Struct, frozen=True):
    """Count and durations by service, minute by minute."""

    start_ms: int
    stop_ms: int

    resource = "_aggregate"

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(
            {
                "rollup": ROLLUP,
                "from": format_date(self.start_ms),
                "to": format_date(self.stop_ms),
                "interval": INTERVAL,
                "group_by": ["service"],
                "measures": ["n", "ms"],
            }
        )

    @property
    def sql(self) -> str:
        return f"""
            with read as (
                select epoch_ms(cast(f[1] as timestamp)) as stamp, f[2] as service,
                    cast(f[3] as double) as duration
                from (select doc->>['$.timestamp', '$.service', '$.duration'] as f from records)
            )
            select stamp - stamp % {INTERVAL_MS}, service,
                count(*), sum(duration), min(duration), max(duration)
            from read where stamp >= {self.start_ms} and stamp < {self.stop_ms} group by all"""

    def read_rows(self, rows: list[tuple[Any, ...]]) -> Cells:
        return {(start, service): tuple(cell) for start, service, *cell in rows}

    def read_reply(self, raw: bytes) -> Cells:
        cells: Cells = {}
        for bucket in msgspec.json.decode(raw)["buckets"]:
            start = parse_date_ms(bucket["start"])
            assert start is not None
            for group in bucket["groups"]:
                ms = group["measures"]["ms"]
                counts = group["measures"]["n"]["count"], ms["count"]
                if counts[0] != counts[1]:
                    raise BenchError(f"a group has two counts: {counts}")
                cells[start, group["key"]["service"]] = (
                    *counts[:1],
                    ms["sum"],
                    ms["min"],
                    ms["max"],
                )
        return cells


Question = Hits | Windows
Answer = Page | Cells


def make_questions(records: int, samples: Sequence[bytes]) -> dict[str, list[Question]]:
    """Questions by kind, of which each has an answer among so many records: one for a sample."""
    found: dict[str, list[Question]] = {}
    span_ms = records * evlog.STEP_MS
    for at, raw in enumerate(samples):
        document = msgspec.json.decode(raw)
        word, other = document["message"].split()[1:3]
        request = document["requestId"]
        slow = 300 + 10 * at
        start_ms = evlog.START_MS + span_ms * at // (2 * len(samples))
        start_ms -= start_ms % INTERVAL_MS
        stop_ms = evlog.START_MS + span_ms
        questions: dict[str, Question] = {
            "exact": Hits(f"requestId:{request}", f"{_text('requestId')} = '{request}'"),
            "range": Hits(f"duration:>={slow}", f"{_number('duration')} >= {slow}"),
            "text": Hits(f"message:{word}", _has(word), _scored(word)),
            "phrase": Hits(
                f'message:"{word} {other}"', _has(f"{word} {other}"), _scored(f"{word}|{other}")
            ),
            "OR": Hits(
                f"message:{word} OR duration:>={slow}",
                f"{_has(word)} or {_number('duration')} >= {slow}",
                _scored(word),
            ),
            "sort by a field": Hits(
                f"level:error status:{document['status']}",
                f"{_text('level')} = 'error' and {_number('status')} = {document['status']}",
                f"{{'a': {_number('duration')}, 'b': seq}}",
                ("duration:desc",),
            ),
            "aggregate": Windows(start_ms, stop_ms),
            "aggregate between minutes": Windows(start_ms + 1234, stop_ms - 4321),
        }
        for kind, question in questions.items():
            found.setdefault(kind, []).append(question)
    return found


def differ(answer: Answer, expected: Answer) -> str:
    """In what an answer is wrong; nothing if it is right."""
    match answer, expected:
        case Page(), Page():
            if answer.total is not None and answer.total != expected.total:
                return f"{answer.total} records match, not {expected.total}"
            if answer.sources != expected.sources:
                pairs = zip(answer.sources, expected.sources, strict=False)
                at = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
                counts = f"{len(answer.sources)} of {len(expected.sources)} hits"
                return f"{counts}, the first wrong one at {at}"
        case dict(), dict():
            if answer.keys() != expected.keys():
                return f"{len(answer)} groups, not {len(expected)}"
            for key, cell in expected.items():
                count, total, *extremes = answer[key]
                if (count, *extremes) != (cell[0], *cell[2:]) or not isclose(
                    total, cell[1], rel_tol=_SUM_PRECISION
                ):
                    return f"{key} is {answer[key]}, not {cell}"
        case _:
            return f"{type(answer).__name__} instead of {type(expected).__name__}"
    return ""


def _text(field: str) -> str:
    return f"(doc->>'$.{field}')"


def _number(field: str) -> str:
    return f"cast({_text(field)} as double)"


def _has(words: str) -> str:
    return f"contains(' ' || {_text('message')} || ' ', ' {words} ')"


def _scored(words: str) -> str:
    """By how often the words are there, then by time."""
    found = f"len(regexp_extract_all({_text('message')}, '\\b({words})\\b'))"
    return f"{{'a': {found}, 'b': seq}}"
