"""Which route a path leads to.

A template is made of segments: a word, `{name}` for any one segment, or `{name:path}` for one or
more, of which there is at most one. What follows such a name is recognised from the end of the
path, so a stream can be called `a/b/c` and still have an `_schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")

_PLACEHOLDER = re.compile(r"\{(\w+)(:path)?\}")


class Match(NamedTuple, Generic[R]):
    """What was found, and the segments in the places of names."""

    found: R
    names: tuple[str, ...]
    values: tuple[str, ...]


class _Node(Generic[R]):
    __slots__ = ("any", "end", "names", "tails", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node[R]] = {}
        self.any: _Node[R] | None = None
        self.end: R | None = None
        self.names: tuple[str, ...] = ()
        self.tails: list[_Tail[R]] = []


class _Tail(Generic[R]):
    """What may follow a name of many segments; a blank stands for any one segment."""

    __slots__ = ("end", "names", "segments")

    def __init__(self, segments: tuple[str, ...], end: R, names: tuple[str, ...]) -> None:
        self.segments = segments
        self.end = end
        self.names = names

    def match(self, rest: list[str]) -> list[str] | None:
        size = len(self.segments)
        if len(rest) <= size:
            return None
        cut = len(rest) - size
        values = ["/".join(rest[:cut])]
        for word, segment in zip(self.segments, rest[cut:], strict=True):
            if not word:
                values.append(segment)
            elif word != segment:
                return None
        return values


class RouteTable(Generic[R]):
    """What there is, by its templates."""

    def __init__(self, templates: Iterable[tuple[str, R]]) -> None:
        self._root: _Node[R] = _Node()
        for template, found in templates:
            self._add(template, found)

    def _add(self, template: str, found: R) -> None:
        node, segments = self._root, template.split("/")
        names = tuple(each[1] for each in _PLACEHOLDER.finditer(template))
        for at, segment in enumerate(segments):
            place = _PLACEHOLDER.fullmatch(segment)
            if place is None:
                node = node.words.setdefault(segment, _Node())
            elif place[2]:
                tail = tuple("" if _PLACEHOLDER.fullmatch(s) else s for s in segments[at + 1 :])
                node.tails.append(_Tail(tail, found, names))
                node.tails.sort(key=lambda tail: -len(tail.segments))
                return
            else:
                node.any = node.any or _Node()
                node = node.any
        assert node.end is None, f"{template} leads to two places"
        node.end, node.names = found, names

    def find(self, segments: list[str]) -> Match[R] | None:
        """What a path leads to, if anything; a word goes before a name."""
        node: _Node[R] = self._root
        values: list[str] = []
        for at, segment in enumerate(segments):
            below = node.words.get(segment)
            if below is None:
                below = node.any
                if below is None or not segment:
                    return self._find_tail(node, segments[at:], values)
                values.append(segment)
            node = below
        if node.end is None:
            return None
        return Match(node.end, node.names, tuple(values))

    def _find_tail(self, node: _Node[R], rest: list[str], before: list[str]) -> Match[R] | None:
        for tail in node.tails:
            values = tail.match(rest)
            if values is not None:
                return Match(tail.end, tail.names, (*before, *values))
        return None


def placeholders(template: str) -> list[str]:
    """The names in a template."""
    return [each[1] for each in _PLACEHOLDER.finditer(template)]


def plain(template: str) -> str:
    """A template as OpenAPI writes it."""
    return _PLACEHOLDER.sub(r"{\1}", template)
