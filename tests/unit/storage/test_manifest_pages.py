"""Manifests in pages: a commit writes what it changes, and no page goes that somebody may need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from headrace.client.store import Store
from headrace.core.errors import Corrupt
from headrace.core.limits import CHANGED_NUMBERS_MAX, CHANGES_MAX, PAGE_ITEMS_MAX, TAIL_ITEMS_MAX
from headrace.formats import layout, manifest_pages
from headrace.formats.manifest import Build, Manifest, Segment, dropped, replaced, sealed
from headrace.formats.manifest_pages import PageCache
from headrace.pipeline.janitor import remove_unnamed
from headrace.storage import manifests
from headrace.storage.checks.findings import Note, Problem
from headrace.storage.checks.manifests import check_manifests, check_orphans
from headrace.storage.disk import RealDisk
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects
from headrace.storage.replaced_objects import Vanished

FAR = 1 << 62
"""A time at which everything is old."""


def made(number: int = 0, name: str = "") -> Segment:
    stem = name or f"{number:010d}-0123456789ab"
    return Segment(
        number=number, name=f"segments/{stem}.parquet", index=f"companions/{stem}.index.parquet",
        tags=None, journal_start=number, journal_stop=number + 1, logs=1, rows=number + 1,
        record_bytes=1, file_bytes=1, checksum=f"{number:016x}", since=1,
        index_checksum=f"{number:016x}", tags_checksum=None, log_min=f"log-{number:06d}",
        log_max=f"log-{number + 1:06d}", seq_min=number, seq_max=number + 9, ts_min=number * 10,
        ts_max=number * 10 + 9,
    )  # fmt: skip


def build_of(number: int) -> Build:
    return Build(
        segments=(number,), name=layout.build(f"b{number}"), checksum="", plans=1, rows=1,
        file_bytes=1,
    )  # fmt: skip


def many(count: int) -> Manifest:
    return Manifest(
        next_number=count + 1,
        sealed_to=count + 1,
        segments=tuple(made(n) for n in range(1, count + 1)),
        builds=tuple(build_of(n) for n in range(1, count + 1)),
    )


class Counting(LocalObjects):
    """Objects that count what is stored and what is read."""

    stored = 0
    read = 0

    def put_new(self, name: str, content: bytes) -> bool:
        self.stored += len(content)
        return super().put_new(name, content)

    def put(self, name: str, content: bytes) -> None:
        self.stored += len(content)
        super().put(name, content)

    def get(self, name: str) -> bytes:
        content = super().get(name)
        self.read += len(content)
        return content


def filled(count: int) -> Counting:
    objects = Counting(MemoryDisk())
    manifests.update(objects, lambda _: many(count))
    objects.stored = objects.read = 0
    return objects


def append(manifest: Manifest) -> Manifest | None:
    return sealed(manifest, made(), manifest.sealed_to + 1)


def pages_of(objects: LocalObjects) -> set[str]:
    return {listed.name for listed in objects.list(layout.PAGES)}


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Nothing is known of pages but what is stored."""
    with mock.patch.object(manifest_pages, "_CACHE", PageCache(0)):
        yield


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("count", [0, 1, TAIL_ITEMS_MAX, TAIL_ITEMS_MAX + 1, PAGE_ITEMS_MAX + 40])
def test_what_is_published_comes_back(count: int) -> None:
    objects = filled(count)
    found = manifests.load(objects)
    assert found.segments == many(count).segments
    assert found.builds == many(count).builds
    assert bool(pages_of(objects)) == (count > TAIL_ITEMS_MAX)
    for page in found.pages:
        assert page.count <= PAGE_ITEMS_MAX
        assert page.log_min == f"log-{page.first:06d}"
        assert (page.seq_min, page.seq_max) == (page.first, page.last + 9)
        assert (page.ts_min, page.ts_max) == (page.first * 10, page.last * 10 + 9)


@pytest.mark.usefixtures("forgetful")
def test_a_manifest_of_the_first_format_is_read_and_goes_over() -> None:
    objects = LocalObjects(MemoryDisk())
    old = msgspec.to_builtins(msgspec.structs.replace(many(100), version=7, format=1))
    for name in ("pages", "build_pages", "changes"):
        del old[name]
    for segment in old["segments"]:
        for name in ("log_min", "log_max", "seq_min", "seq_max", "ts_min", "ts_max"):
            del segment[name]
    objects.put_new(layout.manifest(7), msgspec.json.encode(old))
    before = manifests.load(objects)
    assert [s.number for s in before.segments] == list(range(1, 101))
    assert before.segments[0].log_min is None
    manifests.update(objects, append)
    after = manifests.load(objects)
    assert after.segments[:-1] == before.segments
    assert after.version == 8
    assert after.pages
    assert after.pages[0].log_min is None
    assert msgspec.json.decode(objects.get(layout.manifest(8)))["format"] == 2


def test_a_commit_writes_what_it_changes_however_many_there_are() -> None:
    """The most that one of a series of commits stores, and all of them."""

    def costs(count: int, changes: int = 2 * TAIL_ITEMS_MAX) -> tuple[int, int, int]:
        objects, most = filled(count), 0
        for _ in range(changes):
            before = objects.stored
            manifests.update(objects, append)
            most = max(most, objects.stored - before)
        appended, objects.stored = objects.stored // changes, 0
        number = manifests.load(objects).segments[count // 2].number
        manifests.update(objects, lambda m: replaced(m, [number], [made(0, "p-new")]))
        return most, appended, objects.stored

    few, lots = costs(100), costs(50_000)
    # What grows is that each page has a line in the root.
    refs = 2 * 450 * (50_000 // PAGE_ITEMS_MAX + 1)
    page = 100 * PAGE_ITEMS_MAX
    for at_few, at_lots in zip(few, lots, strict=True):
        assert at_lots <= at_few + refs + page
    assert lots[1] < 150_000


def test_a_follower_reads_what_changed() -> None:
    objects = filled(20 * PAGE_ITEMS_MAX)
    root = len(objects.get(layout.manifest(1)))
    objects.read = 0
    manifests.load_newer(objects, 0)
    assert objects.read == root, "it has the pages already"
    number = manifests.load(objects).segments[700].number
    manifests.update(objects, lambda m: replaced(m, [number], [made(0, "p-new")]))
    objects.read = 0
    after = manifests.load_newer(objects, 1)
    assert after is not None
    assert objects.read < 2 * root


def test_a_cache_of_pages_has_a_bound() -> None:
    cache = PageCache(2)
    pages = manifests.load(filled(4 * PAGE_ITEMS_MAX)).pages
    for page in pages[:2]:
        cache.put(page, (page,))
    cache.get(pages[0])
    cache.put(pages[2], (pages[2],))
    assert [cache.get(page) is not None for page in pages[:3]] == [True, False, True]


@pytest.mark.usefixtures("forgetful")
def test_pages_that_a_change_did_not_touch_stay() -> None:
    objects = filled(6 * PAGE_ITEMS_MAX)
    before = manifests.load(objects)
    touched = before.segments[2 * PAGE_ITEMS_MAX + 5].number
    manifests.update(objects, lambda m: replaced(m, [touched], [made(0, "p-a"), made(0, "p-b")]))
    after = manifests.load(objects)
    assert len(set(before.pages) - set(after.pages)) == 1
    assert len(set(before.build_pages) - set(after.build_pages)) == 1
    manifests.update(objects, lambda m: dropped(m, {before.segments[0].number}))
    assert set(after.pages[1:]) <= set(manifests.load(objects).pages)


@pytest.mark.usefixtures("forgetful")
def test_a_page_that_is_not_what_it_was_is_damage() -> None:
    objects = filled(100)
    page = manifests.load(objects).pages[0].name
    raw = bytearray(objects.get(page))
    raw[len(raw) // 2] ^= 1
    objects.put(page, bytes(raw))
    with pytest.raises(Corrupt, match=f"{page}.*checksum"):
        manifests.load(objects)
    (found,) = [f for f in check_manifests(objects) if isinstance(f, Problem)]
    assert found.where == f"objects/{page}"
    objects.remove(page)
    with pytest.raises(Vanished, match=page):
        manifests.load(objects)
    (found,) = [f for f in check_manifests(objects) if isinstance(f, Problem)]
    assert "missing" in found.what


@pytest.mark.usefixtures("forgetful")
def test_who_reads_while_pages_go_takes_the_newer_root() -> None:
    class Replacing(LocalObjects):
        pending = False

        def get(self, name: str) -> bytes:
            if self.pending and layout.is_page(name):
                self.pending = False
                for _ in range(manifests.KEEP_VERSIONS + 1):
                    first = manifests.load(self).segments[0].number
                    manifests.update(self, lambda m, first=first: dropped(m, {first}))
                remove_unnamed(self, FAR)
            return super().get(name)

    objects = Replacing(MemoryDisk())
    manifests.update(objects, lambda _: many(100))
    objects.pending = True
    assert manifests.load(objects).segments[0].number == manifests.KEEP_VERSIONS + 2
    assert not objects.pending


class Crash(Exception):
    pass


def test_pages_of_a_commit_that_crashed_are_removed() -> None:
    class Crashing(LocalObjects):
        crash = False

        def put_new(self, name: str, content: bytes) -> bool:
            if self.crash and name.startswith(layout.MANIFESTS):
                raise Crash
            return super().put_new(name, content)

    objects = Crashing(MemoryDisk())
    manifests.update(objects, lambda _: many(100))
    before = pages_of(objects)
    objects.crash = True
    with pytest.raises(Crash):
        manifests.update(objects, lambda m: dropped(m, {1}))
    objects.crash = False
    orphans = pages_of(objects) - before
    assert orphans
    newest = manifests.load(objects)
    notes = {f.where for f in check_orphans(objects, newest) if isinstance(f, Note)}
    assert notes == {f"objects/{name}" for name in orphans}
    remove_unnamed(objects, -1)
    assert orphans <= pages_of(objects), "somebody may be about to publish them"
    remove_unnamed(objects, FAR)
    assert pages_of(objects) == before
    assert len(manifests.load(objects).segments) == 100


def test_a_page_that_an_older_root_names_is_kept() -> None:
    objects = LocalObjects(MemoryDisk())
    manifests.update(objects, lambda _: many(100))
    old = manifests.load(objects).page_names
    manifests.update(objects, lambda m: dropped(m, {1}))
    assert old.isdisjoint(manifests.load(objects).page_names)
    remove_unnamed(objects, FAR)
    assert old <= pages_of(objects), "the root before is still there"
    while layout.manifest(1) in {listed.name for listed in objects.list(layout.MANIFESTS)}:
        manifests.update(objects, append)
    remove_unnamed(objects, -1)
    assert old <= pages_of(objects), "who read that root a moment ago may go by it"
    remove_unnamed(objects, FAR)
    assert pages_of(objects) == manifests.load(objects).page_names


def test_a_job_that_stalls_between_its_pages_and_its_root_publishes_others() -> None:
    """The janitor takes its pages for orphans: the version it was to publish is taken then."""

    class Stalling(LocalObjects):
        stall = False

        def put_new(self, name: str, content: bytes) -> bool:
            if self.stall and name.startswith(layout.MANIFESTS):
                self.stall = False
                assert remove_unnamed(self, FAR).objects
            return super().put_new(name, content)

    objects = Stalling(MemoryDisk())
    manifests.update(objects, lambda _: many(100))
    objects.stall = True
    manifests.update(objects, lambda m: dropped(m, {1}))
    with mock.patch.object(manifest_pages, "_CACHE", PageCache()):
        assert [s.number for s in manifests.load(objects).segments] == list(range(2, 101))


def test_changes_are_told_as_far_as_they_are_known() -> None:
    objects = filled(100)
    for _ in range(3):
        manifests.update(objects, append)
    newest = manifests.load(objects)
    changes = newest.changes_since(1)
    assert changes is not None
    assert [change.added for change in changes] == [(101,), (102,), (103,)]
    assert newest.changes_since(4) == ()
    assert newest.changes_since(5) is None
    manifests.update(objects, lambda m: replaced(m, [5, 6], [made(0, "p-new")]))
    (change,) = manifests.load(objects).changes_since(4) or ()
    assert (change.version, change.added, change.removed, change.builds) == (
        5,
        (104,),
        (5, 6),
        True,
    )
    for _ in range(CHANGES_MAX):
        manifests.update(objects, append)
    newest = manifests.load(objects)
    assert len(newest.changes) == CHANGES_MAX
    assert newest.changes_since(4) is None
    assert newest.changes_since(5) is not None


def test_a_change_of_too_many_segments_is_not_told() -> None:
    objects = filled(CHANGED_NUMBERS_MAX + 10)
    manifests.update(objects, lambda m: dropped(m, set(range(1, CHANGED_NUMBERS_MAX + 2))))
    assert manifests.load(objects).changes_since(1) is None
    manifests.update(objects, append)
    assert manifests.load(objects).changes_since(1) is None
    assert manifests.load(objects).changes_since(2) is not None


@pytest.mark.usefixtures("forgetful")
def test_a_reader_without_a_server_sees_all_pages(tmp_path: Path) -> None:
    manifests.update(LocalObjects(RealDisk(tmp_path)), lambda _: many(100))
    found = Store(str(tmp_path)).manifest()
    assert found is not None
    assert found.segments == many(100).segments
