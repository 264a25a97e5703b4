"""What still holds the bytes of dead records after an erasure, and until when."""

from __future__ import annotations

from headrace.core.errors import Corrupt
from headrace.pipeline.commit import named
from headrace.pipeline.janitor import find_objects, find_unfinished, owner
from headrace.pipeline.limits import GRACE_S
from headrace.pipeline.store_location import StoreLocation, load
from headrace.pipeline.unseen import census_of
from headrace.printing import count, size
from headrace.storage.leases import find_earlier

_RETIRE = "`headrace pipeline erase --url URL` has it let go of them now"


def tell_remains(place: StoreLocation) -> list[str]:
    """A line for each place where dead records may still be; nothing if there is none."""
    return [*_tell_journal(place), *_tell_objects(place), *_tell_jobs(place)]


def _tell_journal(place: StoreLocation) -> list[str]:
    manifest, marks = load(place.open())
    try:
        census = census_of(place, manifest, marks)
    except Corrupt as damage:
        return [f"the journal, which is damaged ({damage}), may hold dead records"]
    if census is None:
        return [
            "the journal of the server cannot be seen from here: it may hold dead records until "
            f"later snapshots cover them; {_RETIRE}"
        ]
    if not census.dead:
        return []
    files = count(census.dead_files, "journal file")
    return [
        f"{count(census.dead, 'dead record')} still in {files}, {size(census.dead_bytes)}, until "
        f"two later snapshots of the server cover them; {_RETIRE}"
    ]


def _tell_objects(place: StoreLocation) -> list[str]:
    objects = place.open()
    there = list(find_objects(objects))
    needed = named(load(objects)[0])  # after the list: what is published since is not in it
    left = [listed for listed in there if owner(listed.name) not in needed]
    left += find_unfinished(place)
    if not left:
        return []
    what = f"{count(len(left), 'object')}, {size(sum(listed.size_bytes for listed in left))}"
    return [
        f"{what}, that no manifest names may hold dead records, until `headrace pipeline janitor` "
        f"removes them: {GRACE_S / 60:.0f} minutes after they were replaced"
    ]


def _tell_jobs(place: StoreLocation) -> list[str]:
    """Jobs that may have read what was erased since, and store something that is made from it."""
    objects = place.open()
    jobs = find_earlier(objects, load(objects)[0])
    if not jobs:
        return []
    kinds = ", ".join(sorted({lease.job for lease in jobs}))
    return [
        f"{count(len(jobs), 'job')} ({kinds}) at work since before may still store objects with "
        "dead records, until `headrace pipeline janitor` removes them"
    ]
