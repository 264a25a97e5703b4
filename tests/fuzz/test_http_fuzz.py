"""Whatever comes on an HTTP connection: no failure, the same answers however it is cut, and nothing
is left of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headrace.web.answers import Answer, Handover
from headrace.web.request import Request
from support.lines import Echo, Line, Site, run

from .rawhttp import cut, make_stream

STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) [^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n")
EXPECTED = {100, 101, 200, 400, 408, 431, 501, 505}
SEEDS = range(1, 9)
STREAMS = 40
SECONDS_MAX = 300


class Notes(Echo):
    """Answers, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []

    async def __call__(self, request: Request) -> Answer | Handover:
        known = len(self.bodies)
        answer = await super().__call__(request)
        if len(self.bodies) > known:  # half a request may be begun or not
            self.asked.append((request.method, request.raw_path, request.query, request.headers))
        return answer


async def hear(site: Site, notes: Notes, pieces: list[bytes]) -> tuple[Any, ...]:
    """All that comes of these bytes on a connection, until it is over."""
    notes.asked, notes.bodies = [], []
    line: Line = site.connect()
    protocol = line.protocol
    for piece in pieces:
        await line.send(piece)
        assert len(protocol._queue) < 300
    for _ in range(SECONDS_MAX):
        if line.closing:
            break
        await asyncio.sleep(1)
    await line.settle()
    assert line.closing
    assert not site.shared.open
    assert site.shared.head_bytes == 0
    statuses = {int(found) for found in STATUS.findall(line.heard)}
    assert statuses <= EXPECTED, line.heard
    answers = [found.startswith(b"2") for found in STATUS.findall(line.heard) if found != b"100"]
    return answers, notes.asked, notes.bodies  # what is refused may be so for two reasons


def fuzz(seed: int, streams: int) -> None:
    random, notes = Random(seed), Notes()

    async def story(site: Site) -> None:
        for number in range(streams):
            raw = make_stream(random)
            whole = await hear(site, notes, [raw])
            again = await hear(site, notes, cut(random, raw))
            assert whole == again, f"stream {number}: {raw!r}"

    run(story, notes)


@pytest.mark.parametrize("seed", SEEDS)
def test_nearly_http(seed: int) -> None:
    fuzz(seed, STREAMS)


@pytest.mark.soak
def test_nearly_http_for_long(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        fuzz(seed, STREAMS)
