"""The JSON of feeds. Members of a request that are not known here are passed over."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.core.limits import (
    EVENT_TYPE_LENGTH_MAX,
    EVENTS_PAGE_DEFAULT,
    EVENTS_PAGE_MAX,
    EVENTS_PER_POST_MAX,
    FEED_KEY_NAME_LENGTH_MAX,
    FEED_KEY_S_MAX,
    I64_MAX,
    PARENT_NAME_LENGTH_MAX,
    PARENTS_MAX,
    RESOURCE_ID_LENGTH_MAX,
    SUBSCRIPTION_FILTER_VALUES_MAX,
    WEBHOOK_BATCH_RECORDS_DEFAULT,
    WEBHOOK_BATCH_RECORDS_MAX,
    WEBHOOK_DELAY_MS_MAX,
    WEBHOOK_SECRET_CHARS_MAX,
    WEBHOOK_SECRET_CHARS_MIN,
    WEBHOOK_URL_LENGTH_MAX,
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


class FeedConsumer(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A consumer that is connected over gRPC and has subscribed to the tenant."""

    id: str
    principal: str
    """The id of its credential."""
    node_id: str | UnsetType = UNSET
    """As it calls itself, if it does."""
    connected_at: Instant
    subscribed_at: Instant
    resource_types: list[ResourceType]
    """What it wants to hear of; nothing: all."""
    last_heartbeat_at: Instant
    """When it last said something."""


class FeedConsumerList(msgspec.Struct):
    """The consumers of a tenant, in the order they subscribed."""

    consumers: list[FeedConsumer]


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


# --- trackers -------------------------------------------------------------------------------------


class TrackerRequest(msgspec.Struct, rename="camel"):
    """Where a new tracker begins."""

    start_from: Literal["earliest", "latest"] = "earliest"


class Tracker(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A cursor that the server keeps; `sequenceNumber` is what is acknowledged."""

    id: str
    cursor: FeedCursor
    active_node: str | UnsetType = UNSET
    lease_expires_at: Instant | UnsetType = UNSET
    created_at: Instant


class TrackerList(msgspec.Struct, rename="camel"):
    """Trackers of a tenant, by id; `after` of the next page is the last id of this one."""

    trackers: list[Tracker]
    has_more: bool


class PollRequest(msgspec.Struct, rename="camel"):
    """What is done, and how much to take next."""

    acknowledge_up_to: SequenceNumber | None = None
    limit: Annotated[int, Meta(ge=1, le=EVENTS_PAGE_MAX)] = EVENTS_PAGE_DEFAULT


# --- subscriptions --------------------------------------------------------------------------------

FilterValues = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=RESOURCE_ID_LENGTH_MAX)]],
    Meta(max_length=SUBSCRIPTION_FILTER_VALUES_MAX),
]


class SubscriptionFilters(msgspec.Struct, rename="camel", omit_defaults=True):
    """Which events are sent: AND between, OR within; an empty list: all."""

    resource_types: Annotated[
        list[ResourceType], Meta(max_length=SUBSCRIPTION_FILTER_VALUES_MAX)
    ] = []
    event_types: FilterValues = []
    template_ids: FilterValues = []
    environment_ids: FilterValues = []


BatchSize = Annotated[int, Meta(ge=1, le=WEBHOOK_BATCH_RECORDS_MAX)]
DelaySeconds = Annotated[int, Meta(ge=0, le=WEBHOOK_DELAY_MS_MAX // 1000)]


class BatchSettings(msgspec.Struct, rename="camel"):
    """How many events go together, and how long the first of them waits for others."""

    max_batch_size: BatchSize = WEBHOOK_BATCH_RECORDS_DEFAULT
    max_delay_seconds: DelaySeconds = 5


class BatchSettingsPatch(msgspec.Struct, rename="camel"):
    """What is to change of it."""

    max_batch_size: BatchSize | UnsetType = UNSET
    max_delay_seconds: DelaySeconds | UnsetType = UNSET


CallbackUrl = Annotated[
    str, Meta(max_length=WEBHOOK_URL_LENGTH_MAX, extra_json_schema={"format": "uri"})
]
Secret = Annotated[
    str,
    Meta(
        min_length=WEBHOOK_SECRET_CHARS_MIN,
        max_length=WEBHOOK_SECRET_CHARS_MAX,
        pattern=r"^[ -~]+$",
    ),
]


class SubscriptionRequest(msgspec.Struct, rename="camel"):
    """Where to send which events. Without a secret, the server draws one and tells it once."""

    callback_url: CallbackUrl
    secret: Secret | UnsetType = UNSET
    filters: SubscriptionFilters = msgspec.field(default_factory=SubscriptionFilters)
    batch_settings: BatchSettings = msgspec.field(default_factory=BatchSettings)


class SubscriptionPatch(msgspec.Struct, rename="camel"):
    """What is to change; filters as a whole. A secret that is replaced signs for 24 hours more."""

    callback_url: CallbackUrl | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET
    filters: SubscriptionFilters | UnsetType = UNSET
    batch_settings: BatchSettingsPatch | UnsetType = UNSET
    status: Literal["active", "paused"] | UnsetType = UNSET


class SubscriptionCursor(msgspec.Struct, rename="camel"):
    """Up to here, all is delivered."""

    sequence_number: SequenceNumber


class Subscription(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A subscription as it is now. `failingSince` and `lastError`: while deliveries fail."""

    id: str
    callback_url: str
    status: Literal["active", "paused", "failing", "disabled"]
    filters: SubscriptionFilters
    batch_settings: BatchSettings
    cursor: SubscriptionCursor
    created_at: Instant
    dead_letters: int
    failing_since: Instant | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    last_delivered_at: Instant | UnsetType = UNSET
    secret: str | UnsetType = UNSET
    """One that was drawn just now; never told again."""


class SubscriptionList(msgspec.Struct, rename="camel"):
    """Subscriptions of a tenant, by id; `after` of the next page is the last id of this one."""

    subscriptions: list[Subscription]
    has_more: bool


class TestResult(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Whether the receiver took a test."""

    delivery_id: str
    delivered: bool
    took_ms: int
    status: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class Delivery(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One attempt to deliver a batch."""

    delivery_id: str
    at: Instant
    attempt: int
    first_sequence_number: SequenceNumber
    last_sequence_number: SequenceNumber
    events: int
    delivered: bool
    took_ms: int
    status: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class DeliveryList(msgspec.Struct, rename="camel"):
    """The last hundred attempts, the newest first."""

    deliveries: list[Delivery]


class EventDelivery(msgspec.Struct, rename="camel"):
    """What a receiver gets."""

    subscription_id: str
    events: list[EventEnvelope]
    cursor: SubscriptionCursor


DeliveryBody = Annotated[
    msgspec.Raw, Meta(description="An EventDelivery", extra_json_schema={"type": "object"})
]


class FeedDeadLetter(msgspec.Struct, rename="camel", kw_only=True):
    """A batch that was given up; `body` is that of the delivery."""

    number: int
    delivery_id: str
    at: Instant
    attempts: int
    first_sequence_number: SequenceNumber
    last_sequence_number: SequenceNumber
    error: str
    body: DeliveryBody


class DeadLetterList(msgspec.Struct, rename="camel"):
    """The oldest first; `after` of the next page is the last `number` of this one."""

    dead_letters: list[FeedDeadLetter]
    has_more: bool


class DeadLetterReplay(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How many were taken and are gone, how many are left, and what ended it."""

    delivered: int
    left: int
    error: str | UnsetType = UNSET
