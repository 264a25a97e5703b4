"""Large appends are formed before their turn: the outcome is that of small ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from unittest import mock

import msgspec
import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import NORMALISE_BYTES, NORMALISE_RECORDS, NORMALISE_STEPS
from headrace.core.record import Drafts, draft, payloads
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Producer, Write
from headrace.core.transaction import Chunk
from headrace.engine.engine import Engine
from headrace.engine.streams.ingest_rules import IngestRules
from headrace.engine.streams.lifecycle import StreamWritten
from headrace.engine.streams.metering import Meter, Metering
from headrace.profiles.catalogue import parse_profile
from headrace.schemas.evolution import parse_update
from headrace.schemas.validation import Validator
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.inline_ports import Inline
from support.virtual import VirtualClock, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")

LARGE = [msgspec.json.encode({"requestId": f"r{n}", "token": "t" * 100}) for n in range(2000)]
assert sum(map(len, LARGE)) > 3 * NORMALISE_BYTES


async def adopt(engine: Engine, kind: str) -> None:
    await engine.ingest.install_profile(engine.streams.find("s"), parse_profile({"kind": kind}))


async def make(engine: Engine, kind: str) -> None:
    await engine.streams.create("s", Spec(content_type=JSON), None)
    await adopt(engine, kind)


def held(engine: Engine) -> list[dict[str, object]]:
    blocks = engine.streams.find("s").tail.blocks
    return [msgspec.json.decode(block.data_at(at)) for block in blocks for at in range(block.count)]


def test_others_get_a_turn_while_much_is_formed(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make(engine, "evlog")
        large = asyncio.create_task(engine.streams.write("s", draft(LARGE), Write(JSON)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await engine.streams.write("s", draft([b'{"requestId":"first"}']), Write(JSON))
        await large
        found = held(engine)
        assert [each["requestId"] for each in found[:2]] == ["first", "r0"]
        assert len(found) == 2001
        assert all(each["context"] == {"token": "[REDACTED]"} for each in found[1:])
        block = engine.streams.find("s").tail.blocks[-1]
        assert block.keys is not None
        assert block.keys[-1] == "r1999"

    loop.run(story())


COSTLY = {"enum": [{"a": number} for number in range(2000)]}
SMALL = [b'{"a":1999}'] * 300
assert sum(map(len, SMALL)) < NORMALISE_BYTES


async def install(engine: Engine, schema: dict[str, object]) -> None:
    update = parse_update(msgspec.json.encode({"schema": schema}), engine.ingest.proof_budget())
    await engine.ingest.install_schema(engine.streams.find("s"), update)


async def turns_of(writing: asyncio.Task[StreamWritten]) -> int:
    turns = 0
    while not writing.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_others_get_a_turn_while_few_bytes_are_dear_to_check(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await engine.streams.create("s", Spec(content_type=JSON), None)
        await install(engine, COSTLY)
        writing = asyncio.create_task(engine.streams.write("s", draft(SMALL), Write(JSON)))
        steps = Validator(msgspec.json.encode(COSTLY)).steps(SMALL[0])
        assert await turns_of(writing) > len(SMALL) * steps // NORMALISE_STEPS // 2
        assert len(held(engine)) == len(SMALL)

    loop.run(story())


class Beside(Inline):
    """Knows whether work is done for it, and so beside everybody else."""

    at_work = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.at_work = True
        try:
            return await super().run(work, *args, **kwargs)
        finally:
            self.at_work = False


@pytest.mark.parametrize("count", [NORMALISE_RECORDS, 3 * NORMALISE_RECORDS])
def test_many_records_are_taken_apart_and_joined_beside_the_loop(
    loop: VirtualLoop, count: int
) -> None:
    pool = Beside()
    beside = []

    def take_apart(drafts: Drafts) -> list[bytes]:
        beside.append(pool.at_work)
        return payloads(drafts)

    class Watched(IngestRules):
        def _join(self, *args: Any) -> Drafts:
            beside.append(pool.at_work)
            return super()._join(*args)

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop), pool=pool)).engine
        await engine.streams.create("s", Spec(content_type=JSON), None)
        await install(engine, COSTLY)
        with (
            mock.patch("headrace.engine.streams.ingest_rules.payloads", take_apart),
            mock.patch("headrace.engine.streams.ingest_rules.IngestRules", Watched),
        ):
            await engine.streams.write("s", draft([b'{"a":7}'] * count), Write(JSON))
        assert beside == [count > NORMALISE_RECORDS] * 2
        assert engine.streams.find("s").log.count == count

    loop.run(story())


def test_appends_that_are_dear_to_check_take_turns_with_each_other(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await engine.streams.create("s", Spec(content_type=JSON), None)
        await install(engine, COSTLY)
        alone = await turns_of(
            asyncio.create_task(engine.streams.write("s", draft(SMALL), Write(JSON)))
        )
        writes = [
            asyncio.create_task(engine.streams.write("s", draft(SMALL), Write(JSON)))
            for _ in range(4)
        ]
        turns = [await turns_of(write) for write in writes]
        assert sum(turns) > 3 * alone

    loop.run(story())


def test_what_changes_meanwhile_counts(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make(engine, "state-protocol")
        marks = [b'{"headers":{"control":"reset"}}'] * 10_000
        writing = asyncio.create_task(engine.streams.write("s", draft(marks), Write(JSON)))
        await asyncio.sleep(0)
        adopting = asyncio.create_task(adopt(engine, "evlog"))
        with mock.patch.object(IngestRules, "normalise", side_effect=AssertionError("all at once")):
            await asyncio.gather(writing, adopting)
        assert held(engine)[-1]["context"] == {"headers": {"control": "reset"}}

    loop.run(story())


def test_a_stream_that_was_made_anew_meanwhile_takes_it_as_it_is(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make(engine, "evlog")
        writing = asyncio.create_task(engine.streams.write("s", draft(LARGE), Write(JSON)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        removal = asyncio.create_task(engine.streams.delete("s"))
        creation = asyncio.create_task(engine.streams.create("s", Spec(content_type=JSON), None))
        await asyncio.gather(writing, removal, creation)
        assert held(engine)[0] == msgspec.json.decode(LARGE[0])

    loop.run(story())


def test_what_was_accepted_before_is_not_refused(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make(engine, "generic")
        wanted = Write(JSON, Producer("p", 0, 0))
        await engine.streams.write("s", draft(LARGE), wanted)
        await adopt(engine, "state-protocol")
        assert (await engine.streams.write("s", draft(LARGE), wanted)).repeated
        with pytest.raises(Refused, match="state-protocol record"):
            await engine.streams.write("s", draft(LARGE), Write(JSON))

    loop.run(story())


def test_a_commit_of_what_a_stream_does_not_take_is_refused(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make(engine, "state-protocol")
        transactions = engine.transactions
        await transactions.stage("t", 0, "bad", Chunk("s", draft(LARGE)))
        with pytest.raises(Refused, match="state-protocol record"):
            await transactions.commit("t", 0, ["bad"], owner="topics", create=None)
        good = draft([b'{"headers":{"control":"reset"}}'])
        await transactions.stage("t", 0, "good", Chunk("s", good))
        await transactions.commit("t", 0, ["good"], owner="topics", create=None)
        assert held(engine) == [{"headers": {"control": "reset"}}]

    loop.run(story())


def test_nobody_commits_to_what_the_server_writes(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        meter = Meter()
        meter.appended(1, 1)
        await Metering(engine, meter, 1).flush()
        await engine.transactions.stage("t", 0, "c", Chunk("__stream_metrics__", draft([b"1"])))
        with pytest.raises(Refused) as refused:
            await engine.transactions.commit("t", 0, ["c"], owner="topics", create=None)
        assert refused.value.code is Code.INVALID

    loop.run(story())


def test_others_get_a_turn_while_a_fork_begins_with_much(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make(engine, "evlog")
        turns = 0
        spec = Spec(content_type=JSON, source="s")
        creating = asyncio.create_task(engine.streams.create("f", spec, draft(LARGE)))
        while "f" not in engine.state.by_name:
            turns += 1
            await asyncio.sleep(0)
        assert turns > sum(map(len, LARGE)) // NORMALISE_BYTES
        live, created = await creating
        assert created
        block = live.tail.blocks[-1]
        assert block.count == len(LARGE)
        assert msgspec.json.decode(block.data_at(0))["context"] == {"token": "[REDACTED]"}

    loop.run(story())
