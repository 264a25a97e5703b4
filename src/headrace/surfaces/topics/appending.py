"""Appending to a topic, however the request came: over HTTP or over a WebSocket."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import msgspec
from msgspec import UNSET

from headrace.core import dead_letter
from headrace.core.config import Kind, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.limits import IDEMPOTENCY_KEY_LENGTH_MAX
from headrace.core.owners import TOPICS
from headrace.core.record import Drafts
from headrace.engine.engine import Engine
from headrace.engine.logs.appender import Appended
from headrace.engine.timings import Timings
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.drafts import (
    AppendLimits,
    parse_drafts,
    parse_due,
    parse_plain_drafts,
)
from headrace.web.calls import decode
from headrace.web.credentials import NO_SCOPE, Principal, Scope

_append = msgspec.json.Decoder(wire.AppendRequest)
_append_plain = msgspec.json.Decoder(wire.PlainAppendRequest)

Appending = wire.AppendRequest | wire.PlainAppendRequest


def parse_append(body: bytes, limits: AppendLimits) -> tuple[Appending, Drafts]:
    try:
        plain = _append_plain.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        # Anything else than plain data, or a mistake: the full type tells which.
        request = decode(_append, body or b"{}")
        return request, parse_drafts(request, len(body), limits)
    return plain, parse_plain_drafts(plain, len(body), limits)


def write(
    engine: Engine,
    principal: Principal,
    topic: str,
    request: Appending,
    drafts: Drafts,
    timings: Timings,
) -> Coroutine[Any, Any, Appended]:
    """Append the drafts; the caller may write to this topic."""
    if principal.prefixes and drafts.metas is not None:
        # A stamp leads a re-drive, which others may ask for, to a queue: not where we may not go.
        principal.require(Scope.WRITE, *dead_letter.queues_named(drafts.metas))
    known = topic in engine.state.by_name
    return engine.appender.append(
        topic,
        drafts,
        owner=TOPICS,
        create=None if known else _config_to_create(principal, request, topic),
        created_by=principal.id,
        key=_check_key(request.idempotency_key),
        due_ms=parse_due(request, engine.clock),
        patient=request.disable_backpressure,
        timings=timings,
    )


def _config_to_create(principal: Principal, request: Appending, topic: str) -> LogConfig | None:
    """The config of a topic that this write may bring into existence; None when it may not."""
    asked = request.config
    allowed = request.create if request.create is not None else (asked is None or asked.auto_create)
    if not allowed:
        return None
    if asked is None:
        return LogConfig()
    principal.require(Scope.ADMIN, topic)
    return parse_config(principal, asked, topic, Kind.LOG)


def parse_config(
    principal: Principal, request: wire.ConfigRequest, topic: str, kind: Kind
) -> LogConfig:
    """The config of a topic, as far as the caller may ask for it."""
    config = request.parse(topic, kind)
    if config.dead_letter is not None:
        # Data will flow there on the caller's behalf, so it must be one of the caller's names.
        principal.require(NO_SCOPE, config.dead_letter)
    return config


def _check_key(key: str | None) -> str | None:
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX:
        raise Refused(
            Code.INVALID,
            f"an idempotency key has 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} characters",
            field="idempotency_key",
        )
    return key


def format_appended(topic: str, done: Appended, *, seqs: bool) -> wire.AppendReply:
    return wire.AppendReply(
        topic=topic,
        first_seq=done.first,
        last_seq=done.last,
        seqs=[*range(done.first, done.last + 1)] if seqs else UNSET,
        head_seq=done.head,
        count=done.last - done.first + 1,
        created=done.created,
        deduped=done.deduped,
    )
