"""A job that stands still while the janitor works fails cleanly or succeeds: nothing that a
manifest names is missing, and the server reads it and starts on it.
"""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event
from unittest import mock

import msgspec
import pytest
from xxhash import xxh3_64_hexdigest

from headrace.core.config import LogConfig
from headrace.core.errors import Corrupt
from headrace.core.record import draft
from headrace.formats import layout
from headrace.formats.companion import decode_descriptor
from headrace.formats.index_plans import IndexPlans, encode_plans, plan
from headrace.formats.lease import decode_lease
from headrace.formats.manifest import Named
from headrace.pipeline import janitor as retire
from headrace.pipeline.commit import drop_builds
from headrace.pipeline.janitor import find_objects, remove_unnamed
from headrace.pipeline.limits import MERGE
from headrace.storage import leases, manifests
from headrace.storage.leases import Fenced, hold_lease
from headrace.storage.objects import Listed, Objects, StoreError
from headrace.storage.retired_objects import Retired
from support.engine_harness import CAPS, boot, view_all
from support.fake_indexer import FakeIndexer
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

from .stalls import HOUR_MS, JOBS, Act, Store, janitor, late_janitor, run, slow_janitor, stranger

NONE = -1
PLAN = (
    b'{"primaryTimestampField":"at","fields":'
    b'{"at":{"kind":"date","bindings":[{"version":1,"jsonPointer":"/at"}]}}}'
)


async def _fill(clock: VirtualClock, segments: int, *, indexed: bool) -> HostileDisk:
    disk = HostileDisk()
    started = await boot(disk, clock, caps=CAPS.__class__(tail_bytes=0))
    engine, upkeep = started.engine, started.upkeep
    for number in range(segments):
        for name in ("a", "b"):
            drafts = draft([b'{"n":%d}' % number] * 2, keys=["k", "l"])
            await engine.appender.append(name, drafts, owner="topics", create=LogConfig())
        upkeep.close_file()
        await upkeep.checkpoint()
    await engine.deleter.delete("a", 2, None)
    await upkeep._publisher.publish_marks()
    if indexed:
        FakeIndexer(Store(disk.world)).index()
    return disk


@pytest.mark.parametrize("act", [janitor, late_janitor, slow_janitor])
@pytest.mark.parametrize("job", JOBS)
def test_a_job_stands_still_at_every_step(loop: VirtualLoop, job: str, act: Act) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        whole = await _fill(clock, MERGE if job == "merge" else 4, indexed=job != "index")
        steps, done = run(job, Store(whole.copy().kill().world), NONE, act)
        assert done
        assert {"before-check", "before-publish", "published"} <= set(steps)
        failed = set()
        for at, step in enumerate(steps):
            if steps[:at].count(step) > 1:
                continue
            disk = whole.copy().kill()
            server = await boot(disk, clock, caps=CAPS.__class__(tail_bytes=0))
            before = await view_all(server.engine)
            store = Store(disk.world)
            _, done = run(job, store, at, act)
            where = f"{job} stood still at {step} ({at})"
            assert store.missing() == [], where
            if not done:
                failed.add(step)
            await server.upkeep.manifests.look()
            assert await view_all(server.engine) == before, where
            again = await boot(disk.kill(), clock, caps=CAPS.__class__(tail_bytes=0))
            assert await view_all(again.engine) == before, where
            assert store.list(layout.LEASES) == [], where
            late_janitor(store)
            assert store.left() == [], where
        if act is janitor:
            assert failed == set(), "its lease was live"
        else:
            assert {"before-check", "before-publish"} <= failed, "its files were removed"

    loop.run(story())


@pytest.mark.parametrize("job", ["index", "compact"])
def test_what_somebody_else_removed_is_not_published(loop: VirtualLoop, job: str) -> None:
    async def story() -> None:
        disk = (await _fill(VirtualClock(loop), 4, indexed=False)).kill()
        steps, _ = run(job, Store(disk.copy().kill().world), NONE, stranger)
        store = Store(disk.world)
        before = manifests.load(store)
        _, done = run(job, store, steps.index("before-check"), stranger)
        assert not done
        assert manifests.load(store) == before

    loop.run(story())


def test_the_files_of_a_live_lease_stay_however_old_they_are() -> None:
    store = Store(HostileDisk().world)
    with hold_lease(store, "test") as lease:
        name = layout.rewritten(f"{lease.token}-0")[0]
        store.put(name, b"x")
        store.now_ms += 100 * HOUR_MS
        lease.renew()
        janitor(store)
        assert store.look(name) is not None
    janitor(store)
    assert store.look(name) is None, "the job is over"
    assert manifests.load(store).fence == 1


def test_one_that_was_fenced_stays_fenced_though_it_lives_again() -> None:
    """Its lease is stored again when it goes on; the files it makes then are nobody's."""
    store = Store(HostileDisk().world)
    with hold_lease(store, "stalled") as stalled, hold_lease(store, "other") as other:
        names = [layout.rewritten(f"{token}-0")[0] for token in (stalled.token, other.token)]
        for name in names:
            store.put(name, b"x")
        store.now_ms += HOUR_MS
        other.renew()
        janitor(store)
        assert [store.look(name) is None for name in names] == [True, False]
        stalled.renew()
        store.put(names[0], b"x")
        janitor(store)
        assert [store.look(name) is None for name in names] == [True, False]
        newest = manifests.load(store)
        other.require(newest)
        with pytest.raises(Fenced, match="ran out"):
            stalled.require(newest)
        assert newest.spared == (other.token,)


def test_nothing_is_published_where_there_is_nothing_to_remove() -> None:
    store = Store(HostileDisk().world)
    with hold_lease(store, "test"):
        janitor(store)
    assert manifests.load(store).version == 0


def test_a_lease_is_stored_again_while_the_job_works() -> None:
    renewed = Event()

    class Seen(Store):
        def put(self, name: str, content: bytes) -> None:
            super().put(name, content)
            if decode_lease(content, name).renewals > 1:
                renewed.set()

    store = Seen(HostileDisk().world)
    with mock.patch.object(leases, "LEASE_RENEW_S", 0.001), hold_lease(store, "test") as lease:
        assert renewed.wait(30)
    assert store.look(layout.lease(lease.token)) is None


def test_a_renewal_that_fails_is_tried_again() -> None:
    tried, renewed = Event(), Event()

    class Moody(Store):
        def put(self, name: str, content: bytes) -> None:
            if not tried.is_set():
                tried.set()
                raise StoreError("busy")
            super().put(name, content)
            renewed.set()

    store = Moody(HostileDisk().world)
    with mock.patch.object(leases, "LEASE_RENEW_S", 0.001), hold_lease(store, "test"):
        assert renewed.wait(30)


def test_a_fence_right_before_a_lease_is_stored_does_not_cost_the_job() -> None:
    class Busy(Store):
        others = 0

        def put_new(self, name: str, content: bytes) -> bool:
            if name.startswith(layout.LEASES) and not self.others:
                self.others += 1
                self.put(layout.rewritten("stray")[0], b"x")
                janitor(self)
            return super().put_new(name, content)

    store = Busy(HostileDisk().world)
    with hold_lease(store, "test") as lease:
        assert manifests.load(store).fence == 1
        lease.require(manifests.load(store))
        assert len(store.list(layout.LEASES)) == 1


def test_what_was_replaced_stays_for_the_grace_period(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk = await _fill(VirtualClock(loop), 2, indexed=True)
        store = Store(disk.world)
        store.now_ms += HOUR_MS
        old = {build.name for build in manifests.load(store).builds}
        drop_builds(store, old)
        store.now_ms += HOUR_MS // 2
        assert remove_unnamed(store, store.now_ms - HOUR_MS).objects == 0
        assert all(store.look(name) is not None for name in old)
        store.now_ms += HOUR_MS
        assert remove_unnamed(store, store.now_ms - HOUR_MS).objects > len(old)
        assert store.list(layout.BUILDS) == []

    loop.run(story())


def test_what_is_replaced_while_the_janitor_looks_stays_for_the_grace_period(
    loop: VirtualLoop,
) -> None:
    async def story() -> None:
        disk = await _fill(VirtualClock(loop), 2, indexed=True)
        store = Store(disk.world)
        store.now_ms += 2 * HOUR_MS
        old = {build.name for build in manifests.load(store).builds}

        def look(objects: Objects) -> list[Listed]:
            drop_builds(store, old)
            return list(find_objects(objects))

        with mock.patch.object(retire, "find_objects", look):
            assert remove_unnamed(store, store.now_ms - HOUR_MS).objects == 0
        assert all(store.look(name) is not None for name in old)

    loop.run(story())


def test_a_job_that_loses_a_file_publishes_nothing_more() -> None:
    """It was published, replaced and retired while the job went on: nobody may name it again."""
    store = Store(HostileDisk().world)
    with hold_lease(store, "test") as lease, hold_lease(store, "other") as other:
        name = layout.rewritten(f"{lease.token}-0")[0]
        store.put(name, b"x")
        store.put(layout.retired("old"), msgspec.json.encode(Retired((name,))))
        janitor(store)
        assert store.look(name) is None
        with pytest.raises(Fenced):
            lease.require(manifests.load(store))
        other.require(manifests.load(store))


def test_a_damaged_list_of_what_was_retired_is_named() -> None:
    store = Store(HostileDisk().world)
    store.put(layout.retired("old"), b'{"names":["a\xff"]}')
    with pytest.raises(Corrupt, match=layout.retired("old")):
        janitor(store)


def test_what_killed_jobs_and_janitors_left_goes() -> None:
    store = Store(HostileDisk().world)
    for name in (layout.lease("killed"), layout.clock("killed")):
        store.put(name, b"{}")
    janitor(store)
    assert len(store.list(layout.LEASES)) == 2, "who knows"
    late_janitor(store)
    assert store.list(layout.LEASES) == []


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("job", ["index", "merge"])
def test_a_build_that_vanished_is_made_again(loop: VirtualLoop, job: str, whole: bool) -> None:
    async def story() -> None:
        disk = await _fill(VirtualClock(loop), MERGE, indexed=True)
        store = Store(disk.world)
        lost = manifests.load(store).builds[2]
        described = decode_descriptor(store.get(lost.name), lost.name)
        for name in [file.name for file in described.files[: None if whole else 1]]:
            store.remove(name)
        if whole:
            store.remove(lost.name)
            # Plans that changed since let the indexer look at what it has.
            raw = encode_plans(IndexPlans(plans=(plan(1, "a", PLAN),)))
            plans = Named(name=layout.plans(1), checksum=xxh3_64_hexdigest(raw), generation=1)
            store.put(plans.name, raw)
            manifests.update(store, lambda m: msgspec.structs.replace(m, plans=plans))
        for each in ("merge", "index", "merge") if job == "merge" else ("index", "merge", "index"):
            assert run(each, store, NONE, janitor)[1]
        covered = sorted(n for build in manifests.load(store).builds for n in build.segments)
        assert covered == sorted(manifests.load(store).numbers)
        assert store.missing() == []

    loop.run(story())


def test_too_many_jobs_stop_the_janitor_and_not_the_jobs() -> None:
    store = Store(HostileDisk().world)
    store.put(layout.rewritten("stray")[0], b"x")
    with mock.patch.object(leases, "LEASES_MAX", 1), ExitStack() as stack:
        held = [stack.enter_context(hold_lease(store, "test")) for _ in range(2)]
        with pytest.raises(StoreError, match="2 jobs"):
            janitor(store)
        for lease in held:
            lease.require(manifests.load(store))
    assert store.look(layout.rewritten("stray")[0]) is not None
