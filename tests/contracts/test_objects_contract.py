"""What every object store promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.objects import Objects

NAME = layout.segment(1)


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


def test_a_list_tells_size_and_time(objects: Objects) -> None:
    objects.put(NAME, b"0123456789")
    objects.put(layout.segment(2), b"")
    first, second = objects.list(layout.SEGMENTS)
    assert (first.size_bytes, second.size_bytes) == (10, 0)
    assert second.modified_ms >= first.modified_ms >= 0


def test_folders_are_apart(objects: Objects) -> None:
    objects.put(layout.plans(1), b"{}")
    objects.put(layout.marks(1), b"")
    objects.put(f"{layout.BUILDS}/x.json", b"{}")
    for folder in layout.STORE:
        assert len(names(objects, folder)) == (
            folder in (layout.PLANS, layout.MARKS, layout.BUILDS)
        )


def test_the_first_of_many_writers_wins(objects: Objects) -> None:
    contents = [b"writer %d" % number for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        won = [*pool.map(lambda content: objects.put_new(NAME, content), contents)]
    assert won.count(True) == 1
    assert objects.get(NAME) == contents[won.index(True)]
    assert names(objects, layout.SEGMENTS) == [NAME]


def test_nothing_unfinished_is_left(objects: Objects) -> None:
    for _ in range(3):
        objects.put_new(NAME, b"content")
    objects.settle(layout.SEGMENTS)
    assert names(objects, layout.SEGMENTS) == [NAME]


def test_large_objects_are_read_in_pieces(objects: Objects) -> None:
    content = bytes(range(256)) * (9 << 12)
    objects.put(NAME, content)
    assert objects.get(NAME) == content
    with objects.open(NAME) as file:
        assert file.size() == len(content)
        for start, size in ((0, 4), (5 << 20, 1 << 20), (len(content) - 8, 8), (17, 3), (100, 0)):
            assert bytes(file.read_at(size, start)) == content[start : start + size]
        file.seek(len(content) - 5)
        assert file.read() == content[-5:]
        assert file.read(10) == b""


def test_parquet_is_read_by_row_group(objects: Objects) -> None:
    table = pa.table({"n": list(range(10_000)), "s": [f"text {n}" for n in range(10_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    objects.put(NAME, sink.getvalue().to_pybytes())
    file = pq.ParquetFile(objects.open(NAME))
    assert file.num_row_groups == 10
    assert file.read_row_group(7).equals(table.slice(7000, 1000))


@pytest.mark.parametrize("others", [1, manifests.KEEP_VERSIONS + 2, manifests.LINE_MAX + 2])
def test_who_comes_far_too_late_does_not_publish_in_vain(objects: Objects, others: int) -> None:
    """The name of a version that was forgotten is free again; a version under it is not read."""

    def seal(manifest: Manifest) -> Manifest:
        return msgspec.structs.replace(manifest, sealed_to=manifest.sealed_to + 1)

    def slow(manifest: Manifest) -> Manifest:
        if manifest.version == 1:
            for _ in range(others):
                manifests.update(objects, seal)
        return msgspec.structs.replace(manifest, next_number=manifest.next_number + 1)

    manifests.update(objects, seal)
    manifests.update(objects, slow)
    newest = manifests.load(objects)
    assert (newest.sealed_to, newest.next_number) == (1 + others, 2)


def test_who_says_the_same_as_another_is_not_taken_for_him(objects: Objects) -> None:
    """Ours comes so late that the version of its number was published and forgotten meanwhile."""

    def count(manifest: Manifest) -> Manifest:
        return msgspec.structs.replace(manifest, sealed_to=manifest.sealed_to + 1)

    others = manifests.KEEP_VERSIONS + 1
    first = True

    def slow(manifest: Manifest) -> Manifest:
        nonlocal first
        if first:
            first = False
            for _ in range(others):
                manifests.update(objects, count)
        return count(manifest)

    manifests.update(objects, slow)
    assert manifests.load(objects).sealed_to == others + 1


def test_a_version_that_is_taken_is_a_conflict(objects: Objects) -> None:
    manifests.publish(objects, Manifest(version=1, token="first"))
    with pytest.raises(manifests.Conflict):
        manifests.publish(objects, Manifest(version=1, token="second"))
    assert manifests.load(objects).token == "first"


def test_manifests_are_published_one_after_the_other(objects: Objects) -> None:
    def count(manifest: Manifest) -> Manifest:
        return msgspec.structs.replace(manifest, sealed_to=manifest.sealed_to + 1)

    with ThreadPoolExecutor(4) as pool:
        done = [*pool.map(lambda _: manifests.update(objects, count), range(12))]
    assert sorted(manifest.version for manifest in done) == list(range(1, 13))
    newest = manifests.load(objects)
    assert (newest.version, newest.sealed_to) == (12, 12)
    assert len(names(objects, layout.MANIFESTS)) == manifests.KEEP_VERSIONS
    assert manifests.load_newer(objects, 12) is None
    assert manifests.load_newer(objects, 3) == newest
    assert manifests.update(objects, lambda manifest: None) == newest


def test_an_object_is_looked_at_by_name(objects: Objects) -> None:
    assert objects.look(NAME) is None
    objects.put(NAME, b"0123456789")
    assert objects.look(NAME) == objects.list(layout.SEGMENTS)[0]
