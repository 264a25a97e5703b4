"""Another publisher of manifests: replaces segments by others with the same rows, as the pipeline
does, and removes what nobody needs any more.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.core.record import live_parts
from headrace.formats import layout
from headrace.formats.companion import Descriptor, encode_descriptor
from headrace.formats.manifest import Build, Manifest, Segment, replaced
from headrace.formats.marks import Marks, decode_marks
from headrace.formats.segment import SCHEMA, LogRows, block_of, build
from headrace.storage import manifests
from headrace.storage.objects import Objects


class Rival:
    """Acts when told to; every decision comes from `random`."""

    def __init__(self, objects: Objects, random: Random) -> None:
        self._objects = objects
        self._random = random
        self._count = 0
        self._replaced: set[str] = set()
        self.replacements = 0
        self.erased = 0

    def act(self) -> None:
        """Compact, erase or index a run of neighbouring segments; tidy up behind it."""
        manifest = manifests.load(self._objects)
        if not manifest.segments:
            return
        if self._random.random() < 0.2:
            self._index()
            return
        start = self._random.randrange(len(manifest.segments))
        run = manifest.segments[start : start + self._random.randint(1, 3)]
        marks = self._marks(manifest) if self._random.random() < 0.7 else Marks()
        self.replace([segment.number for segment in run], marks, self._random.randint(1, 2))
        if self._random.random() < 0.5:
            self.tidy()

    def replace(self, sources: list[int], marks: Marks, outputs: int = 1) -> bool:
        """The live rows of these segments into others; says whether that came true."""
        manifest = manifests.load(self._objects)
        run = [segment for segment in manifest.segments if segment.number in sources]
        table = pa.concat_tables([self._table(segment) for segment in run])
        table = table.sort_by([(name, "ascending") for name in ("log", "log_id", "seq")])
        logs = [rows for rows in self._logs(table.combine_chunks(), marks) if rows.blocks]
        cuts = [len(logs) * at // outputs for at in range(outputs + 1)]
        made = [self._put(logs[low:high]) for low, high in pairwise(cuts) if low < high]
        kept = sum(segment.rows for segment in made)
        found = manifests.update(self._objects, lambda now: replaced(now, sources, made))
        done = not found.numbers.intersection(sources)
        if done:
            self._replaced.update(name for segment in run for name in segment.names)
            self.replacements += 1
            self.erased += len(table) - kept
        return done

    def tidy(self) -> None:
        """As a janitor without patience does: what was replaced goes, and what came to nothing."""
        manifest = manifests.load(self._objects)
        named = {name for segment in manifest.segments for name in segment.names}
        named |= {build.name for build in manifest.builds}
        for folder in (layout.SEGMENTS, layout.COMPANIONS, layout.BUILDS):
            for listed in self._objects.list(folder):
                name = listed.name
                if folder == layout.BUILDS and layout.build_of(name) in named:
                    continue
                if name not in named and (layout.is_foreign(name) or name in self._replaced):
                    self._objects.remove(name)

    def _index(self) -> None:
        """A build of companions, with nothing in it."""
        name = f"{layout.BUILDS}/{self._token()}.json"
        content = encode_descriptor(Descriptor(segments=(), plans=0, rows=0, parts=(), files=()))
        self._objects.put(name, content)

        def change(manifest: Manifest) -> Manifest | None:
            known = {number for build in manifest.builds for number in build.segments}
            rest = [number for number in manifest.numbers if number not in known]
            if not rest:
                return None
            made = Build(
                segments=(min(rest),), name=name, checksum=xxh3_64_hexdigest(content),
                plans=0, rows=0, file_bytes=len(content),
            )  # fmt: skip
            return msgspec.structs.replace(manifest, builds=(*manifest.builds, made))

        manifests.update(self._objects, change)

    def _token(self) -> str:
        self._count += 1
        return f"p-{self._random.randrange(1 << 40):x}-{self._count}"

    def _marks(self, manifest: Manifest) -> Marks:
        if manifest.marks is None:
            return Marks()
        return decode_marks(self._objects.get(manifest.marks.name), manifest.marks.name)

    def _table(self, segment: Segment) -> pa.Table:
        with self._objects.open(segment.name) as file:
            return pq.ParquetFile(file).read(use_threads=False).cast(SCHEMA)

    def _logs(self, table: pa.Table, marks: Marks) -> list[LogRows]:
        made = []
        rows = zip(table["log_id"].to_pylist(), table["log"].to_pylist(), strict=True)
        start = 0
        for (log, name), group in groupby(rows):
            stop = start + len(list(group))
            if not marks.is_dead(log, 0):
                block = block_of(table, start, stop)
                block.media = table["media"][start].as_py()  # all rows of a log are of one kind
                made.append(LogRows(log, name, list(live_parts(block, marks.dead.get(log, ()), 1))))
            start = stop
        return made

    def _put(self, rows: list[LogRows]) -> Segment:
        built = build(rows)
        token = self._token()
        name = f"{layout.SEGMENTS}/{token}.parquet"
        index = f"{layout.COMPANIONS}/{token}.index.parquet"
        tags = f"{layout.COMPANIONS}/{token}.tags.parquet" if built.tags else None
        for path, content in ((name, built.segment), (index, built.index), (tags, built.tags)):
            if path is not None and content is not None:
                self._objects.put(path, bytes(content))
        return Segment(
            number=0, name=name, index=index, tags=tags, journal_start=0, journal_stop=0,
            logs=built.logs, rows=built.rows, record_bytes=built.record_bytes,
            file_bytes=len(built.segment), checksum=xxh3_64_hexdigest(built.segment),
            index_checksum=xxh3_64_hexdigest(built.index),
            tags_checksum=xxh3_64_hexdigest(built.tags) if built.tags else None,
        )  # fmt: skip
