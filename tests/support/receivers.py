"""Receivers of webhooks that answer as they are told, on whatever loop the test has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from headrace.core.match import TagEq
from headrace.core.selector import EVERYTHING, ColumnSelector, Selector
from headrace.engine.callbacks.sender import DeliveryFailed, ReceiverReply
from headrace.engine.consumers.webhook_format import OutgoingBatch, OutgoingTest


class Received(NamedTuple):
    """One call."""

    at_s: float
    url: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def seqs(self) -> list[int]:
        found: list[int] = msgspec.json.decode(self.body)["seqs"]
        return found


Answer = int | tuple[int, int] | str | None
"""A status; one with the milliseconds of Retry-After; "hang"; None: as the call is let go on."""


class ScriptedReceivers:
    """Takes calls, and answers each URL by its script, then with 200."""

    def __init__(self) -> None:
        self.calls: list[Received] = []
        self.taken: list[Received] = []
        self.script: dict[str, list[Answer]] = {}
        self.always: dict[str, Answer] = {}
        self.release = asyncio.Event()
        self.on_call: Callable[[Received], None] = lambda call: None
        self.under_way = 0
        self.checked: list[str] = []

    async def check(self, url: str) -> None:
        self.checked.append(url)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverReply:
        call = Received(asyncio.get_running_loop().time(), url, dict(headers), body)
        self.calls.append(call)
        self.on_call(call)
        script = self.script.get(url)
        answer = script.pop(0) if script else self.always.get(url, 200)
        self.under_way += 1
        try:
            if answer == "hang":
                await asyncio.sleep(15)
                raise DeliveryFailed("no answer in 15 s")
            if answer is None:
                await self.release.wait()
                answer = 200
        finally:
            self.under_way -= 1
        assert not isinstance(answer, str)
        status, retry_after_ms = answer if isinstance(answer, tuple) else (answer, None)
        if not 200 <= status < 300:
            raise DeliveryFailed(f"status {status}", status, retry_after_ms)
        self.taken.append(call)
        return ReceiverReply(status)


class SeqFormat:
    """Deliveries that list seqs; a filter is a tag."""

    tells_losses = True

    def parse_filter(self, filter: bytes) -> Selector:
        return ColumnSelector(match=TagEq(filter.decode())) if filter else EVERYTHING

    def render(self, batch: OutgoingBatch) -> bytes:
        page = batch.page
        seqs = [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]
        lost = None if page.gap is None else [page.gap.first, page.gap.last]
        said = {"id": batch.id, "webhook": batch.webhook, "seqs": seqs, "lost": lost}
        return msgspec.json.encode(said)

    def render_test(self, test: OutgoingTest) -> bytes:
        return msgspec.json.encode({"id": test.id, "webhook": test.webhook, "test": True})

    def headers(self, id: str, body: bytes, secrets: tuple[str, ...]) -> Mapping[str, str]:
        return {"content-type": "application/json", "x-delivery": id}
