"""Which notifications of a log a watch or a replay wants, asked of the columns of blocks.

The subject is a column. What is stored of a notification is read only for those whose subject is
wanted, and only if the filter is spatial: its box first, and its polygon if the box will do.
"""

from __future__ import annotations

import re
from functools import cached_property

import msgspec

from headrace.core.config import LogConfig
from headrace.core.record import Block
from headrace.core.selector import (
    ColumnFeature,
    Condition,
    Features,
    IsOneOf,
    IsWithin,
    Overlaps,
    Picks,
)
from headrace.surfaces.notifications.constraints import Constraint, Eq, OneOf, read_float
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.records import StoredParts, split
from headrace.surfaces.notifications.shapes import (
    Box,
    Polygon,
    Sent,
    WantedPolygon,
    WantedShape,
    read_polygon,
)
from headrace.surfaces.notifications.subjects import format_subject, parse_subject

_SUBJECT_COST, _SHAPE_COST, _POINT_COST = 4, 128, 16
"""Of a look at a subject, at a shape, and for each point of a polygon that is wanted."""


class _StoredIdentifier(msgspec.Struct):
    polygon: Sent


_decode_box = msgspec.json.Decoder(Box).decode
_decode_identifier = msgspec.json.Decoder(_StoredIdentifier).decode


class _Stored(msgspec.Struct, frozen=True, cache_hash=True):
    """The parts of a stored notification."""

    def read(self, features: Features) -> StoredParts:
        return split(features.block.data_at(features.at))


class _StoredPolygon(msgspec.Struct, frozen=True, cache_hash=True):
    """The polygon of a notification that has one."""

    def read(self, features: Features) -> Polygon:
        stored: StoredParts = features.get(_STORED)
        return read_polygon(_decode_identifier(stored.identifier).polygon)


class _Tokens(msgspec.Struct, frozen=True, cache_hash=True):
    """The tokens of a subject, as they are stored."""

    def read(self, features: Features) -> list[str] | None:
        tags = features.block.tags
        tag = None if tags is None else tags[features.at]
        return None if tag is None else tag.split(".")


_STORED, _POLYGON, _TOKENS = _Stored(), _StoredPolygon(), _Tokens()


class SubjectToken(msgspec.Struct, frozen=True, cache_hash=True):
    """A feature: a token of the subject, as it is stored."""

    position: int

    def read(self, features: Features) -> str | None:
        tokens: list[str] | None = features.get(_TOKENS)
        if tokens is None or len(tokens) <= self.position:
            return None
        return tokens[self.position]


class SubjectNumber(msgspec.Struct, frozen=True, cache_hash=True):
    """A feature: the number that a token of the subject is."""

    position: int

    def read(self, features: Features) -> float | None:
        tokens: list[str] | None = features.get(_TOKENS)
        if tokens is None or len(tokens) <= self.position:
            return None
        return read_float(_decoded(tokens[self.position]))


class StoredBox(msgspec.Struct, frozen=True, cache_hash=True):
    """A feature: the box around the polygon of a notification that has one."""

    def read(self, features: Features) -> Box | None:
        stored: StoredParts = features.get(_STORED)
        return None if stored.box is None else _decode_box(stored.box)


_BOX = StoredBox()


class NotificationSelector(msgspec.Struct, frozen=True, cache_hash=True, dict=True):
    """Picks the notifications that a filter wants."""

    wanted: NotificationFilter

    @property
    def cost(self) -> int:
        match self.wanted.shape:
            case None:
                return _SUBJECT_COST
            case WantedPolygon(polygon=polygon):
                return _SHAPE_COST + _POINT_COST * len(polygon.ring)
            case _:
                return _SHAPE_COST

    @cached_property
    def subject(self) -> str | None:
        """The one subject of all that it picks, as it is stored, if it wants a single one."""
        tokens = [token for token in self.wanted.tokens if token is not None]
        return format_subject(tokens) if len(tokens) == len(self.wanted.tokens) else None

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        wanted = self.wanted
        found: list[Condition] = []
        if self.subject is not None:
            found = [Condition(ColumnFeature("tags"), IsOneOf((self.subject,)))]
        else:
            for at, token in enumerate(wanted.tokens):
                if at and token is not None:  # the base is that of all subjects of the log
                    found.append(Condition(SubjectToken(at), IsOneOf((format_subject([token]),))))
            found += sorted((_condition(*each) for each in wanted.constraints), key=_width)
        if wanted.shape is not None:
            found.append(Condition(_BOX, Overlaps(wanted.shape.box)))
        return tuple(found)

    @cached_property
    def _subject(self) -> re.Pattern[str]:
        """Matches subjects with the exact tokens; the tokens under a constraint are its groups."""
        constrained = {at for at, _ in self.wanted.constraints}
        parts = [
            re.escape(format_subject([token]))
            if token is not None
            else "([^.]*)"
            if at in constrained
            else "[^.]*"
            for at, token in enumerate(self.wanted.tokens)
        ]
        return re.compile(r"\.".join(parts))

    def bind(self, config: LogConfig) -> NotificationSelector:
        return self

    def takes_all(self, block: Block) -> bool:
        return False

    def pick(self, block: Block, picks: Picks) -> Picks:
        tags, shape = block.tags, self.wanted.shape
        if tags is None:
            return []
        picks = [at for at in picks if self._wants_subject(tags[at] or "")]
        if shape is None:
            return picks
        return [at for at in picks if _is_met(shape, Features(block, at))]

    def takes(self, features: Features) -> bool:
        tags, wanted = features.block.tags, self.wanted
        if tags is None or (found := self._subject.fullmatch(tags[features.at] or "")) is None:
            return False
        if wanted.constraints and not _are_met(wanted.constraints, found.groups()):
            return False
        return wanted.shape is None or _is_met(wanted.shape, features)

    def _wants_subject(self, subject: str) -> bool:
        found = self._subject.fullmatch(subject)
        if found is None:
            return False
        constraints = self.wanted.constraints
        return not constraints or _are_met(constraints, found.groups())


def _are_met(constraints: tuple[tuple[int, Constraint], ...], tokens: tuple[str, ...]) -> bool:
    """Whether tokens meet the constraints on them, which come in the same order."""
    for (_, constraint), token in zip(constraints, tokens, strict=True):
        if not constraint.matches(_decoded(token)):
            return False
    return True


def _is_met(shape: WantedShape, features: Features) -> bool:
    """Whether a notification has a polygon that is wanted."""
    box: Box | None = features.get(_BOX)
    return box is not None and shape.may_match(box) and shape.matches(features.get(_POLYGON))


def _decoded(token: str) -> str:
    return token if "%" not in token else parse_subject(token)[0]


def _condition(at: int, constraint: Constraint) -> Condition:
    """What an index can hold of a constraint: whether ends are open is asked later."""
    match constraint:
        case Eq(token=token):
            return Condition(SubjectToken(at), IsOneOf((format_subject([token]),)))
        case OneOf(tokens=tokens):
            stored = sorted(format_subject([token]) for token in tokens)
            return Condition(SubjectToken(at), IsOneOf(tuple(stored)))
        case _:
            bounds = constraint.bounds
            return Condition(SubjectNumber(at), IsWithin(bounds.low, bounds.high))


def _width(condition: Condition) -> int:
    """Short lists first, intervals last."""
    test = condition.test
    return len(test.values) if isinstance(test, IsOneOf) else 1 << 30
