"""A job that stands still while the janitor works fails cleanly or succeeds: nothing that a
manifest names is missing, and the server reads it and starts on it.
"""

from __future__ import annotations

import pytest
from hostile import HostileDisk
from librarian import Librarian
from rig import CAPS, boot, view_all
from stalls import HOUR_MS, JOBS, Act, Store, janitor, late_janitor, run, slow_janitor, stranger
from virtual import VirtualClock, VirtualLoop

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.formats import layout
from headrace.pipeline.limits import MERGE
from headrace.storage import manifests
from headrace.storage.leases import Fenced, hold_lease

NONE = -1


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
    await upkeep._publication.publish_marks()
    if indexed:
        Librarian(Store(disk.world)).index()
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
            await server.upkeep.generations.look()
            assert await view_all(server.engine) == before, where
            again = await boot(disk.kill(), clock, caps=CAPS.__class__(tail_bytes=0))
            assert await view_all(again.engine) == before, where
            assert store.list(layout.LEASES) == [], where
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
