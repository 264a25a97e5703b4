"""Two servers on one object store: one of them is told so, and nothing of the other's goes."""

from __future__ import annotations

import pytest

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.engine.engine import EngineParts
from headrace.engine.start import Started, start, stop
from headrace.formats import layout
from headrace.storage import manifests
from headrace.storage.objects import LocalObjects
from headrace.storage.ownership import NotOurs
from headrace.storage.sealing import SealJob
from support.engine_harness import CAPS, PACE, boot, view
from support.hostile import HostileDisk
from support.inline_ports import CountedIds, Inline, InlineSealer
from support.virtual import VirtualClock, VirtualLoop
from support.writers import server_writer

PLAN = (
    b'{"primaryTimestampField":"at","fields":'
    b'{"at":{"kind":"date","bindings":[{"version":1,"jsonPointer":"/at"}]}}}'
)
ORPHAN = layout.segment(1, "x")


async def serve(disk: HostileDisk, bucket: HostileDisk, clock: VirtualClock) -> Started:
    """A server with its data directory here and its objects there."""
    disk.make_folder(layout.OBJECTS)
    pool, objects = Inline(), LocalObjects(bucket)
    parts = EngineParts(
        disk=disk,
        objects=objects,
        clock=clock,
        pool=pool,
        sealer=InlineSealer(disk, objects, pool),
        ids=CountedIds(),
        writer=lambda journal, loop: server_writer(journal, lambda: 0.0),
        caps=CAPS.__class__(tail_bytes=0),
        pace=PACE,
    )
    return await start(parts)


async def write(server: Started, count: int = 3) -> None:
    for number in range(count):
        drafts = draft([b"%d" % number])
        await server.engine.appender.append("a", drafts, owner="topics", create=LogConfig())
    server.upkeep.close_file()


def test_a_second_server_refuses_before_it_removes_anything(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, world = VirtualClock(loop), HostileDisk().world
        bucket = LocalObjects(HostileDisk(world))
        first = await serve(HostileDisk(), HostileDisk(world), clock)
        second = await serve(HostileDisk(), HostileDisk(world), clock)
        await write(first)
        # What the first has sealed and is about to publish.
        bucket.put(ORPHAN, b"about to be published")
        await first.upkeep.checkpoint()
        with pytest.raises(NotOurs, match="another server"):
            await second.upkeep.remove_orphans()
        assert bucket.look(ORPHAN) is not None
        before = manifests.load(bucket)
        await write(second)
        with pytest.raises(NotOurs, match=layout.SERVER_ID):
            await second.upkeep.checkpoint()
        await second.engine.search_configs.put("a", "topics", PLAN)
        with pytest.raises(NotOurs):
            await second.upkeep._publisher.publish_plans()
        assert bucket.list(layout.PLANS) == [], "what came to nothing takes no name"
        with pytest.raises(NotOurs):
            await serve(HostileDisk(), HostileDisk(world), clock)
        assert manifests.load(bucket) == before
        assert sorted((await view(first.engine, "a")).records) == [1, 2, 3]

    loop.run(story())


def test_who_removes_first_has_the_store(loop: VirtualLoop) -> None:
    """Both were started on an empty store: the first has sealed, the second looks for orphans."""

    async def story() -> None:
        clock, world = VirtualClock(loop), HostileDisk().world
        first = await serve(HostileDisk(), HostileDisk(world), clock)
        second = await serve(HostileDisk(), HostileDisk(world), clock)
        await write(first)
        sealer, sealed = first.upkeep._sealer, []

        class Slow:
            async def seal(self, job: SealJob) -> object:
                found = await sealer.seal(job)
                sealed.append(found)
                await second.upkeep.remove_orphans()
                return found

            def hurry(self, hurried: bool) -> None: ...

        first.upkeep._sealer = Slow()  # type: ignore[assignment]
        with pytest.raises(NotOurs):
            await first.upkeep.checkpoint()
        assert sealed
        assert manifests.load(LocalObjects(HostileDisk(world))).segments == ()
        assert sorted((await view(first.engine, "a")).records) == [1, 2, 3]

    loop.run(story())


def test_a_copy_of_a_data_directory_takes_over_and_the_first_forgets_nothing(
    loop: VirtualLoop,
) -> None:
    async def story() -> None:
        clock, world, disk = VirtualClock(loop), HostileDisk().world, HostileDisk()
        first = await serve(disk, HostileDisk(world), clock)
        await write(first)
        await first.upkeep.checkpoint()
        copy = await serve(HostileDisk(disk.world.clone()), HostileDisk(world), clock)
        await write(copy, 2)
        await copy.upkeep.checkpoint()
        await write(first, 5)
        with pytest.raises(NotOurs, match="copy"):
            await first.upkeep.checkpoint()
        with pytest.raises(NotOurs, match="copy"):
            await first.upkeep.manifests.look()
        assert sorted((await view(first.engine, "a")).records) == list(range(1, 9))
        assert sorted((await view(copy.engine, "a")).records) == list(range(1, 6))
        assert [part.logs for part in first.upkeep._unsealed.parts] != []

    loop.run(story())


def test_a_start_after_a_crash_has_the_store_at_once(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        started = await boot(disk, clock)
        objects = LocalObjects(HostileDisk(disk.world))
        await write(started)
        await started.upkeep.checkpoint()
        disk = disk.kill()
        objects = LocalObjects(HostileDisk(disk.world))
        objects.put(ORPHAN, b"left by the sealer")
        again = await boot(disk, clock)
        await again.upkeep.remove_orphans()
        assert objects.look(ORPHAN) is None
        await write(again)
        await again.upkeep.checkpoint()
        assert again.upkeep.manifest.owner != started.upkeep.manifest.owner
        await stop(again)

    loop.run(story())


def test_a_start_without_orphans_publishes_nothing(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        await started.upkeep.remove_orphans()
        assert started.upkeep.manifest.version == 0

    loop.run(story())


def test_what_a_stranger_stored_under_our_next_name_is_left_alone(loop: VirtualLoop) -> None:
    """A publication whose answer was lost holds the name: other bytes must not come under it."""

    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        started = await boot(disk, clock)
        await write(started)
        await started.upkeep.checkpoint()
        objects = LocalObjects(HostileDisk(disk.world))
        objects.put(layout.marks(1), b"published, for all we know")
        await started.engine.deleter.delete("a", 2, None)
        await started.upkeep._publisher.publish_marks()
        assert objects.get(layout.marks(1)) == b"published, for all we know"
        marks = manifests.load(objects).marks
        assert marks is not None
        assert marks.name == layout.marks(2)

    loop.run(story())


def test_marks_that_are_named_are_not_forgotten(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        started = await boot(disk, clock)
        await write(started)
        await started.upkeep.checkpoint()
        publication = started.upkeep._publisher
        await started.engine.deleter.delete("a", 2, None)
        await publication.publish_marks()
        objects = LocalObjects(HostileDisk(disk.world))
        for generation in range(2, 9):
            objects.put(layout.marks(generation), b"of a server that was refused")
        await publication._forget(layout.MARKS, started.upkeep.manifest.marks)
        assert objects.look(layout.marks(1)) is not None
        assert len(objects.list(layout.MARKS)) == 5

    loop.run(story())
