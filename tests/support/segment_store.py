"""A store with segments as a server would publish them, and what is in them.

`SegmentStore` seals what it is given; `Layout` describes a store of any shape that a seed decides,
and `layouts` draws such descriptions for properties. `damage` and `remove` spoil what is there.

    layout = Layout(seed=3, logs=5, segments=4, group_rows=8, recreated=1)
    shelf = SegmentStore(tmp_path).fill(layout)
    assert found == shelf.live()
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from headrace.core import ranges
from headrace.core.limits import ROW_GROUP_ROWS
from headrace.core.record import block, draft
from headrace.formats import layout
from headrace.formats import segment as segment_format
from headrace.formats.companion import Family, decode_descriptor, log_key
from headrace.formats.index_plans import IndexPlans, encode_plans, plan
from headrace.formats.manifest import Manifest, Named, Segment, replaced, sealed
from headrace.formats.marks import ID_MAX, Marks, encode_marks
from headrace.formats.postings import decode_postings
from headrace.formats.segment import LogRows
from headrace.formats.segment import build as encode_segment
from headrace.pipeline.rewrite import write
from headrace.pipeline.store_location import StoreLocation, load
from headrace.storage import manifests
from headrace.storage.objects import Objects

Rows = dict[str, list[bytes]]
JOURNAL_BYTES = 1000
START_MS = 1_760_000_000_000
_SORTED_BY = ("log", "log_id", "seq")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a store; equal ones with equal seeds are equal stores."""

    seed: int = 0
    logs: int = 3
    """Called log-0, log-1 and so on."""
    segments: int = 3
    rows_max: int = 40
    """Rows of one log in one segment; some have none in some."""
    group_rows: int = 8
    """Rows of a row group: much fewer than a server's, so that logs lie in several of a file."""
    skip_max: int = 5
    """Seqs of a log that may be missing between two segments: a crash took them."""
    dead: float = 0.2
    """How many of the records were deleted, about; in ranges."""
    recreated: int = 0
    """Logs that were dropped and made anew on the way."""
    dropped: int = 0
    """Logs that are no more: those with the highest numbers."""


def layouts(**fixed: Any) -> st.SearchStrategy[Layout]:
    """Small stores of every shape; what is given stays as it is."""
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "seed": st.integers(0, 1 << 16),
        "logs": st.integers(1, 4),
        "segments": st.integers(1, 4),
        "rows_max": st.integers(1, 40),
        "group_rows": st.integers(1, 12),
        "skip_max": st.integers(0, 5),
        "dead": st.sampled_from((0.0, 0.1, 0.5, 1.0)),
        "recreated": st.integers(0, 2),
        "dropped": st.integers(0, 1),
    }
    return st.builds(Layout, **drawn | {name: st.just(value) for name, value in fixed.items()})


class SegmentStore:
    """Seals whatever it is given; log ids are given out by first mention."""

    def __init__(self, data_dir: Path, objects: str | None = None) -> None:
        self.place = StoreLocation(data_dir, objects)
        self.objects: Objects = self.place.open()
        self.ids: dict[str, int] = {}
        self.heads: dict[str, int] = {}
        self.all: dict[tuple[str, int], bytes] = {}
        """What was sealed of logs as they are now; what was deleted is still in it."""
        self.dead: dict[str, list[int]] = {}
        """Log → ranges of seqs that were deleted."""
        self.dropped: set[str] = set()
        self._ids_gone: list[int] = []
        self._ids_given = 0
        self._marks = 0

    def copy(self, data_dir: Path) -> SegmentStore:
        """A store that is the same, and goes its own way from here."""
        shutil.copytree(self.place.data_dir, data_dir)
        copied = SegmentStore(data_dir)
        copied.ids, copied.heads, copied.all = dict(self.ids), dict(self.heads), dict(self.all)
        copied.dead, copied.dropped = dict(self.dead), set(self.dropped)
        copied._ids_gone, copied._ids_given = list(self._ids_gone), self._ids_given
        copied._marks = self._marks
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
        skip: int | Mapping[str, int] = 0,
        media: str | None = None,
        group_rows: int = ROW_GROUP_ROWS,
    ) -> Segment:
        """One segment with these payloads; `skip` leaves a hole before them."""
        held: list[LogRows] = []
        before = self.manifest
        for name in sorted(rows):
            log = self._id(name)
            hole = skip if isinstance(skip, int) else skip.get(name, 0)
            first = self.heads.get(name, 0) + hole + 1
            payloads = list(rows[name])
            tags = [tag] * len(payloads) if tag else None
            of = [keys[at % len(keys)] for at in range(len(payloads))] if keys else None
            drafts = draft(payloads, tags=tags, keys=of)
            drafts.media = media
            held.append(LogRows(log, name, [block(drafts, first, START_MS + before.version)]))
            self.heads[name] = first + len(payloads) - 1
            self.all |= {(name, first + at): data for at, data in enumerate(payloads)}
        with patch.object(segment_format, "ROW_GROUP_ROWS", group_rows):
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
        """Say that these ranges of seqs, and everything of dropped logs, are dead; no others are.

        Logs that were made anew are others than those before them.
        """
        self.dead = {name: list(seqs) for name, seqs in dead.items()}
        self.dropped = set(dropped)
        gone = sorted([*self._ids_gone, *(self.ids[name] for name in self.dropped)])
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
            plan(self._id(name), name, msgspec.json.encode(search))
            for name, search in searches.items()
        ]
        plans.sort(key=lambda plan: plan.log_id)
        raw = encode_plans(IndexPlans(plans=tuple(plans)))
        name = layout.plans(generation)
        self.objects.put(name, raw)
        listed = Named(name=name, checksum=xxh3_64_hexdigest(raw), generation=generation)
        manifests.update(self.objects, lambda m: msgspec.structs.replace(m, plans=listed))

    def _id(self, name: str) -> int:
        if name not in self.ids:
            self._ids_given += 1
            self.ids[name] = self._ids_given
        return self.ids[name]

    def recreate(self, name: str) -> None:
        """Drop a log, and make one of the same name: what is sealed next begins it."""
        self._ids_gone.append(self.ids.pop(name))
        self.heads.pop(name, None)
        self.dead.pop(name, None)
        self.all = {at: data for at, data in self.all.items() if at[0] != name}
        self.mark(self.dead, self.dropped)

    def fill(self, shape: Layout) -> SegmentStore:
        """Seal what a layout says, all of it."""
        rng = random.Random(shape.seed)
        names = [f"log-{at}" for at in range(shape.logs)]
        anew = {rng.randrange(shape.segments): name for name in names[: shape.recreated]}
        for at in range(shape.segments):
            if (name := anew.get(at)) is not None and name in self.ids:
                self.recreate(name)
            counts = {name: rng.randrange(shape.rows_max + 1) for name in names}
            if not any(counts.values()):
                counts[rng.choice(names)] = 1
            rows = {name: payloads(count, name, 1) for name, count in counts.items() if count}
            skip = {name: rng.randint(0, shape.skip_max) for name in rows}
            self.seal(rows, skip=skip, group_rows=shape.group_rows)
        dead = {name: self._deaths(name, rng, shape.dead) for name in names if name in self.ids}
        gone = [name for name in names[len(names) - shape.dropped :] if name in self.ids]
        self.mark({name: seqs for name, seqs in dead.items() if seqs}, gone)
        return self

    def _deaths(self, name: str, rng: random.Random, share: float) -> list[int]:
        """Ranges of seqs of a log, as many as make up this share of it."""
        left = round(self.heads[name] * share)
        found: Sequence[int] = []
        while left > ranges.count(found):
            first = rng.randint(1, self.heads[name])
            last = min(self.heads[name], first + rng.randint(0, max(1, left // 2)))
            found = ranges.add(found, first, last)
        return list(found)

    def live(self) -> dict[tuple[str, int], bytes]:
        """What a reader of the store is to find."""
        return {
            (name, seq): data
            for (name, seq), data in self.all.items()
            if name not in self.dropped and not ranges.contains(self.dead.get(name, ()), seq)
        }

    def rewrite(self, *, group_rows: int = ROW_GROUP_ROWS, clean: bool = True) -> None:
        """All segments become one without the dead, as jobs do it; with `clean` the old ones go."""
        manifest, marks = load(self.objects)
        tables = [pq.read_table(self.objects.open(segment.name)) for segment in manifest.segments]
        table = pa.concat_tables(tables).sort_by([(name, "ascending") for name in _SORTED_BY])
        pairs = zip(
            table.column("log_id").to_pylist(), table.column("seq").to_pylist(), strict=True
        )
        table = table.filter(pa.array([not marks.is_dead(log, seq) for log, seq in pairs]))
        outputs = []
        if len(table):
            with patch.object(segment_format, "ROW_GROUP_ROWS", group_rows):
                name = f"rewritten-{manifest.version}"
                outputs.append(write(self.objects, name, [table.combine_chunks()]))
        numbers = [segment.number for segment in manifest.segments]
        manifests.update(self.objects, lambda m: replaced(m, numbers, outputs))
        if clean:
            for name in [name for segment in manifest.segments for name in segment.names]:
                self.remove(name)

    def damage(self, name: str, count: int = 40, seed: int = 0) -> None:
        """Flip so many bytes of an object, anywhere in it."""
        raw = bytearray(self.objects.get(name))
        for at in random.Random(seed).sample(range(len(raw)), min(count, len(raw))):
            raw[at] ^= 0xFF
        self.objects.put(name, bytes(raw))

    def remove(self, name: str) -> None:
        """Take an object away that the manifest may name."""
        self.objects.remove(name)

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
        """Everything in the published segments, of logs as they are now; a record that is there
        twice is a mistake.
        """
        found: dict[tuple[str, int], bytes] = {}
        for segment in self.manifest.segments:
            table = pq.read_table(self.objects.open(segment.name))
            columns = (table.column(name).to_pylist() for name in ("log", "log_id", "seq", "data"))
            for log, id, seq, data in zip(*columns, strict=True):
                if id in self._ids_gone:
                    continue
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
