"""Shapes in operation: when readers go by a registry, and when a lens fails after all."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace.core.entry import Register
from headrace.core.errors import Code, Refused
from headrace.core.limits import PROMOTED_EVENT_RECORDS, PROMOTED_PAGE_BYTES, PROOF_MS_MAX
from headrace.core.read import Page
from headrace.core.record import draft
from headrace.core.selector import EVERYTHING
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.delivery.events import Records
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.streams import ingest_rules
from headrace.schemas.evolution import Update, parse_update
from headrace.schemas.registry import decode_registry
from headrace.surfaces.streams.following import StreamView
from support.engine_harness import Unhurried, boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop


def schema(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {}}, "required": [name]}


def lens(source: str, to: str) -> dict[str, Any]:
    return {
        "apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2,
        "ops": [{"op": "rename", "from": f"/{source}", "to": f"/{to}"}],
    }  # fmt: skip


def update(**parts: Any) -> Update:
    return parse_update(msgspec.json.encode(parts))


async def begin(clock: VirtualClock) -> tuple[Engine, OpenLog]:
    """A stream with a schema and a record."""
    engine = (await boot(HostileDisk(), clock)).engine
    live, _ = await engine.streams.create("s", Spec(content_type=JSON), None)
    await engine.ingest.install_schema(live, update(schema=schema("a")))
    await engine.streams.write("s", draft([b'{"a":1}']), Write(JSON))
    return engine, live


async def page_of(engine: Engine, live: OpenLog) -> Page:
    return await engine.reader.read(live, 0, records_max=9, bytes_max=1 << 20)


def test_readers_go_by_a_registry_once_it_is_durable(loop: VirtualLoop) -> None:
    async def play() -> None:
        engine, live = await begin(VirtualClock(loop))
        evolved = update(schema=schema("b"), lens=lens("a", "b"))
        installing = asyncio.ensure_future(engine.ingest.install_schema(live, evolved))
        while live.log.stream is not None and not installing.done():
            await asyncio.sleep(0)
            if decode_registry(live.log.stream.registry).current_version == 2:
                break
        assert not installing.done()
        assert engine.ingest.version(live.log) == 1
        with pytest.raises(Refused):  # writers go by it already
            await engine.streams.write("s", draft([b'{"a":2}']), Write(JSON))
        await installing
        assert engine.ingest.version(live.log) == 2
        page = engine.ingest.promoted(live.log, await page_of(engine, live))
        assert page.slices[0].block.data_at(0) == b'{"b":1}'

    loop.run(play())


def test_a_lens_that_fails_after_all_fails_the_read(loop: VirtualLoop) -> None:
    async def play() -> None:
        engine, live = await begin(VirtualClock(loop))
        boundaries = [{"offset": 0, "version": 1}, {"offset": 1, "version": 2}]
        registry = {
            "currentVersion": 2, "boundaries": boundaries, "lenses": {"1": lens("x", "y")},
        }  # fmt: skip
        engine.commit([Register(live.log.id, msgspec.json.encode(registry))], sync=True)
        page = await page_of(engine, live)
        with pytest.raises(Refused) as refused:
            engine.ingest.promoted(live.log, page)
        assert refused.value.code is Code.INVALID
        assert refused.value.message == "lens failed: /x does not exist"
        view = StreamView(live.log, EVERYTHING, "0", engine.clock, engine.ingest)
        view.chunked = False
        told = view.encode("s", Records(0, page), 1)
        assert told.startswith(b'event: error\ndata:{"error":{"code":"bad_request"')
        assert b"control" not in told

    loop.run(play())


def test_shapes_that_are_ready_have_a_bound_in_bytes(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_rules, "INGEST_RULES_BYTES_MAX", 1 << 20)

    async def play() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        patterns = {"anyOf": [{"pattern": f"^a{at}"} for at in range(4)]}
        for name in "abcdefgh":
            live, _ = await engine.streams.create(name, Spec(content_type=JSON), None)
            await engine.ingest.install_schema(live, update(schema=patterns))
            await engine.streams.write(name, draft([b"1"]), Write(JSON))
        kept = engine.ingest._rules.values()
        assert 1 < len(kept) < 5
        assert sum(shape.size_bytes for shape in kept) == engine.ingest._rules_bytes <= 1 << 20

    loop.run(play())


def test_a_lens_is_proven_in_the_pool_for_the_registry_it_is_for(loop: VirtualLoop) -> None:
    """Two come at once: one of them is for a version that is past when it is proven."""
    waited: list[str] = []

    class Noted(Unhurried):
        async def run(self, work: Any, *args: Any, **kwargs: Any) -> Any:
            waited.append(work.__name__)
            return await super().run(work, *args, **kwargs)

    async def play() -> None:
        clock = VirtualClock(loop)
        engine = (await boot(HostileDisk(), clock, pool=Noted())).engine
        live, _ = await engine.streams.create("s", Spec(content_type=JSON), None)
        await engine.ingest.install_schema(live, update(schema=schema("a")))
        changes = [update(schema=schema(to), lens=lens("a", to)) for to in ("b", "c")]
        told = await asyncio.gather(
            *(engine.ingest.install_schema(live, each) for each in changes), return_exceptions=True
        )
        refused = [each for each in told if isinstance(each, Refused)]
        assert [each.code for each in refused] == [Code.CONFLICT]
        assert waited.count("prove_update") == 2
        stream = live.log.stream
        assert stream is not None
        assert decode_registry(stream.registry).current_version == 2

        budget = engine.ingest.proof_budget()
        budget.spend()
        await asyncio.sleep(PROOF_MS_MAX / 1000)
        with pytest.raises(Refused, match="too complicated"):
            budget.spend()

    loop.run(play())


GROWTH = {"op": "add", "path": "/x", "schema": {"type": "string"}, "default": "x" * 10_000}


async def grow(engine: Engine, live: OpenLog, records: int) -> None:
    """Records that become far larger when they are made current."""
    await engine.streams.write("s", draft([b'{"a":2}'] * records), Write(JSON))
    declared = {**schema("a"), "properties": {"a": {}, "x": {"type": "string"}}}
    grown = {**lens("a", "a"), "ops": [GROWTH]}
    await engine.ingest.install_schema(live, update(schema=declared, lens=grown))


def test_a_page_of_records_that_grow_ends_where_there_is_no_more_room(loop: VirtualLoop) -> None:
    async def play() -> None:
        engine, live = await begin(VirtualClock(loop))
        await grow(engine, live, 1999)
        position, seen = 0, []
        while position < 2000:
            page = await engine.reader.read(live, position, records_max=5000, bytes_max=1 << 20)
            page = await engine.ingest.promote(live.log, page)
            size = sum(len(piece.block.data) for piece in page.slices)
            assert PROMOTED_PAGE_BYTES * 0.9 < size < PROMOTED_PAGE_BYTES * 1.1 or page.caught_up
            seen += [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]
            assert page.next == seen[-1]
            position = page.next
        assert seen == [*range(1, 2001)]

    loop.run(play())


def test_an_event_has_no_more_than_there_is_room_for(loop: VirtualLoop) -> None:
    async def play() -> None:
        engine, live = await begin(VirtualClock(loop))
        view = StreamView(live.log, EVERYTHING, "0", engine.clock, engine.ingest)
        view.chunked = False
        assert view.records_max > 5000
        await grow(engine, live, 1999)
        page = await engine.reader.read(live, 0, records_max=5000, bytes_max=1 << 20)
        assert b"too much for an event" in view.encode("s", Records(0, page), 2000)
        assert view.records_max == PROMOTED_EVENT_RECORDS
        page = await engine.reader.read(live, 0, records_max=50, bytes_max=1 << 20)
        assert view.encode("s", Records(0, page), 50).startswith(b"event: data\n")

    loop.run(play())
