"""Objects under crashes: every call of a put as crash point, every way to survive it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.objects import LocalObjects
from support.hostile import Crash, HostileDisk, Survival

NAME = layout.manifest(2)


def outcomes(work: Callable[[LocalObjects], object]) -> list[HostileDisk]:
    """The disk after every crash of `work`, and after its success, in every way to survive."""
    found: list[HostileDisk] = []
    crash_at = 0
    while True:
        disk = HostileDisk()
        objects = LocalObjects(disk)
        disk.crash_at = disk.calls + crash_at
        try:
            work(objects)
        except Crash:
            done = False
        else:
            done = True
        found.append(disk.kill())
        for survival in Survival:
            found += [disk.lose_power(survival, Random(seed)) for seed in range(4)]
        if done:
            return found
        crash_at += 1


@pytest.mark.parametrize("call", ["put", "put_new"])
def test_an_object_is_whole_or_absent(call: str) -> None:
    content = bytes(range(256)) * 2
    for disk in outcomes(lambda objects: getattr(objects, call)(NAME, content)):
        objects = LocalObjects(disk)
        if objects.list(layout.MANIFESTS):
            assert objects.get(NAME) == content


@pytest.mark.parametrize("call", ["put", "put_new"])
def test_an_acknowledged_object_survives_power_loss(call: str) -> None:
    for survival in Survival:
        disk = HostileDisk()
        assert getattr(LocalObjects(disk), call)(NAME, b"content") in (None, True)
        after = LocalObjects(disk.lose_power(survival, Random(0)))
        assert after.get(NAME) == b"content"


def test_whoever_finds_an_object_keeps_it_from_later_writers() -> None:
    """The temporary name a dead process left may still be a name of what it published."""
    for disk in outcomes(lambda objects: objects.put_new(NAME, b"first")):
        objects = LocalObjects(disk)
        there = bool(objects.list(layout.MANIFESTS))
        assert objects.put_new(NAME, b"second, and longer") is not there
        assert objects.get(NAME) == (b"first" if there else b"second, and longer")


def test_a_manifest_that_was_read_stays() -> None:
    """What a start builds upon must not be undone by a power loss later."""
    for disk in outcomes(lambda objects: manifests.publish(objects, Manifest(version=1))):
        objects = LocalObjects(disk)
        seen = manifests.load(objects).version
        for survival in Survival:
            after = LocalObjects(disk.lose_power(survival, Random(0)))
            assert manifests.load(after).version == seen
