"""A store with segments as a server would publish them, and what is in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.core.record import block, draft
from headrace.formats import layout
from headrace.formats.companion import Family, decode_descriptor, log_key
from headrace.formats.manifest import Manifest, Named, Segment, sealed
from headrace.formats.marks import ID_MAX, Marks, encode_marks
from headrace.formats.plans import Plans, encode_plans, plan
from headrace.formats.postings import decode_postings
from headrace.formats.segment import LogRows
from headrace.formats.segment import build as encode_segment
from headrace.pipeline.place import Place
from headrace.storage import manifests
from headrace.storage.objects import Objects

Rows = dict[str, list[bytes]]
JOURNAL_BYTES = 1000
START_MS = 1_760_000_000_000


class Shelf:
    """Seals whatever it is given; log ids are given out by first mention."""

    def __init__(self, data_dir: Path, objects: str | None = None) -> None:
        self.place = Place(data_dir, objects)
        self.objects: Objects = self.place.open()
        self.ids: dict[str, int] = {}
        self.heads: dict[str, int] = {}
        self.all: dict[tuple[str, int], bytes] = {}
        self._marks = 0

    def copy(self, data_dir: Path) -> Shelf:
        """A store that is the same, and goes its own way from here."""
        shutil.copytree(self.place.data_dir, data_dir)
        copied = Shelf(data_dir)
        copied.ids, copied.heads, copied.all = dict(self.ids), dict(self.heads), dict(self.all)
        return copied

    @property
    def manifest(self) -> Manifest:
        return manifests.load(self.objects)

    def seal(
        self,
        rows: Mapping[str, Sequence[bytes]],
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        skip: int = 0,
        media: str | None = None,
    ) -> Segment:
        """One segment with these payloads; `skip` leaves a hole before them."""
        held: list[LogRows] = []
        before = self.manifest
        for name in sorted(rows):
            log = self.ids.setdefault(name, len(self.ids) + 1)
            first = self.heads.get(name, 0) + skip + 1
            payloads = list(rows[name])
            tags = [tag] * len(payloads) if tag else None
            of = [keys[at % len(keys)] for at in range(len(payloads))] if keys else None
            drafts = draft(payloads, tags=tags, keys=of)
            drafts.media = media
            held.append(LogRows(log, name, [block(drafts, first, START_MS + before.version)]))
            self.heads[name] = first + len(payloads) - 1
            self.all |= {(name, first + at): data for at, data in enumerate(payloads)}
        built = encode_segment(held)
        number = before.next_number
        names = layout.segment(number, "t"), layout.segment_index(number, "t")
        tags_name = layout.segment_tags(number, "t") if built.tags else None
        self.objects.put(names[0], built.segment)
        self.objects.put(names[1], built.index)
        if tags_name and built.tags:
            self.objects.put(tags_name, built.tags)
        segment = Segment(
            number=number,
            name=names[0],
            index=names[1],
            tags=tags_name,
            journal_start=before.sealed_to,
            journal_stop=before.sealed_to + JOURNAL_BYTES,
            logs=built.logs,
            rows=built.rows,
            record_bytes=built.record_bytes,
            file_bytes=len(built.segment),
            checksum=xxh3_64_hexdigest(built.segment),
            index_checksum=xxh3_64_hexdigest(built.index),
            tags_checksum=xxh3_64_hexdigest(built.tags) if built.tags else None,
        )
        after = manifests.update(
            self.objects, lambda m: sealed(m, segment, before.sealed_to + JOURNAL_BYTES)
        )
        return after.segments[-1]

    def mark(self, dead: Mapping[str, Sequence[int]], dropped: Iterable[str] = ()) -> None:
        """Say that these ranges of seqs, and everything of dropped logs, are dead."""
        gone = sorted(self.ids[name] for name in dropped)
        live: list[int] = []
        low = 1
        for log in gone:
            if low < log:
                live += low, log - 1
            low = log + 1
        live += low, ID_MAX
        marks = Marks(live, {self.ids[name]: list(seqs) for name, seqs in dead.items()})
        self._marks += 1
        raw, name = encode_marks(marks), layout.marks(self._marks)
        self.objects.put(name, raw)
        listed = Named(name=name, checksum=xxh3_64_hexdigest(raw), generation=self._marks)
        manifests.update(self.objects, lambda m: msgspec.structs.replace(m, marks=listed))

    def plan(self, searches: Mapping[str, dict[str, Any]]) -> None:
        """Say what these logs want indexed."""
        generation = (self.manifest.plans.generation if self.manifest.plans else 0) + 1
        plans = [
            plan(self.ids.setdefault(name, len(self.ids) + 1), name, msgspec.json.encode(search))
            for name, search in searches.items()
        ]
        plans.sort(key=lambda plan: plan.log_id)
        raw = encode_plans(Plans(plans=tuple(plans)))
        name = layout.plans(generation)
        self.objects.put(name, raw)
        listed = Named(name=name, checksum=xxh3_64_hexdigest(raw), generation=generation)
        manifests.update(self.objects, lambda m: msgspec.structs.replace(m, plans=listed))

    def indexed(self, log: str) -> dict[str, list[int]]:
        """The seqs of a log for each of its words and values, over all builds.

        A record that two builds speak for is a mistake.
        """
        found: dict[str, list[int]] = {}
        for build in self.manifest.builds:
            descriptor = decode_descriptor(self.objects.get(build.name), build.name)
            file = descriptor.file(Family.EXACT)
            if file is None:
                continue
            table = pq.read_table(self.objects.open(file.name))
            start = log_key(self.ids[log])
            for key, n, first, last, post in zip(
                *(column.to_pylist() for column in table.columns), strict=True
            ):
                if key.startswith(start):
                    seqs = decode_postings(n, first, last, post).tolist()
                    held = found.setdefault(key[8:].decode(), [])
                    assert not set(held).intersection(seqs)
                    held += seqs
        return {value: sorted(seqs) for value, seqs in found.items()}

    def rows(self) -> dict[tuple[str, int], bytes]:
        """Everything in the published segments; a record that is there twice is a mistake."""
        found: dict[tuple[str, int], bytes] = {}
        for segment in self.manifest.segments:
            table = pq.read_table(self.objects.open(segment.name))
            columns = (table.column(name).to_pylist() for name in ("log", "seq", "data"))
            for log, seq, data in zip(*columns, strict=True):
                assert (log, seq) not in found
                found[log, seq] = data
        return found

    def objects_there(self) -> set[str]:
        folders = (layout.SEGMENTS, layout.COMPANIONS, layout.BUILDS)
        return {listed.name for folder in folders for listed in self.objects.list(folder)}

    def named(self) -> set[str]:
        """Everything the manifest stands for."""
        names = {name for segment in self.manifest.segments for name in segment.names}
        for build in self.manifest.builds:
            descriptor = decode_descriptor(self.objects.get(build.name), build.name)
            names |= {build.name, *(file.name for file in descriptor.files)}
        return names


def payloads(count: int, word: str = "x", size: int = 20) -> list[bytes]:
    return [b'{"n":%d,"v":"v","w":"%s"}' % (n, word.encode() * size) for n in range(count)]


def search(*fields: str) -> dict[str, Any]:
    """A configuration with exact fields."""

    def field(name: str, **more: Any) -> dict[str, Any]:
        return {"bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}

    return {
        "primaryTimestampField": "at",
        "fields": {
            "at": field("at", kind="date", exact=True),
            **{name: field(name, kind="keyword", exact=True) for name in fields},
        },
    }
