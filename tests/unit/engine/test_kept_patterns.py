"""Patterns and schemas that were kept before they had bounds: the server starts and serves."""

from __future__ import annotations

import pytest
from msgspec import Raw

from headrace.core.entry import Following, Register
from headrace.core.errors import Refused
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.core.subscription import PULL
from headrace.schemas.registry import Boundary, Registry, encode_registry
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

PATTERN = "tenant42:" + "*a" * 100 + "*b"
NAME = "tenant42:" + "a" * 900


def test_a_kept_pattern_of_many_stars_is_matched_in_few_steps(loop: VirtualLoop) -> None:
    async def play() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        started = await boot(disk, clock)
        following = Following(PULL, PATTERN, [], None, "wakes", 1000, None, "", 0)
        await started.engine.subscriptions.put("s", following)
        await started.engine.streams.create(NAME, Spec(content_type=JSON), None)

        engine = (await boot(disk.kill(), clock)).engine
        await engine.streams.write(NAME, draft([b"1"]), Write(JSON))
        active = engine.subscriptions.find("s")
        assert not active.follows(NAME)
        assert active.follows(NAME + "b")
        assert engine.subscriptions.streams(active) == []

    loop.run(play())


def test_a_kept_schema_with_lookaround_is_asked_and_its_lens_gone_through(
    loop: VirtualLoop,
) -> None:
    add = {"op": "add", "path": "/b", "schema": {"pattern": "(?=x)"}, "default": "x"}
    lens = {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": [add]}
    registry = Registry(
        current_version=2,
        boundaries=(Boundary(0, 1), Boundary(1, 2)),
        schemas={"1": Raw(b"{}"), "2": Raw(b'{"properties":{"b":{"pattern":"^(?=x)."}}}')},
        lenses={"1": lens},
    )

    async def play() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        engine = (await boot(disk, clock)).engine
        live, _ = await engine.streams.create("s", Spec(content_type=JSON), draft([b"{}"]))
        kept = Register(live.log.id, encode_registry(registry))
        await engine.journal.wait_synced(engine.commit([kept], sync=True, together=True))

        engine = (await boot(disk.kill(), clock)).engine
        await engine.streams.write("s", draft([b'{"b":"xy"}']), Write(JSON))
        with pytest.raises(Refused, match="does not match"):
            await engine.streams.write("s", draft([b'{"b":"yx"}']), Write(JSON))
        live = engine.streams.own("s")
        page = await engine.reader.read(live, 0, records_max=9, bytes_max=1 << 20)
        page = engine.ingest.promoted(live.log, page)
        texts = [piece.block.data_at(at) for piece in page.slices for at in piece.picks]
        assert texts == [b'{"b":"x"}', b'{"b":"xy"}']

    loop.run(play())
