"""Companions of segments: their index and their tags, made again should they have vanished.

Everything in them is in the segment itself, so only a segment can be lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.core.limits import LOST_LOGS_SHOWN
from headrace.core.log import Log
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.segment import Derived, derive
from headrace.observe import log_line
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import gone_is_vanished


def load_index(objects: Objects, segment: Segment) -> bytes:
    """The index of a segment; `Vanished` when that and the segment are gone."""
    try:
        raw = objects.get(segment.index)
    except FileNotFoundError:
        return restore(objects, segment).index
    if xxh3_64_hexdigest(raw) != segment.index_checksum:
        raise Corrupt(segment.index, 0, "checksum mismatch in the index")
    return raw


def load_tags(objects: Objects, segment: Segment) -> bytes:
    """The tags of a segment that has some, made again."""
    assert segment.tags is not None
    tags = restore(objects, segment).tags
    if tags is None:
        raise Corrupt(segment.name, 0, "has no tags, where the manifest says it has")
    return tags


def restore(objects: Objects, segment: Segment) -> Derived:
    """Make the companions of a segment from its rows, and store those that are not there."""
    try:
        with gone_is_vanished(segment.name):
            derived = derive(pq.ParquetFile(objects.open(segment.name)))
    except (pa.ArrowException, ValueError, LookupError, TypeError) as error:
        raise Corrupt(segment.name, 0, f"not a segment: {error}") from None
    for name, checksum, content in (
        (segment.index, segment.index_checksum, derived.index),
        (segment.tags, segment.tags_checksum, derived.tags),
    ):
        if name is None or content is None or objects.look(name) is not None:
            continue
        # Another version of the library may write the same rows in other bytes.
        same = xxh3_64_hexdigest(content) == checksum
        if same:
            objects.put(name, content)
        log_line(
            "warning", "a companion of a segment had vanished and was made again",
            segment=segment.number, name=name, stored=same,
        )  # fmt: skip
    return derived


def missing(objects: Objects, manifest: Manifest) -> set[str]:
    """What a manifest names of segments and builds and is not there, by a look at whole folders."""
    named = {name for segment in manifest.segments for name in segment.names}
    named |= {build.name for build in manifest.builds}
    for folder in sorted({name.rpartition("/")[0] for name in named}):
        named.difference_update(listed.name for listed in objects.list(folder))
    return named


def held_in(logs: Iterable[Log], segment: int) -> str:
    """The logs and seqs that lie in a segment, for people; as many as they can read."""
    found = [
        f"{log.name} {first} to {last}"
        for log in logs
        for number, first, last in log.extents
        if number == segment
    ]
    more = len(found) - LOST_LOGS_SHOWN
    return ", ".join(found[:LOST_LOGS_SHOWN]) + (f" and {more} more logs" if more > 0 else "")
