"""Which records of a log a reader wants: a question to the columns of a block."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, Protocol

import msgspec

from headrace.core.config import LogConfig
from headrace.core.match import TagEq, TagMatch
from headrace.core.record import Block

Picks = range | list[int]
"""Records of a block by index, ascending."""
Rectangle = tuple[float, float, float, float]
"""The lowest of both coordinates, then the highest of both; its edges belong to it."""


_UNREAD = object()


class Features:
    """What one record of a block has, read once for all who ask."""

    __slots__ = ("_known", "at", "block")

    def __init__(self, block: Block, at: int) -> None:
        self.block = block
        self.at = at
        self._known: dict[Feature, Any] = {}

    def get(self, feature: Feature) -> Any:
        found = self._known.get(feature, _UNREAD)
        if found is _UNREAD:
            found = self._known[feature] = feature.read(self)
        return found


class Feature(Protocol):
    """Something that a record has and conditions may be about. Hashable."""

    def read(self, features: Features) -> Any:
        """What a record has; None if it has nothing of the kind.

        A hashable value for `IsOneOf`, a number for `IsWithin`, a rectangle for `Overlaps`.
        """
        ...


class ColumnFeature(msgspec.Struct, frozen=True, cache_hash=True):
    """The text of a column; of it as many characters as said."""

    column: Literal["keys", "nodes", "tags"]
    length: int | None = None

    def read(self, features: Features) -> str | None:
        values = getattr(features.block, self.column)
        if values is None or (text := values[features.at]) is None:
            return None
        found: str = text if self.length is None else text[: self.length]
        return found


class IsOneOf(msgspec.Struct, frozen=True):
    """The feature is one of these values."""

    values: tuple[Hashable, ...]
    """Each once."""


class IsWithin(msgspec.Struct, frozen=True):
    """The feature is a number from one to another, both included."""

    low: float
    high: float


class Overlaps(msgspec.Struct, frozen=True):
    """The feature is a rectangle that has at least a point in common with this one."""

    rectangle: Rectangle


Test = IsOneOf | IsWithin | Overlaps


class Condition(msgspec.Struct, frozen=True):
    """Something that every record fulfils that a selector picks."""

    feature: Feature
    test: Test


class Selector(Protocol):
    """Picks records of blocks. Hashable: equal selectors pick the same. Made by a surface."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """By what an index of many selectors finds this one; the most selective first.

        Records that fulfil all of them may still not be wanted. Without any it cannot be found.
        """
        ...

    @property
    def cost(self) -> int:
        """How many records of which only columns are compared take as long as one of these."""
        ...

    def bind(self, config: LogConfig) -> Selector:
        """The selector for a log that is configured like this."""
        ...

    def takes_all(self, block: Block) -> bool:
        """Whether it picks every record of the block, as one can see without a look at each."""
        ...

    def pick(self, block: Block, picks: Picks) -> Picks:
        """Those of these records that are wanted."""
        ...

    def takes(self, features: Features) -> bool:
        """Whether this record is wanted: `pick` for one that others ask about, too."""
        ...


class ColumnSelector(msgspec.Struct, frozen=True):
    """Picks records by node, tag and key."""

    exclude: frozenset[str] = frozenset()
    """Nodes whose records the reader wrote itself."""
    match: TagMatch | None = None
    key: str | None = None

    @property
    def cost(self) -> int:
        return 1

    @property
    def conditions(self) -> tuple[Condition, ...]:
        if self.key is not None:
            return (Condition(ColumnFeature("keys"), IsOneOf((self.key,))),)
        match self.match:
            case None:
                return ()
            case TagEq(tag=tag):
                return (Condition(ColumnFeature("tags"), IsOneOf((tag,))),)
            case prefix:
                text = prefix.prefix
                return (Condition(ColumnFeature("tags", len(text)), IsOneOf((text,))),)

    def bind(self, config: LogConfig) -> ColumnSelector:
        if config.dedupe_node or not self.exclude:
            return self
        return ColumnSelector(match=self.match, key=self.key)

    def takes_all(self, block: Block) -> bool:
        plain = self.match is None and self.key is None
        return plain and (not self.exclude or block.nodes is None)

    def pick(self, block: Block, picks: Picks) -> Picks:
        key, match, exclude = self.key, self.match, self.exclude
        if key is not None:
            keys = block.keys
            picks = [] if keys is None else [at for at in picks if keys[at] == key]
        if match is not None:
            tags = block.tags
            picks = [] if tags is None else [at for at in picks if match.matches(tags[at])]
        if exclude and block.nodes is not None:
            nodes = block.nodes
            picks = [at for at in picks if nodes[at] not in exclude]
        return picks

    def takes(self, features: Features) -> bool:
        return bool(self.pick(features.block, [features.at]))


EVERYTHING = ColumnSelector()
