"""Which events a reader wants: AND between filters, OR within one.

Asked of the columns of a block alone: the tag is the type, the key the resource with its ancestors.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from headrace.core.config import LogConfig
from headrace.core.limits import FEED_FILTER_VALUES_MAX
from headrace.core.record import Block
from headrace.core.selector import ColumnFeature, Condition, Features, IsOneOf, Picks
from headrace.surfaces.feeds.errors import invalid_field
from headrace.surfaces.feeds.names import EventResource, parse_key
from headrace.surfaces.feeds.wire import ResourceType
from headrace.web.request import Request

RESOURCE_TYPE, EVENT_TYPE = "resourceType", "eventType"
TEMPLATE_ID, ENVIRONMENT_ID = "templateId", "environmentId"

_COST = 4
_OWN_IDS = {
    TEMPLATE_ID: frozenset((ResourceType.TEMPLATE,)),
    ENVIRONMENT_ID: frozenset((ResourceType.ENVIRONMENT, ResourceType.ACTIVATION)),
}
"""Of which resources the id itself is one of this name: an activation is called by its
environment.
"""


class EventFilter(msgspec.Struct, frozen=True, cache_hash=True):
    """What is wanted; nothing of one kind: whatever it is."""

    resource_types: frozenset[str] = frozenset()
    event_types: frozenset[str] = frozenset()
    template_ids: frozenset[str] = frozenset()
    environment_ids: frozenset[str] = frozenset()


def parse_filter(req: Request) -> EventFilter:
    """The filter of a query."""
    return EventFilter(
        parse_resource_types(_values(req, RESOURCE_TYPE)),
        _values(req, EVENT_TYPE),
        _value(req, TEMPLATE_ID),
        _value(req, ENVIRONMENT_ID),
    )


def parse_resource_types(texts: Iterable[str]) -> frozenset[str]:
    """Types of resources; refuses others than there are."""
    types = frozenset(texts)
    for each in types:
        if each not in set(ResourceType):
            raise invalid_field(RESOURCE_TYPE, f"is one of {', '.join(ResourceType)}", each)
    return types


def single(req: Request, name: str) -> str | None:
    """A parameter that can be given once."""
    values = req.get_params(name)
    if len(values) > 1:
        raise invalid_field(name, "is given more than once")
    return values[0] if values else None


def _values(req: Request, name: str) -> frozenset[str]:
    values = req.get_params(name)
    if len(values) > FEED_FILTER_VALUES_MAX:
        raise invalid_field(name, f"is given more than {FEED_FILTER_VALUES_MAX} times")
    if "" in values:
        raise invalid_field(name, "is empty")
    return frozenset(values)


def _value(req: Request, name: str) -> frozenset[str]:
    single(req, name)
    return _values(req, name)


class _StoredResource(msgspec.Struct, frozen=True, cache_hash=True):
    """The resource of an event."""

    def read(self, features: Features) -> EventResource | None:
        keys = features.block.keys
        key = None if keys is None else keys[features.at]
        return None if key is None else parse_key(key)


_RESOURCE = _StoredResource()


class StoredResourceType(msgspec.Struct, frozen=True, cache_hash=True):
    """A feature: the type of the resource of an event."""

    def read(self, features: Features) -> str | None:
        resource: EventResource | None = features.get(_RESOURCE)
        return None if resource is None else resource.type


class StoredAncestor(msgspec.Struct, frozen=True, cache_hash=True):
    """A feature: the id of this name, of an ancestor of the resource or of itself."""

    name: str

    def read(self, features: Features) -> str | None:
        resource: EventResource | None = features.get(_RESOURCE)
        if resource is None:
            return None
        if (parent := resource.parents.get(self.name)) is not None:
            return parent
        return resource.id if resource.type in _OWN_IDS[self.name] else None


class EventSelector(msgspec.Struct, frozen=True, cache_hash=True, dict=True):
    """Picks the events that a filter wants, behind a number."""

    wanted: EventFilter
    after: int = 0
    """For readers who are ahead of the log: what comes up to here is not for them."""

    @property
    def cost(self) -> int:
        return _COST

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        wanted = self.wanted
        found = (
            (ColumnFeature("tags"), wanted.event_types),
            (StoredAncestor(TEMPLATE_ID), wanted.template_ids),
            (StoredAncestor(ENVIRONMENT_ID), wanted.environment_ids),
            (StoredResourceType(), wanted.resource_types),
        )
        return tuple(
            Condition(feature, IsOneOf(tuple(sorted(values))))
            for feature, values in found
            if values
        )

    def bind(self, config: LogConfig) -> EventSelector:
        return self

    def takes_all(self, block: Block) -> bool:
        return not self.conditions and block.first > self.after

    def pick(self, block: Block, picks: Picks) -> Picks:
        if self.takes_all(block):
            return picks
        return [at for at in picks if self.takes(Features(block, at))]

    def takes(self, features: Features) -> bool:
        if features.block.seq_at(features.at) <= self.after:
            return False
        return all(
            features.get(condition.feature) in condition.test.values
            for condition in self.conditions
            if isinstance(condition.test, IsOneOf)
        )
