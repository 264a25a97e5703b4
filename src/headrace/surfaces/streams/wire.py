"""The JSON of the streams surface."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.core.limits import SUBSCRIPTION_LEASE_MS
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.profiles.catalogue import load_profile
from headrace.search.values import format_date
from headrace.surfaces.streams.positions import content_type_of, epoch_of


class StreamSummary(msgspec.Struct, kw_only=True):
    """A stream in a listing. Positions count records from 0, as text."""

    name: str
    content_type: str
    created_at: str
    expires_at: str | None
    epoch: int
    next_offset: str
    sealed_through: str
    uploaded_through: str
    closed: bool
    profile: str


def summarise(engine: Engine, live: OpenLog) -> StreamSummary:
    log, streams = live.log, engine.streams
    stream = log.stream
    assert stream is not None
    ends_at_ms = streams.expiry.ends_at_ms(log)
    sealed = str(min(engine.index_status.sealed_last(live), live.visible) - 1)
    return StreamSummary(
        name=log.name,
        content_type=content_type_of(log),
        created_at=format_date(stream.created_at_ms),
        expires_at=None if ends_at_ms is None else format_date(ends_at_ms),
        epoch=epoch_of(log),
        next_offset=str(live.visible),
        sealed_through=sealed,
        uploaded_through=sealed,
        closed=streams.is_closed(live),
        profile=load_profile(stream.profile).kind,
    )


# --- subscriptions --------------------------------------------------------------------------------


class WebhookTarget(msgspec.Struct):
    url: str


class SubscribeRequest(msgspec.Struct, kw_only=True):
    """Which streams wake whom."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: list[str] | None = None
    webhook: WebhookTarget | None = None
    wake_stream: str | None = None
    filter: Any = None
    lease_ttl_ms: int = SUBSCRIPTION_LEASE_MS
    description: str | None = None


class StreamLink(msgspec.Struct, kw_only=True):
    """A stream of a subscription, and up to where it is done."""

    path: str
    link_type: str
    acked_offset: str


class StreamWork(StreamLink, kw_only=True):
    tail_offset: str
    has_pending: bool


class Signing(msgspec.Struct, kw_only=True):
    alg: str = "ed25519"
    kid: str
    jwks_url: str


class WebhookShown(msgspec.Struct, kw_only=True):
    url: str
    signing: Signing


class SubscriptionReply(msgspec.Struct, kw_only=True):
    """A subscription as it stands."""

    id: str
    subscription_id: str
    type: str
    pattern: str | None
    streams: list[StreamLink]
    webhook: WebhookShown | None
    wake_stream: str | None
    lease_ttl_ms: int
    created_at: str
    status: str
    description: str | None


class StreamsRequest(msgspec.Struct):
    streams: list[str]


class ClaimRequest(msgspec.Struct):
    worker: str


class ClaimReply(msgspec.Struct, kw_only=True):
    """The lease, and what there is to do."""

    wake_id: str
    generation: int
    token: str
    streams: list[StreamWork]
    lease_ttl_ms: int


class Ack(msgspec.Struct):
    stream: str
    offset: str


class AckRequest(msgspec.Struct, kw_only=True):
    """What is done, by whoever holds the lease."""

    wake_id: str
    generation: int
    acks: list[Ack] = []
    done: bool = False


class AckReply(msgspec.Struct, kw_only=True):
    ok: bool
    next_wake: bool


class WebhookBody(msgspec.Struct, kw_only=True):
    """What a webhook is told."""

    subscription_id: str
    wake_id: str
    generation: int
    streams: list[StreamWork]
    callback_url: str
    callback_token: str


class WebhookReply(msgspec.Struct):
    done: bool = False
