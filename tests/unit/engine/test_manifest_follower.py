"""Changing over to a manifest that somebody else published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Refused
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.search.search_configs import checked
from headrace.engine.start import Started, stop
from headrace.formats import layout
from headrace.formats.index_plans import decode_plans
from headrace.formats.marks import Marks, decode_marks
from headrace.storage import manifests
from headrace.storage.objects import LocalObjects
from headrace.storage.replaced_objects import Vanished
from support.engine_harness import CAPS, boot, view
from support.hostile import HostileDisk, Survival
from support.rival import Rival
from support.virtual import VirtualClock, VirtualLoop

NAMES = ("a", "b")


class Scene:
    """A server with sealed segments whose records are not in memory, and a rival."""

    def __init__(self, started: Started, disk: HostileDisk, clock: VirtualClock) -> None:
        self.started, self.disk, self.clock = started, disk, clock
        self.engine, self.upkeep = started.engine, started.upkeep
        self.objects = LocalObjects(HostileDisk(disk.world))
        self.rival = Rival(self.objects, Random(1))

    @property
    def numbers(self) -> list[int]:
        return [segment.number for segment in self.upkeep.manifest.segments]

    async def fill(self, rounds: int) -> None:
        for number in range(rounds):
            for name in NAMES:
                await self.engine.appender.append(
                    name,
                    draft(
                        [b'{"n":%d}' % number] * 2, tags=["even" if number % 2 == 0 else None] * 2
                    ),
                    owner="topics",
                    create=LogConfig(),
                )
            self.upkeep.close_file()
            await self.upkeep.checkpoint()

    async def records(self, name: str) -> list[int]:
        return sorted((await view(self.engine, name)).records)


async def scene(clock: VirtualClock, rounds: int = 6) -> Scene:
    disk = HostileDisk()
    made = Scene(await boot(disk, clock, caps=CAPS.__class__(tail_bytes=0)), disk, clock)
    await made.fill(rounds)
    return made


def run(loop: VirtualLoop, story: Callable[[Scene], object]) -> None:
    async def play() -> None:
        await story(await scene(VirtualClock(loop)))  # type: ignore[misc]

    loop.run(play())


def test_records_are_where_the_rival_put_them(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        before = [await view(scene.engine, name) for name in NAMES]
        assert scene.rival.replace(scene.numbers[1:4], Marks(), outputs=2)
        assert scene.numbers == [1, 2, 3, 4, 5, 6]
        await scene.upkeep.manifests.look()
        assert scene.numbers == [1, 7, 8, 5, 6]
        for name in NAMES:
            log = scene.engine.state.by_name[name]
            firsts = [first for _, first, _ in log.extents]
            assert firsts == sorted(firsts)
            assert {number for number, _, _ in log.extents} <= set(scene.numbers)
        assert [await view(scene.engine, name) for name in NAMES] == before

    run(loop, story)


def test_a_reader_whose_segment_vanished_looks_again(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        before = [await view(scene.engine, name) for name in NAMES]
        scene.engine.segments.use(scene.upkeep.manifest.__class__())  # nothing is cached
        scene.engine.segments.use(scene.upkeep.manifest)
        scene.rival.replace(scene.numbers, Marks(), outputs=2)
        scene.rival.tidy()
        assert [await view(scene.engine, name) for name in NAMES] == before
        assert scene.numbers == [7, 8]

    run(loop, story)


@pytest.mark.parametrize("tag", ["even", "none"])
def test_deleting_by_tag_looks_again(loop: VirtualLoop, tag: str) -> None:
    async def story(scene: Scene) -> None:
        scene.rival.replace(scene.numbers, Marks(), outputs=2)
        scene.rival.tidy()
        _, count = await scene.engine.deleter.delete("a", None, TagEq(tag))
        assert count == (6 if tag == "even" else 0)

    run(loop, story)


def test_a_file_that_is_lost_is_an_error_and_no_endless_search(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.engine.segments.use(scene.upkeep.manifest.__class__())
        scene.engine.segments.use(scene.upkeep.manifest)
        for segment in scene.upkeep.manifest.segments:
            scene.objects.remove(segment.name)
        with pytest.raises(Vanished):
            await view(scene.engine, "a")

    run(loop, story)


def test_sealing_goes_on_over_what_others_published(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.rival.replace(scene.numbers[:2], Marks())
        await scene.fill(1)
        assert scene.numbers == [7, 3, 4, 5, 6, 8]
        assert scene.upkeep.manifest == manifests.load(scene.objects)
        assert await scene.records("a") == list(range(1, 15))

    run(loop, story)


def test_dead_segments_of_others_are_dropped_too(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.rival.replace(scene.numbers[:3], Marks())
        for name in NAMES:
            await scene.engine.deleter.delete(name, 7, None)
        await scene.upkeep.checkpoint()
        assert scene.numbers == [4, 5, 6]
        assert not any("p-" in listed.name for listed in scene.objects.list(layout.SEGMENTS))

    run(loop, story)


@pytest.mark.parametrize("look", [False, True])
def test_a_snapshot_of_an_older_generation_finds_the_newer(loop: VirtualLoop, look: bool) -> None:
    async def story(scene: Scene) -> None:
        before = [await view(scene.engine, name) for name in NAMES]
        if look:
            scene.rival.replace(scene.numbers[:2], Marks())
            await scene.upkeep.manifests.look()
        await scene.upkeep.snapshot()
        scene.rival.replace(scene.numbers[:3], Marks(), outputs=2)
        numbers = [s.number for s in manifests.load(scene.objects).segments]
        scene.rival.replace(numbers[1:4], Marks())
        scene.rival.tidy()
        after = await boot(scene.disk.kill(), scene.clock)
        assert [await view(after.engine, name) for name in NAMES] == before
        assert after.upkeep.manifest == manifests.load(scene.objects)

    run(loop, story)


def test_replaced_while_recovering(loop: VirtualLoop) -> None:
    """Whatever call of a start comes behind the replacement: every record is found."""

    async def story(scene: Scene) -> None:
        before = [await view(scene.engine, name) for name in NAMES]
        at = 0
        while True:
            disk = scene.disk.copy().kill()
            rival = Rival(LocalObjects(HostileDisk(disk.world)), Random(at))

            def replace(
                number: int, kind: str, path: str, rival: Rival = rival, at: int = at
            ) -> None:
                if number == at:
                    rival.replace(scene.numbers[1:5], Marks(), outputs=2)
                    rival.tidy()

            disk.before = replace
            after = await boot(disk, scene.clock)
            calls = disk.calls
            assert [await view(after.engine, name) for name in NAMES] == before, f"call {at}"
            if at >= calls:
                break
            at += 1
        assert at > 20

    run(loop, story)


def test_memory_is_freed_for_what_was_sealed_and_replaced_at_once(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        def replace(number: int, kind: str, path: str) -> None:
            if kind == "sync_folder" and path.endswith(layout.MANIFESTS):
                scene.disk.before = lambda number, kind, path: None
                numbers = [s.number for s in manifests.load(scene.objects).segments]
                assert scene.rival.replace(numbers[-2:], Marks())
                scene.rival.tidy()

        for name in NAMES:
            await scene.engine.appender.append(name, draft([b"1"]), owner="topics", create=None)
        scene.disk.before = replace
        scene.upkeep.close_file()
        await scene.upkeep.checkpoint()
        assert scene.rival.replacements == 1
        assert scene.engine.tail_bytes == 0
        assert await scene.records("a") == list(range(1, 14))

    run(loop, story)


def test_a_damaged_manifest_of_others_does_not_end_the_server(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        task = asyncio.create_task(scene.upkeep.run_exchange())
        scene.objects.put(layout.manifest(99), b"no manifest")
        await asyncio.sleep(5)
        assert not task.done()
        assert await scene.records("a") == list(range(1, 13))
        scene.objects.remove(layout.manifest(99))
        scene.rival.replace(scene.numbers, Marks())
        await asyncio.sleep(5)
        assert scene.numbers == [7]
        task.cancel()

    run(loop, story)


class Hasty(HostileDisk):
    """A process that was killed, or is about to be, before the name of its manifest is durable."""

    def sync_folder(self, folder: str) -> None:
        if not folder.endswith(layout.MANIFESTS):
            super().sync_folder(folder)


def test_what_the_server_goes_by_is_durable_before_it_does(loop: VirtualLoop) -> None:
    """A snapshot that relies on a version must not outlive it."""

    async def story(scene: Scene) -> None:
        before = [(await view(scene.engine, name)).records for name in NAMES]
        rival = Rival(LocalObjects(Hasty(scene.disk.world)), Random(2))
        assert rival.replace(scene.numbers[1:4], Marks(), outputs=2)
        await scene.upkeep.manifests.look()
        await scene.upkeep.snapshot()
        disk = scene.disk.lose_power(Survival.NOTHING, Random(0))
        after = await boot(disk, scene.clock)
        assert [(await view(after.engine, name)).records for name in NAMES] == before

    run(loop, story)


def test_a_segment_goes_when_what_made_it_dead_is_durable(loop: VirtualLoop) -> None:
    """A power loss that takes a deletion back finds its records where they were."""

    async def story(scene: Scene) -> None:
        found: list[HostileDisk] = []

        def note(number: int, kind: str, path: str) -> None:
            if kind == "remove" and layout.SEGMENTS in path:
                found.append(scene.disk.copy().lose_power(Survival.NOTHING, Random(0)))

        for name in NAMES:
            await scene.engine.deleter.delete(name, 7, None)
        scene.disk.before = note
        await scene.upkeep.checkpoint()
        assert len(found) == 3
        for disk in found:
            after = await boot(disk, scene.clock, caps=CAPS.__class__(tail_bytes=0))
            for name in NAMES:
                left = await view(after.engine, name)
                assert sorted(left.records) == list(range(7, 13))
                assert left.count == 6, "a deletion is not known, and its records are gone"

    run(loop, story)


# --- marks ---


def marks_of(scene: Scene) -> Marks:
    named = manifests.load(scene.objects).marks
    assert named is not None
    return decode_marks(scene.objects.get(named.name), named.name)


def test_marks_tell_what_died(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        await scene.engine.deleter.delete("a", 4, None)
        await scene.engine.appender.append("c", draft([b"1"]), owner="topics", create=LogConfig())
        await scene.engine.logs.drop("b", if_empty=False)
        task = asyncio.create_task(scene.upkeep.run_exchange())
        await asyncio.sleep(3)
        marks = marks_of(scene)
        a, c = (scene.engine.state.by_name[name].id for name in ("a", "c"))
        assert [marks.is_dead(a, seq) for seq in (1, 3, 4)] == [True, True, False]
        assert marks.is_dead(2, 1)
        assert not marks.is_dead(c, 1)
        assert not marks.is_dead(c + 1, 1)
        version = scene.upkeep.manifest.version
        await asyncio.sleep(60)
        assert scene.upkeep.manifest.version == version, "nothing died, and it was told again"
        await scene.engine.deleter.delete("a", 6, None)
        await asyncio.sleep(20)
        assert marks_of(scene).is_dead(a, 5)
        assert not task.done()
        task.cancel()

    run(loop, story)


def test_marks_are_told_at_the_end_and_erased_records_stay_gone(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        await scene.engine.deleter.delete("a", 6, None)
        left = [await view(scene.engine, name) for name in NAMES]
        await stop(scene.started)
        scene.rival.replace(scene.numbers, marks_of(scene))
        assert scene.rival.erased == 5
        scene.rival.tidy()
        after = await boot(scene.disk.kill(), scene.clock)
        assert [await view(after.engine, name) for name in NAMES] == left

    run(loop, story)


def test_marks_wait_for_the_journal(loop: VirtualLoop) -> None:
    """A deletion that a power loss takes back finds its records where they were."""

    async def story(scene: Scene) -> None:
        synced_before: list[int] = []

        def note(number: int, kind: str, path: str) -> None:
            if layout.MARKS in path and kind == "link":
                synced_before.append(scene.engine.journal.synced)

        scene.disk.before = note
        await scene.engine.deleter.delete("a", 6, None)
        tail = scene.engine.journal.tail
        await scene.upkeep._publisher.publish_marks()
        assert synced_before
        assert synced_before[0] >= tail

    run(loop, story)


# --- plans ---


def plans_of(scene: Scene) -> list[tuple[str, bytes]]:
    named = manifests.load(scene.objects).plans
    assert named is not None
    found = decode_plans(scene.objects.get(named.name), named.name)
    return [(plan.log, bytes(plan.search)) for plan in found.plans]


def config(pointer: str) -> bytes:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    fields = {"at": {"kind": "date", "bindings": bindings}}
    return msgspec.json.encode({"primaryTimestampField": "at", "fields": fields})


def test_plans_are_published_when_one_changes(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        task = asyncio.create_task(scene.upkeep.run_exchange())
        plans = scene.engine.search_configs
        await asyncio.sleep(3)
        assert scene.upkeep.manifest.plans is None
        for name in NAMES:
            await plans.put(name, "topics", config(f"/{name}"))
        await asyncio.sleep(3)
        assert plans_of(scene) == [("a", config("/a")), ("b", config("/b"))]
        version = scene.upkeep.manifest.version
        await plans.put("a", "topics", config("/a"))
        await asyncio.sleep(3)
        assert scene.upkeep.manifest.version == version
        await plans.put("a", "topics", config("/x"))
        await asyncio.sleep(3)
        assert plans_of(scene) == [("a", config("/x")), ("b", config("/b"))]
        await scene.engine.logs.drop("b", if_empty=False)
        await asyncio.sleep(3)
        assert plans_of(scene) == [("a", config("/x"))]
        await plans.clear("a", "topics")
        await asyncio.sleep(3)
        assert plans_of(scene) == []
        assert not task.done()
        task.cancel()

    run(loop, story)


def test_plans_that_were_not_published_are_after_the_next_start(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        await scene.engine.search_configs.put("a", "topics", config("/a"))
        after = await boot(scene.disk.kill(), scene.clock)
        assert after.engine.search_configs.get("a") == config("/a")
        task = asyncio.create_task(after.upkeep.run_exchange())
        await asyncio.sleep(3)
        named = after.upkeep.manifest.plans
        assert named is not None
        assert named.generation == 1
        assert not task.done()
        task.cancel()

    run(loop, story)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'"x"', b"\xff", b"[" * 9999, b'{"a":1,}', b"{}"]
)
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        checked(raw)


def test_a_configuration_that_is_too_large_is_refused() -> None:
    with pytest.raises(Refused, match="65536"):
        checked(b'{"a":"' + b"x" * 65536 + b'"}')


def test_no_name_is_missed_when_versions_are_forgotten_meanwhile(loop: VirtualLoop) -> None:
    """What is named by none of them is removed: a version that is gone must not count as empty."""

    class Moving(LocalObjects):
        gone = False

        def get(self, name: str) -> bytes:
            if name.startswith(layout.MANIFESTS) and not self.gone:
                self.gone = True
                raise FileNotFoundError(name)
            return super().get(name)

    async def story(scene: Scene) -> None:
        objects = Moving(HostileDisk(scene.disk.world))
        wanted = {name for segment in scene.upkeep.manifest.segments for name in segment.names}
        for listed in objects.list(layout.MANIFESTS)[:-1]:
            objects.remove(listed.name)
        assert manifests.named(objects) == wanted
        assert objects.gone

    run(loop, story)
