"""Many selectors, found by their anchors: a block is looked at once for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.core.config import LogConfig
from headrace.core.record import Block
from headrace.core.selector import Anchor, Picks, Selector

_Texts = dict[str, dict[Selector, None]]
_WHOLE = -1


class SelectorIndex:
    """Selectors with an anchor. Costs as much for a block as there are records and finds."""

    def __init__(self) -> None:
        self._by_text: dict[tuple[str, int], _Texts] = {}
        """Of each column and each length of a prefix."""

    def add(self, selector: Selector) -> None:
        """Have it found from now on; once more changes nothing."""
        anchor = _anchor(selector)
        texts = self._by_text.setdefault(_place(anchor), {})
        texts.setdefault(anchor.text, {})[selector] = None

    def remove(self, selector: Selector) -> None:
        anchor = _anchor(selector)
        place = _place(anchor)
        texts = self._by_text[place]
        del texts[anchor.text][selector]
        if not texts[anchor.text]:
            del texts[anchor.text]
            if not texts:
                del self._by_text[place]

    def find(
        self, block: Block, picks: range, config: LogConfig
    ) -> Iterator[tuple[Selector, Picks]]:
        """The selectors that pick some of these records, each with what it picks."""
        for (column, length), texts in self._by_text.items():
            values = getattr(block, column)
            if values is None:
                continue
            found: dict[Selector, list[int]] = {}
            for at in picks:
                value = values[at]
                if value is not None:
                    text = value if length == _WHOLE else value[:length]
                    for selector in texts.get(text, ()):
                        found.setdefault(selector, []).append(at)
            for selector, candidates in found.items():
                if picked := selector.bind(config).pick(block, candidates):
                    yield selector, picked


class Picked(msgspec.Struct, frozen=True):
    """A selector that was asked before: what it picks of which blocks, by their first seqs."""

    known: dict[int, Picks]

    @property
    def anchor(self) -> Anchor | None:
        return None

    def bind(self, config: LogConfig) -> Picked:
        return self

    def takes_all(self, block: Block) -> bool:
        return False

    def pick(self, block: Block, picks: Picks) -> Picks:
        return [at for at in self.known.get(block.first, ()) if at in picks]


def _anchor(selector: Selector) -> Anchor:
    assert selector.anchor is not None
    return selector.anchor


def _place(anchor: Anchor) -> tuple[str, int]:
    return anchor.column, len(anchor.text) if anchor.is_prefix else _WHOLE
