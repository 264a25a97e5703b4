"""Contents: bytes that are kept once, however many name them, each found by its SHA-256.

A log that holds contents has one record for each of them. Whoever names contents is a log whose
records are versions; it has one reference for each time it names one, and a content without any
reference is deleted. Decided once and written down: applying a `Refer` needs no version.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from headrace.core import ranges
from headrace.core.cap import Cap
from headrace.core.entry import Delete, Refer
from headrace.core.limits import CONTENTS_MAX

DIGEST_BYTES = 32
"""Of a SHA-256."""

_CAP = Cap("max_contents", CONTENTS_MAX)


class Contents:
    """What a log holds by digest, and from which version on every log that names contents can be
    read.

    In columns, so that a snapshot of a million takes some copies of memory and no walk.
    """

    __slots__ = ("_counts", "_digests", "_rows", "_seqs", "_sizes", "held_from")

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}
        """Digest → its row in the columns."""
        self._digests = bytearray()
        self._seqs = array("q")
        self._sizes = array("q")
        self._counts = array("q")
        self.held_from: dict[int, int] = {}
        """Log → the oldest of its versions whose contents are all held."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._rows

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    def seq_of(self, digest: bytes) -> int | None:
        """The seq of the record that is this content; None when there is none."""
        row = self._rows.get(digest)
        return None if row is None else self._seqs[row]

    def size_of(self, digest: bytes) -> int:
        """What the record of a content that is there counts for."""
        return self._sizes[self._rows[digest]]

    def references(self, digest: bytes) -> int:
        """How often a content is named."""
        row = self._rows.get(digest)
        return 0 if row is None else self._counts[row]

    def seqs(self) -> Sequence[int]:
        """The seq of every content there is, in no order."""
        return self._seqs

    @property
    def size_bytes(self) -> int:
        """What the records of all contents count for."""
        return sum(self._sizes)

    def refer(self, entry: Refer) -> None:
        """Make an entry true."""
        for seq, digest, size in zip(
            range(entry.first, entry.first + len(entry.sizes)),
            digests_in(entry.added),
            entry.sizes,
            strict=True,
        ):
            self._add(digest, seq, size)
        for digest in digests_in(entry.taken):
            self._counts[self._rows[digest]] += 1
        for digest in digests_in(entry.released):
            row = self._rows[digest]
            self._counts[row] -= 1
            if not self._counts[row]:
                self._remove(digest)
        if entry.held_from:
            self.held_from[entry.by] = entry.held_from
        else:
            self.held_from.pop(entry.by, None)

    def _add(self, digest: bytes, seq: int, size: int) -> None:
        self._rows[digest] = len(self._seqs)
        self._digests += digest
        self._seqs.append(seq)
        self._sizes.append(size)
        self._counts.append(0)

    def _remove(self, digest: bytes) -> None:
        """Let a row go; the last one takes its place."""
        row, last = self._rows.pop(digest), len(self._seqs) - 1
        moved = bytes(self._digests[last * DIGEST_BYTES :])
        del self._digests[last * DIGEST_BYTES :]
        seq, size, count = self._seqs.pop(), self._sizes.pop(), self._counts.pop()
        if row != last:
            self._rows[moved] = row
            self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] = moved
            self._seqs[row], self._sizes[row], self._counts[row] = seq, size, count

    def dump(self) -> tuple[list[bytes], dict[int, int]]:
        """As a snapshot holds it."""
        columns = (self._seqs, self._sizes, self._counts)
        return [bytes(self._digests), *(column.tobytes() for column in columns)], self.held_from

    @classmethod
    def load(cls, columns: Sequence[bytes], held_from: dict[int, int]) -> Contents:
        """What a snapshot held; ValueError when the columns do not fit each other."""
        contents = cls()
        digests, *numbers = columns
        contents._digests += digests
        contents._seqs, contents._sizes, contents._counts = (array("q", part) for part in numbers)
        contents._rows = {digest: row for row, digest in enumerate(digests_in(digests))}
        contents.held_from = dict(held_from)
        if {len(contents._seqs), len(contents._sizes), len(contents._counts)} != {len(contents)}:
            raise ValueError("the columns of contents differ in length")
        return contents


def digests_in(joined: bytes) -> Iterator[bytes]:
    """Digests that were joined."""
    if len(joined) % DIGEST_BYTES:
        raise ValueError("not a sequence of digests")
    for start in range(0, len(joined), DIGEST_BYTES):
        yield joined[start : start + DIGEST_BYTES]


def held_from(contents: Contents | None, by: int) -> int:
    """The oldest version of a log whose contents are all held; 0 when it names none."""
    return 0 if contents is None else contents.held_from.get(by, 0)


def missing(contents: Contents | None, wanted: Iterable[bytes]) -> set[bytes]:
    """Those of these contents that are not there."""
    return {digest for digest in wanted if contents is None or digest not in contents}


def name(
    contents: Contents | None,
    log: int,
    by: int,
    taken: Iterable[bytes],
    added: Sequence[bytes],
    first: int,
    sizes: Sequence[int],
) -> Refer:
    """A version of the log `by` names these contents, some of which come with it.

    All of them must be there or come; those that come have the seqs from `first` on.
    """
    held = 0 if contents is None else len(contents)
    if added:
        _CAP.check(held, len(added))
    return Refer(
        log,
        by,
        held_from(contents, by) or 1,
        first,
        b"".join(added),
        list(sizes),
        b"".join(taken),
    )


def release(
    contents: Contents, log: int, by: int, released: Sequence[bytes], oldest: int
) -> tuple[Refer, Delete | None]:
    """The log `by` can be read from the version `oldest` on, or no more at all if that is 0: it
    has so many references less. Contents that nobody names then go with it.
    """
    entry = Refer(log, by, oldest, released=b"".join(released))
    gone = [
        digest
        for digest, count in Counter(released).items()
        if contents.references(digest) == count
    ]
    seqs = sorted(seq for digest in gone if (seq := contents.seq_of(digest)) is not None)
    if not seqs:
        return entry, None
    size_bytes = sum(contents.size_of(digest) for digest in gone)
    return entry, Delete(log, list(ranges.from_seqs(seqs)), len(seqs), size_bytes)
