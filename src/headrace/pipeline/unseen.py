"""What jobs do not see: records that the server has not sealed yet."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.formats.marks import Marks
from headrace.pipeline.store_location import StoreLocation, load
from headrace.printing import count
from headrace.storage.disk import RealDisk
from headrace.storage.journal_census import Census, take_census
from headrace.storage.objects import Objects
from headrace.storage.readonly import ReadOnlyDisk
from headrace.storage.segments import UNREADABLE

_ADVICE = "`headrace pipeline seal` has the server seal them"


def tell_unseen(place: StoreLocation) -> list[str]:
    """How many records a job that begins now does not see, in words; nothing if it sees all."""
    try:
        objects = place.open()
        manifest, marks = load(objects)
        census = census_of(place, manifest, marks)
        if census is None:
            return [_tell_from_afar(objects, manifest)]
    except (OSError, Corrupt) as problem:  # the job itself may have to tell more of it
        return [f"how many records are not sealed yet, and not seen, cannot be told: {problem}"]
    if not census.unsealed:
        return []
    return [f"{count(census.unsealed, 'record')} not sealed yet, and not seen; {_ADVICE}"]


def census_of(place: StoreLocation, manifest: Manifest, marks: Marks) -> Census | None:
    """The census of the journal that is sealed into this store; None where only the store is at
    hand.
    """
    disk = ReadOnlyDisk(RealDisk(place.data_dir))
    if manifest.owner is None:
        at_hand = place.objects is None
    else:
        id = disk.read(layout.SERVER_ID) if disk.exists(layout.SERVER_ID) else b""
        at_hand = id.decode("ascii", "replace").strip() == manifest.owner.directory
    return take_census(disk, manifest.sealed_to, marks) if at_hand else None


def _tell_from_afar(objects: Objects, manifest: Manifest) -> str:
    """Without the journal, the newest record of the last segment says up to when all are seen."""
    if not manifest.segments:
        return f"nothing is sealed yet: no record is seen; {_ADVICE}"
    last_ms = _newest_ms(objects, manifest.segments[-1].name)
    when = datetime.fromtimestamp(last_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"records after {when} may not be sealed yet, and are not seen then; {_ADVICE}"


def _newest_ms(objects: Objects, name: str) -> int:
    """The time of the newest record in a segment, by what its footer says."""
    try:
        with objects.open(name) as file:
            parts = pq.ParquetFile(file).metadata
        groups = map(parts.row_group, range(parts.num_row_groups))
        column = parts.schema.names.index("ts")
        return max(int(group.column(column).statistics.max) for group in groups)
    except (*UNREADABLE, AttributeError) as error:
        raise Corrupt(name, 0, str(error)) from None
