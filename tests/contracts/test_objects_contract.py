"""What every object store promises."""

from __future__ import annotations

import pytest

from headrace.formats import layout
from headrace.storage.disk import Disk
from headrace.storage.objects import LocalObjects, Objects

NAME = layout.segment(1)


@pytest.fixture
def objects(disk: Disk) -> Objects:
    return LocalObjects(disk)


def names(objects: Objects, folder: str) -> list[str]:
    return [listed.name for listed in objects.list(folder)]


def test_what_was_put_is_got(objects: Objects) -> None:
    objects.put(NAME, b"content")
    assert objects.get(NAME) == b"content"


def test_put_again_replaces(objects: Objects) -> None:
    objects.put(NAME, b"a long first content")
    objects.put(NAME, b"second")
    assert objects.get(NAME) == b"second"


def test_put_new_goes_to_the_first(objects: Objects) -> None:
    assert objects.put_new(NAME, b"first")
    assert not objects.put_new(NAME, b"second")
    assert objects.get(NAME) == b"first"


def test_put_new_respects_put(objects: Objects) -> None:
    objects.put(NAME, b"first")
    assert not objects.put_new(NAME, b"second")
    assert objects.get(NAME) == b"first"


def test_a_removed_name_is_free_again(objects: Objects) -> None:
    assert objects.put_new(NAME, b"first")
    objects.remove(NAME)
    objects.remove(NAME)
    assert objects.list(layout.SEGMENTS) == []
    assert objects.put_new(NAME, b"second")
    assert objects.get(NAME) == b"second"


def test_list_names_whole_objects_in_order(objects: Objects) -> None:
    for number in (3, 1, 2):
        objects.put(layout.segment(number), b"")
    assert objects.put_new(layout.manifest(1), b"{}")
    assert not objects.put_new(layout.manifest(1), b"{}")
    assert names(objects, layout.SEGMENTS) == [layout.segment(n) for n in (1, 2, 3)]
    assert names(objects, layout.MANIFESTS) == [layout.manifest(1)]


def test_open_reads_anywhere(objects: Objects) -> None:
    objects.put(NAME, b"0123456789")
    with objects.open(NAME) as file:
        assert file.read_at(3, 2) == b"234"


@pytest.mark.parametrize("call", ["get", "open"])
def test_a_missing_object_is_not_found(objects: Objects, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(objects, call)(NAME)
