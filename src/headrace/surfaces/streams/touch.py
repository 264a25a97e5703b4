"""Touches over HTTP: which records somebody looks at, and waiting until one of them changes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    I64_MAX,
    TEMPLATES_AT_ONCE,
    TOUCH_CURSOR_LENGTH_MAX,
    TOUCH_WAIT_KEYS_MAX,
    TOUCH_WAIT_MS,
    TOUCH_WAIT_MS_MAX,
)
from headrace.engine.flow.shared_timeout import SharedTimeout
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.touch_notifier import Interest, ServedInterest, TouchNotifier
from headrace.profiles.templates import Wanted, parse_wanted
from headrace.profiles.touchkeys import format_key, parse_key_id, parse_template_id
from headrace.surfaces.streams.positions import format_position
from headrace.surfaces.streams.routes import StreamLimits, timed_out
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode
from headrace.web.credentials import Scope

_CURSOR = re.compile(r"([0-9a-f]{16}):(0|[1-9][0-9]{0,18})", re.ASCII)
_BODY_BYTES_MAX = 1 << 20
_TTL_MS_MAX = 7 * 86_400_000
NOW = "now"

Ttl = Annotated[int, msgspec.Meta(ge=1, le=_TTL_MS_MAX)]


class _Request(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Names as on the wire; what is unknown is refused."""


class FieldAsked(_Request):
    name: str
    encoding: str = "string"


class TemplateAsked(_Request):
    entity: str
    fields: list[FieldAsked]


Templates = Annotated[list[TemplateAsked], msgspec.Meta(max_length=TEMPLATES_AT_ONCE)]


class ActivateRequest(_Request):
    templates: Annotated[Templates, msgspec.Meta(min_length=1)]
    inactivity_ttl_ms: Ttl | None = None


class WaitRequest(_Request, kw_only=True):
    cursor: Annotated[str, msgspec.Meta(max_length=TOUCH_CURSOR_LENGTH_MAX)]
    keys: Annotated[list[str], msgspec.Meta(max_length=TOUCH_WAIT_KEYS_MAX)] = []
    key_ids: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]],
        msgspec.Meta(max_length=TOUCH_WAIT_KEYS_MAX),
    ] = []
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=TOUCH_WAIT_MS_MAX)] = TOUCH_WAIT_MS
    interest_mode: Literal["fine", "coarse"] = "fine"
    template_ids_used: Annotated[list[str], msgspec.Meta(max_length=TEMPLATES_AT_ONCE)] = []
    declare_templates: Templates = []
    inactivity_ttl_ms: Ttl | None = None


class Activated(msgspec.Struct, rename="camel"):
    template_id: str
    state: str
    active_from_touch_offset: str


class Denied(msgspec.Struct, rename="camel"):
    template_id: str
    reason: str


class ActivationLimits(msgspec.Struct, rename="camel"):
    max_active_templates_per_stream: int
    max_active_templates_per_entity: int


class ActivateReply(msgspec.Struct):
    activated: list[Activated]
    denied: list[Denied]
    limits: ActivationLimits


class WaitReply(msgspec.Struct, rename="camel"):
    touched: bool
    cursor: str
    effective_wait_kind: str
    bucket_max_source_offset_seq: str
    flush_at_ms: int
    bucket_start_ms: int


class StaleError(msgspec.Struct):
    code: str = "stale"
    message: str = "this cursor is of another journal of touches: read again, then wait from here"


class StaleReply(msgspec.Struct, rename="camel"):
    stale: bool
    cursor: str
    epoch: str
    generation: int
    effective_wait_kind: str
    bucket_max_source_offset_seq: str
    flush_at_ms: int
    bucket_start_ms: int
    error: StaleError


_activate = msgspec.json.Decoder(ActivateRequest)
_wait = msgspec.json.Decoder(WaitRequest)


class TouchRoutes:
    """The handlers below `touch`."""

    def __init__(self, limits: StreamLimits) -> None:
        self._body_timeout = SharedTimeout(limits.request_ms / 1000, timed_out)
        self._settle_ms = limits.long_poll_ms

    async def meta(self, call: Call) -> Answer:
        notifier, engine = _notifier(call), call.engine
        settle = call.req.get_param("settle")
        if settle is not None:
            if settle != "flush":
                raise Refused(Code.INVALID, "settle is flush")
            await notifier.wait_settled(_parse_settle_ms(call, self._settle_ms))
        await engine.settle(notifier.live)
        return json_answer(msgspec.json.encode(_describe(call, notifier)))

    async def activate(self, call: Call) -> Answer:
        notifier = _notifier(call)
        request = decode(_activate, await call.raw_body(_BODY_BYTES_MAX))
        wanted = [_parse_template(each) for each in request.templates]
        answers = notifier.activate(wanted, request.inactivity_ttl_ms)
        limits = notifier.config.templates
        activated: list[Activated] = []
        denied: list[Denied] = []
        for each, answer in zip(wanted, answers, strict=True):
            id = format_key(each.id)
            if isinstance(answer, str):
                denied.append(Denied(id, answer))
            else:
                since = f"{notifier.epoch}:{answer.active_from}"
                activated.append(Activated(id, "active", since))
        shown = ActivationLimits(
            limits.max_active_templates_per_stream, limits.max_active_templates_per_entity
        )
        await call.engine.settle(notifier.live)
        return json_answer(msgspec.json.encode(ActivateReply(activated, denied, shown)))

    async def wait(self, call: Call) -> Answer:
        """Answers when something is touched, or when the time that was asked for is up."""
        _notifier(call)
        with self._body_timeout.limit():
            request = decode(_wait, await call.raw_body(_BODY_BYTES_MAX))
        interest, declared = _parse_interest(request)
        notifier, engine = _notifier(call), call.engine
        after = _parse_after(notifier, request.cursor)
        if after is not None and declared:
            notifier.activate(declared, request.inactivity_ttl_ms)
        watch = notifier.watch(interest, after or 0, request.timeout_ms)
        notifier.totals.waits += 1
        if after is None:
            notifier.totals.stales += 1
            stale = _stale(notifier, watch)
            await engine.settle(notifier.live)
            return json_answer(msgspec.json.encode(stale))
        touched = notifier.is_touched(watch, after)
        if not touched and request.timeout_ms:
            with (
                notifier.waiter(watch, request.timeout_ms) as waiter,
                call.unless_gone(waiter.leave),
            ):
                touched = await waiter.wait()
        notifier.totals.timeouts += not touched
        engine.streams.expiry.use(notifier.live)
        reply = _reply(notifier, watch, touched=touched)
        await engine.settle(notifier.live)
        return json_answer(msgspec.json.encode(reply))


async def wrong_method(call: Call) -> Answer:
    """Refuse a method that goes with none of these paths, as the contract words it."""
    _notifier(call)
    raise Refused(Code.INVALID, f"unsupported method {call.req.method}")


def _find(call: Call) -> OpenLog:
    call.principal.require(Scope.READ, call.name)
    live = call.engine.streams.find(call.name)
    call.engine.streams.expiry.use(live)
    return live


def _notifier(call: Call) -> TouchNotifier:
    return call.engine.touch_notifiers.notifier(_find(call))


def _parse_template(asked: TemplateAsked) -> Wanted:
    return parse_wanted(asked.entity, [(field.name, field.encoding) for field in asked.fields])


def _parse_settle_ms(call: Call, most: int) -> int:
    text = call.req.get_param("timeoutMs")
    if text is None:
        return most
    settle_ms = parse_digits(text, I64_MAX)
    if settle_ms is None:
        raise Refused(Code.INVALID, "timeoutMs is a whole number of milliseconds")
    return min(settle_ms, most)


def _parse_interest(request: WaitRequest) -> tuple[Interest, list[Wanted]]:
    if not request.keys and not request.key_ids:
        raise Refused(Code.INVALID, "keys or keyIds must say what to wait for")
    declared = [_parse_template(each) for each in request.declare_templates]
    templates = [wanted.id for wanted in declared]
    for text in request.template_ids_used:
        id = parse_template_id(text)
        if id is None:
            raise Refused(Code.INVALID, "templateIdsUsed are ids of 16 hexadecimal digits")
        templates.append(id)
    ids = frozenset((*map(parse_key_id, request.keys), *request.key_ids))
    coarse = request.interest_mode == "coarse"
    return Interest(ids, tuple(dict.fromkeys(templates)), coarse), declared


def _parse_after(notifier: TouchNotifier, cursor: str) -> int | None:
    """The generation behind which to look; None when the cursor is stale."""
    if cursor == NOW:
        notifier.settle()
        return notifier.generation
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise Refused(Code.INVALID, "cursor is now, or a cursor that this server gave")
    generation = int(match[2])
    return generation if match[1] == notifier.epoch and generation <= notifier.generation else None


def _reply(notifier: TouchNotifier, watch: ServedInterest, *, touched: bool) -> WaitReply:
    return WaitReply(
        touched,
        notifier.cursor,
        watch.kind,
        str(notifier.flushed - 1),
        notifier.flushed_at_ms,
        notifier.bucket_start_ms,
    )


def _stale(notifier: TouchNotifier, watch: ServedInterest) -> StaleReply:
    return StaleReply(
        True,
        notifier.cursor,
        notifier.epoch,
        notifier.generation,
        watch.kind,
        str(notifier.flushed - 1),
        notifier.flushed_at_ms,
        notifier.bucket_start_ms,
        StaleError(),
    )


def _describe(call: Call, notifier: TouchNotifier) -> dict[str, Any]:
    notifier.templates.expire(call.engine.clock.now_ms())
    memory, totals = notifier.config.memory, notifier.totals
    return {
        "mode": "memory",
        "cursor": notifier.cursor,
        "epoch": notifier.epoch,
        "generation": notifier.generation,
        "bucketMs": memory.bucket_ms,
        "coalesceMs": notifier.config.touch_coalesce_window_ms,
        "filterSize": 1 << memory.filter_pow2,
        "k": memory.k,
        "pendingKeys": len(notifier.touches.pending),
        "overflowBuckets": notifier.touches.overflows,
        "activeWaiters": notifier.waiting,
        "bucketMaxSourceOffsetSeq": str(notifier.flushed - 1),
        "lastFlushAtMs": notifier.flushed_at_ms,
        "settled": notifier.settled,
        "touchMode": notifier.mode,
        "lagSourceOffsets": notifier.backlog,
        "activeTemplates": len(notifier.templates),
        "walScannedThrough": format_position(notifier.live.log, notifier.scanned),
        "keysRemembered": len(notifier.touches),
        "recordsScannedTotal": totals.records,
        "fineTouchesTotal": notifier.changes.fine,
        "flushesTotal": totals.flushes,
        "waitsTotal": totals.waits,
        "wakesTotal": totals.wakes,
        "timeoutsTotal": totals.timeouts,
        "staleTotal": totals.stales,
    }
