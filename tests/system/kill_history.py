"""What the clients of the kill test did and saw: plain facts, ordered by one logical clock.

A *run* is one life of the server process, counted from 0. An *instance* is one life of a topic's
name, counted from 1: deleting a topic and writing to its name again makes the next instance.
Moments (`started`, `ended`) are ticks of the history's own clock, never wall time.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum

import msgspec


class Payload(msgspec.Struct, frozen=True):
    """One record as it was sent; `data` and `meta` are the very bytes."""

    data: bytes
    tag: str | None = None
    meta: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """What the record counts for in a topic's `bytes` (ruling 44)."""
        return len(self.data) + len(self.meta or b"") + 16


class Terms(msgspec.Struct, frozen=True):
    """What a topic instance was created with, as far as the oracle cares."""

    durability: str
    cap_records: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The server acknowledged an append."""

    started: int
    ended: int
    run: int
    first_seq: int
    deduped: bool = False


@dataclass(slots=True, eq=False)
class Append:
    """An append that was offered; without an answer nobody knows whether it happened."""

    topic: str
    instance: int
    payloads: tuple[Payload, ...]
    started: int
    run: int
    key: str | None = None
    attempts: int = 1
    answers: list[Answer] = field(default_factory=list)

    def __str__(self) -> str:
        return f"append of {len(self.payloads)} from {self.payloads[0].data[:40]!r}, run {self.run}"


class Delete(msgspec.Struct, frozen=True, eq=False):
    """A delete that was offered; one that is not acknowledged took all or nothing."""

    topic: str
    instance: int
    started: int
    ended: int
    run: int
    acked: bool
    before_seq: int | None = None
    tag: str | None = None
    prefix: str | None = None

    def reaches(self, seq: int) -> bool:
        return self.before_seq is None or seq < self.before_seq

    def names(self, tag: str | None) -> bool:
        """Whether a record with this tag is meant; a delete without a match means every record."""
        if self.tag is not None:
            return tag == self.tag
        if self.prefix is not None:
            return tag is not None and tag.startswith(self.prefix)
        return True


class Existence(Enum):
    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Being(msgspec.Struct, frozen=True):
    """Whether a topic instance exists after the last thing its owner did to it."""

    topic: str
    instance: int
    existence: Existence


class Seen(msgspec.Struct, frozen=True):
    """One record as a read returned it."""

    seq: int
    ts: int
    payload: Payload


class Gap(msgspec.Struct, frozen=True):
    """A tombstone: both ends are lost."""

    first: int
    last: int
    reason: str


class Page(msgspec.Struct, frozen=True):
    """One answer of diff: everything in (`after`, `next`] was examined."""

    started: int
    ended: int
    after: int
    next: int
    head: int
    earliest: int
    caught_up: bool
    records: tuple[Seen, ...] = ()
    gap: Gap | None = None


class State(msgspec.Struct, frozen=True):
    """What the topic's state said while nobody wrote."""

    head: int
    earliest: int
    next: int
    count: int
    size_bytes: int
    epoch: int
    durability: str


class Walk(msgspec.Struct, frozen=True):
    """Pages read one after the other, each from where the last one ended.

    With a `state` nobody wrote meanwhile and the walk goes from 0 to the head.
    """

    topic: str
    instance: int
    run: int
    pages: tuple[Page, ...]
    state: State | None = None

    @property
    def records(self) -> list[Seen]:
        return [seen for page in self.pages for seen in page.records]

    @property
    def gaps(self) -> list[Gap]:
        return [page.gap for page in self.pages if page.gap is not None]


@dataclass(slots=True)
class Round:
    """Everything that was done and seen in one stretch of time; lists only ever grow."""

    appends: list[Append] = field(default_factory=list)
    answers: list[tuple[Append, Answer]] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)


class Clock:
    """Ticks upwards; one tick is atomic under the interpreter's lock."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def __call__(self) -> int:
        return next(self._ticks)
