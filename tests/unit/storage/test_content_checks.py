"""Verification of contents that are kept by digest: each kind of damage is told, and where."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.config import LogConfig
from headrace.core.contents import Contents
from headrace.core.log import Log
from headrace.core.owners import FLAGS
from headrace.core.record import draft
from headrace.engine.engine import Engine
from headrace.engine.start import stop
from headrace.storage.checks.contents import naming_problems
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from headrace.surfaces.flags.versions import ManifestVersions, Retention
from support.engine_harness import boot, loop
from support.hostile import HostileDisk
from support.manifests import digest, namespace, upload
from support.virtual import VirtualClock, VirtualLoop

__all__ = ["loop"]


def problems(disk: HostileDisk) -> list[Problem]:
    return [found for found in Verification(disk).run() if isinstance(found, Problem)]


async def bring_another(engine: Engine) -> None:
    """A content that is not what its digest says; surfaces look before."""
    live = await namespace(engine)
    await engine.contents.commit(live, draft([b"{}"]), [digest(b"a")], {digest(b"a"): b"b"}, 0)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_content_that_is_not_its_digest_is_told(loop: VirtualLoop, sealed: bool) -> None:
    async def script() -> HostileDisk:
        disk = HostileDisk()
        started = await boot(disk, VirtualClock(loop))
        upkeep = asyncio.create_task(started.upkeep.run())
        await upload(
            ManifestVersions(started.engine, Retention()),
            await namespace(started.engine),
            {"flags/a.toml": b"right", "flags/b.toml": b"too"},
        )
        await bring_another(started.engine)
        if sealed:
            await started.engine.seal()
        upkeep.cancel()
        await stop(started)
        return disk

    (problem,) = problems(loop.run(script()))
    assert "not the SHA-256 of its data" in problem.what
    assert ("segments/" in problem.where) == sealed


@pytest.mark.parametrize("held_from", [0, 3])
def test_a_log_cannot_be_held_from_a_version_that_it_has_not(held_from: int) -> None:
    store, named = (
        Log(number, name, "flags", LogConfig(), head=2)
        for number, name in ((1, "store"), (9, "flags:acme:billing"))
    )
    store.contents = Contents()
    store.contents.held_from = {9: 2}
    assert list(naming_problems({1: store, 9: named})) == []
    store.contents.held_from = {9: held_from}
    ((_, what),) = naming_problems({1: store, 9: named})
    assert f"held from version {held_from} on" in what


def test_a_log_that_went_without_its_references_is_told(loop: VirtualLoop) -> None:
    async def script() -> HostileDisk:
        disk = HostileDisk()
        started = await boot(disk, VirtualClock(loop))
        versions = ManifestVersions(started.engine, Retention())
        live = await namespace(started.engine)
        await upload(versions, live, {"flags/a.toml": b"a"})
        await started.engine.logs.drop(live.log.name, if_empty=False, owner=FLAGS)
        await stop(started)
        return disk

    (problem,) = problems(loop.run(script()))
    assert "names contents, and is gone" in problem.what
