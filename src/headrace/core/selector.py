"""Which records of a log a reader wants: a question to the columns of a block."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from headrace.core.config import LogConfig
from headrace.core.match import TagEq, TagMatch
from headrace.core.record import Block

Picks = range | list[int]
"""Records of a block by index, ascending."""


class Anchor(msgspec.Struct, frozen=True):
    """A text that every record has in this column that a selector picks; or a prefix of it."""

    column: Literal["keys", "nodes", "tags"]
    text: str
    is_prefix: bool = False


class Selector(Protocol):
    """Picks records of blocks. Hashable: equal selectors pick the same. Made by a surface."""

    @property
    def anchor(self) -> Anchor | None:
        """By what an index of many selectors finds this one, if there is such a thing."""
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


class ColumnSelector(msgspec.Struct, frozen=True):
    """Picks records by node, tag and key."""

    exclude: frozenset[str] = frozenset()
    """Nodes whose records the reader wrote itself."""
    match: TagMatch | None = None
    key: str | None = None

    @property
    def anchor(self) -> Anchor | None:
        if self.key is not None:
            return Anchor("keys", self.key)
        if self.match is None:
            return None
        if isinstance(self.match, TagEq):
            return Anchor("tags", self.match.tag)
        return Anchor("tags", self.match.prefix, is_prefix=True)

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


EVERYTHING = ColumnSelector()
