"""Objects that the manifest names and that are gone: what a start does, what readers are told."""

from __future__ import annotations

import logging

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Code
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.start import Started
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.objects import LocalObjects
from headrace.storage.replaced_objects import Vanished
from headrace.web.responder import failure
from support.asking import make_request
from support.engine_harness import CAPS, boot, view
from support.fake_indexer import Reading, reading
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

NAMES = ("a", "b")
FRESH = CAPS.__class__(tail_bytes=0)


class Scene:
    """A server that was killed with three segments, and the store it left."""

    def __init__(self, disk: HostileDisk, clock: VirtualClock) -> None:
        self.disk, self.clock = disk, clock
        self.objects = LocalObjects(HostileDisk(disk.world))
        self.segments = manifests.load(self.objects).segments

    async def boot(self) -> Started:
        return await boot(self.disk, self.clock, caps=FRESH)


async def scene(clock: VirtualClock, *, snapshot: bool = False) -> Scene:
    disk = HostileDisk()
    # Only a large journal makes a snapshot by itself.
    started = await boot(disk, clock, caps=FRESH, pace=UpkeepPace(seal_bytes=1 << 20))
    for number in range(3):
        for name in NAMES:
            drafts = draft([b'{"n":%d}' % number] * 2, tags=["t", None], metas=[b'{"m":1}', None])
            await started.engine.appender.append(name, drafts, owner="topics", create=LogConfig())
        started.upkeep.close_file()
        await started.upkeep.checkpoint()
    if snapshot:
        await started.upkeep.snapshot()
    return Scene(disk.kill(), clock)


@pytest.mark.parametrize("snapshot", [False, True])
def test_companions_are_made_again(loop: VirtualLoop, snapshot: bool) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        whole = await (await scene(clock, snapshot=snapshot)).boot()
        before = [await view(whole.engine, name) for name in NAMES]
        damaged = await scene(clock, snapshot=snapshot)
        held = {}
        for segment in damaged.segments[:2]:
            for name in segment.names[1:]:
                held[name] = damaged.objects.get(name)
                damaged.objects.remove(name)
        assert len(held) == 4
        started = await damaged.boot()
        assert [(await view(started.engine, name)).records for name in NAMES] == [
            one.records for one in before
        ]
        await started.upkeep.find_vanished()
        assert {name: damaged.objects.get(name) for name in held} == held
        _, count = await started.engine.deleter.delete("a", None, TagEq("t"))
        assert count == 3

    loop.run(story())


def test_tags_that_vanish_under_a_running_server_are_made_again(loop: VirtualLoop) -> None:
    async def story() -> None:
        found = await scene(VirtualClock(loop))
        started = await found.boot()
        for segment in found.segments:
            assert segment.tags is not None
            found.objects.remove(segment.tags)
        _, count = await started.engine.deleter.delete("a", None, TagEq("t"))
        assert count == 3

    loop.run(story())


def test_a_companion_with_other_bytes_is_used_and_not_stored(loop: VirtualLoop) -> None:
    """Another version of the library wrote it: what is stored is what the manifest vouches for."""

    async def story() -> None:
        found = await scene(VirtualClock(loop))
        index = found.segments[0].index

        def other(manifest: Manifest) -> Manifest:
            first = msgspec.structs.replace(manifest.segments[0], index_checksum="of other bytes")
            return msgspec.structs.replace(manifest, segments=(first, *manifest.segments[1:]))

        manifests.update(found.objects, other)
        found.objects.remove(index)
        started = await found.boot()
        assert len((await view(started.engine, "a")).records) == 6
        await started.upkeep.find_vanished()
        assert found.objects.look(index) is None

    loop.run(story())


def test_a_damaged_segment_without_its_index_holds_nobody_up(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        found = await scene(VirtualClock(loop), snapshot=True)
        damaged = found.segments[0]
        found.objects.remove(damaged.index)
        found.objects.put(damaged.name, b"no Parquet")
        started = await found.boot()
        with caplog.at_level(logging.ERROR):
            await started.upkeep.find_vanished()
        (line,) = caplog.records
        assert damaged.name in line.fields["problem"]  # type: ignore[attr-defined]

    loop.run(story())


def test_a_lost_segment_is_told_and_the_rest_is_served(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        found = await scene(VirtualClock(loop))
        lost = found.segments[1]
        found.objects.remove(lost.name)
        started = await found.boot()
        with caplog.at_level(logging.ERROR):
            await started.upkeep.find_vanished()
        (line,) = caplog.records
        assert line.fields == {  # type: ignore[attr-defined]
            "name": lost.name, "rows": 4, "holds": "a 3 to 4, b 3 to 4",
        }  # fmt: skip
        engine = started.engine
        page = await engine.reader.read(engine.state_of("a"), 0, records_max=2, bytes_max=999)
        assert page.next == 2
        with pytest.raises(Vanished, match=lost.name) as told:
            await engine.reader.read(engine.state_of("a"), 2, records_max=2, bytes_max=999)
        refused = failure(told.value, make_request("GET", "/"))
        assert refused.code is Code.NOT_READY
        assert lost.name in refused.message
        page = await engine.reader.read(engine.state_of("a"), 4, records_max=2, bytes_max=999)
        assert page.next == 6
        await engine.appender.append("a", draft([b"1"]), owner="topics", create=None)

    loop.run(story())


def test_a_start_that_cannot_know_what_is_where_refuses_with_the_name(loop: VirtualLoop) -> None:
    async def story() -> None:
        found = await scene(VirtualClock(loop))
        lost = found.segments[1]
        found.objects.remove(lost.name)
        found.objects.remove(lost.index)
        with pytest.raises(Vanished, match=f"{lost.name}.*segment 2.*4 records of 2 logs"):
            await found.boot()

    loop.run(story())


def test_a_build_that_vanished_is_dropped_and_can_be_made_again(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await _indexed(loop)
        lost, kept = server.upkeep.manifest.builds
        server.fake_indexer.forget([lost])
        await server.upkeep.find_vanished()
        assert [build.name for build in server.upkeep.manifest.builds] == [kept.name]
        server.fake_indexer.index(lost.segments)
        await server.take_over()
        assert len(server.upkeep.manifest.builds) == 2
        assert not await server.upkeep.manifests.let_go("builds/unknown.json")

    loop.run(story())


async def _indexed(loop: VirtualLoop) -> Reading:
    server = await reading(VirtualClock(loop))
    for _ in range(2):
        await server.append([b'{"n":1}'] * 4)
        await server.seal()
    server.fake_indexer.index()
    await server.take_over()
    return server


def test_whole_stores_are_left_alone(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await _indexed(loop)
        before = server.upkeep.manifest
        await server.upkeep.find_vanished()
        assert server.upkeep.manifest == before

    loop.run(story())
