"""Publishing manifests to stores that lose answers and are late to list."""

from __future__ import annotations

import msgspec
import pytest

from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import Listed, LocalObjects


def count(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, sealed_to=manifest.sealed_to + 1)


class LostAnswer(LocalObjects):
    """Somebody between us repeats a conditional write whose answer was lost: the name is taken."""

    lose = True
    others = 0

    def put_new(self, name: str, content: bytes) -> bool:
        done = super().put_new(name, content)
        if self.lose:
            self.lose = False
            for _ in range(self.others):
                manifests.update(self, count)
            return False
        return done


@pytest.mark.parametrize("others", [0, 1, manifests.KEEP_VERSIONS + 2])
def test_a_change_whose_answer_was_lost_is_made_once(others: int) -> None:
    objects = LostAnswer(MemoryDisk())
    objects.others = others
    manifests.update(objects, count)
    assert manifests.load(objects).sealed_to == 1 + others


class LateList(LocalObjects):
    """Shows new objects in lists when somebody has asked often enough."""

    late = 0

    def list(self, folder: str) -> list[Listed]:
        found = super().list(folder)
        if folder == layout.MANIFESTS and found:
            return found[: -self.late] if self.late else found
        return found


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_list_that_is_late_hides_no_version(late: int) -> None:
    objects = LateList(MemoryDisk())
    for _ in range(4):
        manifests.update(objects, count)
    objects.late = late
    assert manifests.load(objects).sealed_to == 4
    assert manifests.load_newer(objects, 4) is None
    for _ in range(3):
        manifests.update(objects, count)
    newest = manifests.load_newer(objects, 4)
    assert newest is not None
    assert newest.sealed_to == 7
