"""What must be true of contents that are kept by digest: in the state of one log, of all logs
together, and of the records themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256

from headrace.core.contents import DIGEST_BYTES, Contents, digests_in
from headrace.core.entry import Refer
from headrace.core.log import Log, live_ranges


def content_problem(key: str | None, data: bytes) -> str | None:
    """Whether a record is the content that its key says."""
    if key == sha256(data).hexdigest():
        return None
    return "its key is not the SHA-256 of its data"


def contents_problems(log: Log) -> Iterator[str]:
    """Everything about the contents of this log that cannot be."""
    if (contents := log.contents) is None:
        return
    if any(contents.references(digest) < 1 for digest in contents):
        yield "it holds contents that nobody names"
    seqs = sorted(contents.seqs())
    live = [seq for low, high in live_ranges(log, log.head) for seq in range(low, high + 1)]
    if seqs != live:
        yield f"{len(seqs)} contents are known by digest where {len(live)} records are live"
    elif contents.size_bytes != log.size_bytes:
        what = f"its contents count for {contents.size_bytes} bytes"
        yield f"{what}, the log for {log.size_bytes}"


def naming_problems(logs: dict[int, Log]) -> Iterator[tuple[Log, str]]:
    """What contradicts itself between logs of contents and those that name them."""
    for log in logs.values():
        if log.contents is None:
            continue
        for by, held_from in log.contents.held_from.items():
            named = logs.get(by)
            if named is None:
                yield log, f"log {by} names contents, and is gone"
            elif not 1 <= held_from <= named.head:
                what = f'"{named.name}" is held from version {held_from} on'
                yield log, f"{what}, and has come to {named.head}"


def refer_problems(contents: Contents | None, head: int, entry: Refer) -> Iterator[str]:
    """What in an entry cannot be, whatever there was before; and, where that is known, behind it.

    Nothing more is said of a bad shape.
    """
    parts = (entry.added, entry.taken, entry.released)
    if any(len(part) % DIGEST_BYTES for part in parts) or len(entry.added) != (
        DIGEST_BYTES * len(entry.sizes)
    ):
        yield "its digests are not whole, or not as many as their sizes"
        return
    if min(entry.sizes, default=1) < 1 or entry.held_from < 0:
        yield "a reference with numbers below zero"
    if entry.sizes and not 1 <= entry.first <= head - len(entry.sizes) + 1:
        yield f"contents from seq {entry.first} on are named before they are there"
    if contents is None:
        return
    added = set(digests_in(entry.added))
    if any(digest in contents for digest in added) or len(added) != len(entry.sizes):
        yield "a content comes that was there"
    counts = Counter(digests_in(entry.taken))
    if any(digest not in contents and digest not in added for digest in counts):
        yield "a content is named that is not there"
    counts.subtract(digests_in(entry.released))
    if any(contents.references(digest) + count < 0 for digest, count in counts.items()):
        yield "a content is released more often than it was named"
