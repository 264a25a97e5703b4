"""Manifests through crashes: every disk call of a story as crash point. A version and its contents
are both there or neither, and nothing that was told is lost.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from random import Random
from typing import TypeVar
from unittest import mock

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.owners import FLAGS
from headrace.engine.open_log import OpenLog
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from headrace.surfaces.flags.versions import ManifestVersions, Retention
from support.engine_harness import boot
from support.hostile import HostileDisk, Survival
from support.manifests import Files, check_versions, namespace, upload
from support.state_journal import Client, StateJournal, picture
from support.virtual import VirtualClock, VirtualLoop

from .test_stream_sweep import Moment, record, run_workload

T = TypeVar("T")
RETENTION = Retention(versions=2, age_ms=0)


@pytest.fixture(autouse=True)
def whole_trees() -> Iterator[None]:
    """Whole trees are stored after a few rows; of two namespaces, one is deleted in several steps,
    the other in one.
    """
    with (
        mock.patch("headrace.surfaces.flags.version_rows.TREE_ROWS_MAX", 3),
        mock.patch("headrace.surfaces.flags.versions.DROPPED_REFERENCES_MAX", 6),
    ):
        yield


async def when_there_is_room(work: Callable[[], Awaitable[T]]) -> T:
    """Do it; again, while the disk takes nothing for a moment."""
    for _ in range(20):
        try:
            return await work()
        except Refused as refused:
            if refused.code is not Code.STORAGE_UNAVAILABLE:
                raise
            await asyncio.sleep(1)
    raise AssertionError("there is no room for good")


async def live(client: Client) -> None:
    """Uploads, races, releases and deletions of namespaces that share contents."""
    engine = client.engine
    versions = ManifestVersions(engine, RETENTION)
    one = await when_there_is_room(lambda: client.told(namespace(engine, "flags:acme:one")))
    two = await when_there_is_room(lambda: client.told(namespace(engine, "flags:acme:two")))

    async def put(live: OpenLog, files: Files, if_version: int | None = None) -> bool:
        try:
            await when_there_is_room(lambda: client.told(upload(versions, live, files, if_version)))
        except Refused as refused:
            if refused.code is not Code.CONFLICT:
                raise
            return False
        return True

    shared = {f"flags/{number}.toml": b"content %d" % number for number in range(4)}
    await put(one, shared)
    won = await asyncio.gather(
        *(put(one, {**shared, "flags/a.toml": b"%d" % each}, 1) for each in range(3)),
        *(put(two, {**shared, "flags/b.toml": b"%d" % each}, 0) for each in range(2)),
    )
    assert sum(won) == 2
    for number in range(4):
        await put(one, {**shared, "flags/a.toml": b"again %d" % number})
    await when_there_is_room(lambda: client.told(versions.prune(one)))
    await when_there_is_room(client.engine.seal)
    await put(one, {})
    await asyncio.gather(
        when_there_is_room(lambda: client.told(versions.prune(one))),
        put(two, {"flags/a.toml": b"again 0"}),
    )
    # The last who names these contents goes while others bring them again.
    gone = two
    await asyncio.gather(
        put(one, shared), when_there_is_room(lambda: client.told(versions.delete(gone)))
    )
    two = await when_there_is_room(lambda: client.told(namespace(engine, "flags:acme:two")))
    await put(two, {"flags/a.toml": b"anew"})
    await asyncio.sleep(2)
    await when_there_is_room(lambda: client.told(versions.prune(one)))
    await when_there_is_room(lambda: client.told(versions.delete(one)))
    assert engine.contents.held is not None
    assert set(engine.contents.held) == {sha256(b"anew").digest()}


async def recover(
    disk: HostileDisk, clock: VirtualClock, state_journal: StateJournal, moment: Moment
) -> None:
    engine = (await boot(disk, clock)).engine
    state_journal.judge(moment.promised, moment.offered, picture(engine.state))
    for found in list(engine.open_logs.values()):
        if found.log.owner == FLAGS:
            await check_versions(engine, found, state_journal.records)


def test_crash_at_every_call(loop: VirtualLoop) -> None:
    clock, state_journal = VirtualClock(loop), StateJournal()
    moments = record(loop, clock, state_journal, live)
    assert len(moments) > 80, "the story does too little"
    known: set[object] = set()
    problems: list[str] = []
    for moment in moments:
        for how, disk in moment.survivors():
            case = (moment.promised, moment.offered, disk.world.contents())
            if case in known:
                continue
            known.add(case)
            try:
                loop.run(recover(disk, clock, state_journal, moment))
            except Exception as problem:  # noqa: BLE001  (reported below, all together)
                problems.append(f"call {moment.number} ({moment.call}), {how}: {problem!r}")
    head = f"{len(problems)} of {len(known)} went wrong\n"
    assert not problems, head + "\n".join(problems[:10])


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC])
def test_fail_every_call(loop: VirtualLoop, fault: int) -> None:
    """A disk that fails, or is full for a moment: nothing is half there."""
    clock = VirtualClock(loop)
    for moment in record(loop, clock, StateJournal(), live)[::5]:
        disk, state_journal = HostileDisk(), StateJournal()
        disk.faults[moment.number] = fault
        try:
            loop.run(run_workload(disk, clock, state_journal, live))
        except OSError:
            continue  # it failed while starting
        last = len(state_journal.pages) - 1
        random = Random(moment.number)
        for left in (disk.kill(evicted=random), disk.lose_power(Survival.PREFIX, random)):
            then = Moment(0, moment.call, left, state_journal.promised, last)
            loop.run(recover(left, clock, state_journal, then))


def test_crashes_leave_nothing_that_verification_minds(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    for moment in record(loop, clock, StateJournal(), live)[::9]:
        for how, disk in moment.survivors():
            found = Verification(disk).run()
            problems = [str(finding) for finding in found if isinstance(finding, Problem)]
            assert problems == [], f"{moment.call}, {how}"
