"""However a request ends, its slot is free, and its connection hears of it once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.web.answers import Answer, Handover, Reply
from headrace.web.calls import Call, Gate
from headrace.web.concurrency import Slots
from headrace.web.connection import Connection, Connections
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import Keyring
from headrace.web.envelope import WORDS, close, refuser
from headrace.web.request import Request
from headrace.web.request_task import RequestTask
from headrace.web.responder import Responder
from headrace.web.surface import Described, Route, Surface, complete
from support.asking import make_request

Sent = list[Answer | Handover | None]


async def waits(call: Call) -> Answer:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def shows(call: Call) -> Answer:
    return Answer(200, [], b"{}")


async def replies(call: Call) -> Reply:
    return Reply([b"{"])


async def fails(call: Call) -> Answer:
    raise KeyError("a bug")


def fails_at_once(call: Call) -> Any:
    raise KeyError("a bug before anything is awaited")


def bug(*_: object) -> Any:
    raise ZeroDivisionError


def make(handler: Any, **more: Any) -> tuple[Gate, Responder]:
    refusals = complete(WORDS)
    how: dict[str, Any] = {"refuse": refuser(refusals), "finish": close} | more
    route = Route("GET", "/t", handler, "", {200: Described(None, "")})
    surface = Surface(
        name="tried", title="Tried", prefixes=("/t",), routes=[route], refusals=refusals, **how
    )
    gate = Gate(CredentialStore(Keyring()), Slots(), Slots(), 1 << 20)
    return gate, Responder(gate, [surface])


def end(handler: Any, **more: Any) -> tuple[Gate, Sent]:
    """What is sent for one request."""

    async def story() -> tuple[Gate, Sent]:
        gate, respond = make(handler, **more)
        sent: Sent = []

        def send(_: Request, answer: Answer | Handover | None) -> None:
            sent.append(answer)

        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        tasks: list[RequestTask | None] = []

        def begin() -> None:
            try:
                tasks.append(respond(make_request("GET", "/t"), send))
            finally:
                begun.set()

        loop.call_soon(begin)
        await begun.wait()
        (task,) = tasks
        if task is not None:
            assert len(gate.slots) == 1
            assert task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert task.done()
        return gate, sent

    return asyncio.run(story())


@pytest.mark.parametrize("handler", [shows, replies, fails, fails_at_once])
def test_an_answer_is_sent_once_and_the_slot_is_free(handler: Any) -> None:
    gate, sent = end(handler)
    assert [type(each) for each in sent] == [Answer]
    assert len(gate.slots) == 0


def test_who_is_broken_off_answers_nothing() -> None:
    gate, sent = end(waits)
    assert sent == [None]
    assert len(gate.slots) == 0


def test_a_reply_that_cannot_be_closed_is_a_refusal() -> None:
    gate, sent = end(replies, finish=bug)
    assert [each.status for each in sent if type(each) is Answer] == [500]
    assert len(gate.slots) == 0


@pytest.mark.parametrize("handler", [fails, fails_at_once])
def test_where_a_refusal_fails_too_the_connection_hears_of_it(handler: Any) -> None:
    gate, sent = end(handler, refuse=bug)
    assert sent == [None]
    assert len(gate.slots) == 0


def test_where_answers_cannot_be_counted_the_connection_hears_of_it() -> None:
    gate, sent = end(shows, observe=bug)
    assert sent == [None]
    assert len(gate.slots) == 0


def test_what_breaks_itself_off_ends_at_its_next_wait() -> None:
    class Task(RequestTask):
        error: BaseException | None = None

        def __init__(self) -> None:
            self._loop = asyncio.get_running_loop()

        def ended(self, result: object, error: BaseException | None) -> None:
            self.error = error

    async def story() -> None:
        async def work() -> None:
            task.cancel()
            await asyncio.get_running_loop().create_future()

        task = Task()
        asyncio.get_running_loop().call_soon(lambda: task.run(work()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert isinstance(task.error, asyncio.CancelledError)
        assert task.done()

    asyncio.run(story())


def test_a_connection_that_is_gone_gives_back_what_it_was_to_be_handed_over_with() -> None:
    async def story() -> None:
        connection = Connection(lambda request, send: None, Connections())
        freed: list[bool] = []
        given = Handover(None, [], on_end=lambda: freed.append(True))  # type: ignore[arg-type]
        connection._finish(make_request("GET", "/t"), given)
        assert freed == [True]

    asyncio.run(story())
