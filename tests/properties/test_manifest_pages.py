"""Random changes of manifests in small pages: what is stored is the plain list."""

from __future__ import annotations

from random import Random
from unittest import mock

import msgspec
import pytest

from headrace.formats import layout, manifest_pages
from headrace.formats.manifest import Build, Manifest, Segment, dropped, replaced, sealed
from headrace.formats.manifest_pages import PageCache
from headrace.pipeline.janitor import remove_unnamed
from headrace.storage import manifests
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects


def made(rng: Random) -> Segment:
    stem = f"{rng.getrandbits(64):x}"
    known = rng.random() < 0.7
    return Segment(
        number=0, name=f"segments/{stem}", index=f"companions/{stem}", tags=None, journal_start=0,
        journal_stop=1, logs=1, rows=1, record_bytes=1, file_bytes=1, checksum="",
        index_checksum="", tags_checksum=None, seq_min=rng.randrange(99) if known else None,
    )  # fmt: skip


def build_of(segment: Segment) -> Build:
    name = layout.build(f"b{segment.number}")
    return Build(segments=(segment.number,), name=name, checksum="", plans=1, rows=1, file_bytes=1)


def change(rng: Random, manifest: Manifest) -> Manifest | None:
    held = manifest.segments
    match rng.randrange(6):
        case 0 | 1:
            return sealed(manifest, made(rng), manifest.sealed_to + 1)
        case 2 if held:
            start = rng.randrange(len(held))
            run = held[start : start + rng.randint(1, 12)]
            outputs = [made(rng) for _ in range(rng.randint(0, 4))]
            return replaced(manifest, [one.number for one in run], outputs)
        case 3:
            share = rng.choice((0.02, 0.1, 0.5))
            return dropped(manifest, {one.number for one in held if rng.random() < share})
        case 4:
            builds = [build_of(one) for one in held if rng.random() < 0.8]
            return msgspec.structs.replace(manifest, builds=tuple(builds))
        case _:
            return msgspec.structs.replace(
                manifest,
                sealed_to=manifest.sealed_to + 1,
                next_number=manifest.next_number + 9,
                segments=(
                    *held,
                    *(
                        msgspec.structs.replace(made(rng), number=manifest.next_number + at)
                        for at in range(9)
                    ),
                ),
            )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pages_max", [0, 3, 1000])
def test_any_changes_are_those_of_the_plain_list(seed: int, pages_max: int) -> None:
    rng, objects, cache = Random(seed), LocalObjects(MemoryDisk()), PageCache(pages_max)
    plain = Manifest()
    with (
        mock.patch.object(manifest_pages, "PAGE_ITEMS_MAX", 8),
        mock.patch.object(manifest_pages, "TAIL_ITEMS_MAX", 3),
        mock.patch.object(manifest_pages, "_CACHE", cache),
    ):
        for _ in range(60):
            state = rng.getstate()

            def step(manifest: Manifest) -> Manifest | None:
                rng.setstate(state)  # noqa: B023 (asked at once)
                return change(rng, manifest)

            after = manifests.update(objects, step)
            expected = step(plain)
            if expected is not None:
                plain = msgspec.structs.replace(expected, version=plain.version + 1)
            found = manifests.load(objects)
            assert found == after
            assert found.segments == plain.segments
            assert found.builds == plain.builds
            assert len(found.pages) <= 2 * len(found.segments) // 8 + 2
            if rng.random() < 0.1:
                remove_unnamed(objects, 1 << 62)
                plain = msgspec.structs.replace(plain, version=manifests.load(objects).version)
