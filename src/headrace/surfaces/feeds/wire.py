"""The JSON of feeds. Members of a request that are not known here are passed over."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.core.limits import (
    EVENT_TYPE_LENGTH_MAX,
    EVENTS_PER_POST_MAX,
    FEED_KEY_NAME_LENGTH_MAX,
    FEED_KEY_S_MAX,
    I64_MAX,
    PARENT_NAME_LENGTH_MAX,
    PARENTS_MAX,
    RESOURCE_ID_LENGTH_MAX,
)
from headrace.surfaces.feeds.permissions import FeedRole

TYPE_PATTERN = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$"
ID_PATTERN = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
PRINTABLE_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"

EventType = Annotated[
    str,
    Meta(
        pattern=TYPE_PATTERN,
        max_length=EVENT_TYPE_LENGTH_MAX,
        description="Words joined by dots, as version.published",
        examples=["version.published"],
    ),
]
EventId = Annotated[
    str, Meta(pattern=ID_PATTERN, description="A UUID", extra_json_schema={"format": "uuid"})
]
ResourceId = Annotated[str, Meta(min_length=1, max_length=RESOURCE_ID_LENGTH_MAX)]
ParentName = Annotated[str, Meta(min_length=1, max_length=PARENT_NAME_LENGTH_MAX)]
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
SequenceNumber = Annotated[int, Meta(ge=0, le=I64_MAX, extra_json_schema={"format": "int64"})]
ActorText = Annotated[str, Meta(max_length=RESOURCE_ID_LENGTH_MAX)]


class ResourceType(StrEnum):
    """What events are about."""

    TEMPLATE = "template"
    VARIANT = "variant"
    VERSION = "version"
    ACTIVATION = "activation"
    THEME = "theme"
    ENVIRONMENT = "environment"
    GENERATION_JOB = "generation-job"


class ResourceRef(msgspec.Struct, rename="camel", omit_defaults=True):
    """The resource that an event is about, and its ancestors."""

    resource_type: ResourceType
    resource_id: ResourceId
    parent_refs: (
        Annotated[dict[ParentName, ResourceId], Meta(max_length=PARENTS_MAX)] | UnsetType
    ) = UNSET


class Actor(msgspec.Struct, rename="camel", omit_defaults=True):
    """Who caused an event."""

    type: Literal["user", "api-key", "system"] | UnsetType = UNSET
    identifier: ActorText | UnsetType = UNSET
    consumer_id: ActorText | UnsetType = UNSET


class EventInput(msgspec.Struct, rename="camel"):
    """An event to be stored. Its number and its time are the server's to give."""

    type: EventType
    resource_ref: ResourceRef
    id: EventId | UnsetType = UNSET
    """Stored once, however often it is sent; left out: the server gives one."""
    actor: Actor | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET


class EventBatch(msgspec.Struct):
    """Events to be stored, all or none of them."""

    events: Annotated[list[EventInput], Meta(min_length=1, max_length=EVENTS_PER_POST_MAX)]


class StoredEvent(msgspec.Struct, rename="camel"):
    """What became of an event that was sent."""

    id: EventId
    sequence_number: SequenceNumber
    duplicate: bool
    """Whether an event of this id was there before: the number is that one's."""


class EventReceipt(msgspec.Struct):
    """The events are stored; in the order they were sent."""

    events: list[StoredEvent]


class EventEnvelope(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """An event."""

    id: EventId
    type: EventType
    tenant_id: str
    timestamp: Instant
    sequence_number: SequenceNumber
    resource_ref: ResourceRef
    actor: Actor | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET


class FeedCursor(msgspec.Struct, rename="camel"):
    """Where the next page begins, and whether there is one by now."""

    sequence_number: SequenceNumber
    has_more: bool


class EventFeedResponse(msgspec.Struct):
    """A page of events."""

    events: list[EventEnvelope]
    cursor: FeedCursor


ApiKeyName = Annotated[
    str, Meta(min_length=1, max_length=FEED_KEY_NAME_LENGTH_MAX, pattern=PRINTABLE_PATTERN)
]


class ApiKeyRequest(msgspec.Struct, rename="camel"):
    """An API key to be made."""

    name: ApiKeyName
    roles: Annotated[
        list[FeedRole],
        Meta(min_length=1, max_length=len(FeedRole), extra_json_schema={"uniqueItems": True}),
    ]
    expires_in_seconds: Annotated[float, Meta(ge=1, le=FEED_KEY_S_MAX)] | UnsetType = UNSET
    """Left out: it ends when it is revoked."""


class ApiKey(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """An API key without its secret."""

    id: str
    name: str
    roles: list[FeedRole]
    created_at: Instant
    created_by: str
    expires_at: Instant | UnsetType = UNSET


class NewApiKey(ApiKey, kw_only=True):
    """A new API key. The key itself is told here and never again."""

    key: str


class ApiKeyList(msgspec.Struct, rename="camel"):
    """The API keys of a tenant, oldest first; expired ones are among them."""

    api_keys: list[ApiKey]
