"""The endpoints of webhooks: parse, authorise, call the engine, encode.

A webhook is of the key that made it: no other one sees or changes it, unless that key is gone.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from headrace.core.cursor import encode_cursor
from headrace.core.digits import parse_digits
from headrace.core.entry import WebhookStatus
from headrace.core.errors import Code, Refused
from headrace.core.limits import LIST_PAGE_DEFAULT, LIST_PAGE_MAX, U64_MAX, WEBHOOK_DEAD_LETTERS_MAX
from headrace.core.match import format_match, parse_match
from headrace.engine.callbacks.sender import DeliveryFailed
from headrace.engine.consumers.delivering import DeliveryAttempt
from headrace.engine.consumers.webhooks import Hooked, WebhookSpec
from headrace.surfaces.topics import consumer_wire as wire
from headrace.surfaces.topics.names import parse_topic
from headrace.surfaces.topics.trackers import SURFACE, parse_source
from headrace.surfaces.topics.webhook_format import parse_webhook_filter
from headrace.surfaces.topics.wire import checked, open_object
from headrace.web.answers import Reply
from headrace.web.calls import Call, decode, parse_listing, parse_whole
from headrace.web.credentials import Scope

_put = msgspec.json.Decoder(wire.WebhookRequest)
_replay = msgspec.json.Decoder(wire.ReplayRequest)


async def put(call: Call) -> Reply:
    name = _authorise(call, Scope.ADMIN)
    request = decode(_put, await call.command() or b"{}")
    source = parse_source(request.source)
    call.principal.require(Scope.READ, source)
    engine = call.engine
    match = None if request.filter is None else parse_match(request.filter)
    done = await engine.webhooks.put(
        SURFACE + name,
        source,
        WebhookSpec(
            url=request.url,
            filter=b"" if match is None else msgspec.json.encode(format_match(match)),
            batch_records=request.batch.max_records,
            batch_delay_ms=request.batch.delay_ms,
            status=WebhookStatus(request.status),
            secret=request.secret,
        ),
        request.start_from,
        call.principal.id,
        check=lambda hooked: _check_own(call, hooked),
    )
    shown = msgspec.structs.asdict(_state(done.hooked, engine.clock.now_ms()))
    secret = UNSET if done.secret is None else done.secret
    reply = wire.WebhookReply(**shown, created=done.created, secret=secret)
    return Reply([open_object(reply)], 201 if done.created else 200)


async def get(call: Call) -> Reply:
    name = _authorise(call, Scope.READ)
    _find(call, name)
    hooked = await call.engine.webhooks.get(SURFACE + name)
    return Reply([open_object(_state(hooked, call.engine.clock.now_ms()))])


async def list_all(call: Call) -> Reply:
    call.principal.require(Scope.READ)
    engine = call.engine
    after, prefix, size = parse_listing(call.req)
    found, more = await engine.webhooks.page(
        SURFACE + after if after else "",
        SURFACE + prefix,
        size,
        lambda hooked: _is_own(call, hooked),
    )
    now_ms = engine.clock.now_ms()
    reply = wire.WebhookListReply(
        webhooks=[_state(hooked, now_ms) for hooked in found],
        next_cursor=encode_cursor(_name(found[-1])) if more else UNSET,
    )
    return Reply([open_object(reply)])


async def delete(call: Call) -> Reply:
    name = _authorise(call, Scope.DELETE)
    deleted = SURFACE + name in call.engine.webhooks
    if deleted:
        _find(call, name)
        await call.engine.webhooks.delete(SURFACE + name)
    else:
        await call.engine.wait_control()
    return Reply([open_object(wire.WebhookDropReply(webhook=name, deleted=deleted))])


async def test(call: Call) -> Reply:
    name = _authorise(call, Scope.ADMIN)
    _find(call, name)
    tried = await call.engine.webhooks.test(SURFACE + name)
    reply = wire.WebhookTestReply(
        webhook=name,
        delivery_id=tried.id,
        delivered=tried.failure is None,
        status=tried.status,
        problem=None if tried.failure is None else str(tried.failure),
        took_ms=tried.took_ms,
    )
    return Reply([open_object(reply)])


async def deliveries(call: Call) -> Reply:
    name = _authorise(call, Scope.READ)
    _find(call, name)
    attempts = await call.engine.webhooks.deliveries(SURFACE + name)
    reply = wire.WebhookAttemptsReply(webhook=name, deliveries=list(map(_attempt, attempts)))
    return Reply([open_object(reply)])


async def dead_letters(call: Call) -> Reply:
    name = _authorise(call, Scope.READ)
    _find(call, name)
    limit = parse_whole(call.req, "limit", LIST_PAGE_DEFAULT, LIST_PAGE_MAX)
    after = parse_digits(call.req.get_param("after") or "0", U64_MAX)
    if after is None:
        raise Refused(Code.INVALID, "after is a whole number", field="after")
    page = await call.engine.webhooks.dead_letters(SURFACE + name, after, limit)
    reply = wire.DeadLettersReply(
        webhook=name,
        dead_letters=[
            wire.WebhookDeadLetter(
                number=number,
                delivery_id=letter.delivery,
                at=letter.at_ms,
                attempts=letter.attempts,
                from_seq=letter.first,
                to_seq=letter.last,
                records=letter.records,
                problem=letter.error,
                body=letter.body,
            )
            for number, letter in page.letters
        ],
        has_more=page.more,
    )
    return Reply([open_object(reply)])


async def replay(call: Call) -> Reply:
    name = _authorise(call, Scope.ADMIN)
    request = checked(decode(_replay, await call.command() or b"{}"))
    _find(call, name)
    limit = min(request.limit, WEBHOOK_DEAD_LETTERS_MAX)
    done = await call.engine.webhooks.replay(SURFACE + name, limit)
    status, problem = _problem(done.failure)
    reply = wire.ReplayReply(
        webhook=name, delivered=done.delivered, left=done.left, status=status, problem=problem
    )
    return Reply([open_object(reply)])


def _authorise(call: Call, scope: Scope) -> str:
    """The webhook of the path, if the caller may do this with webhooks of such a name."""
    name = parse_topic(call.name)
    call.principal.require(scope, name)
    return name


def _find(call: Call, name: str) -> Hooked:
    """A webhook, for whoever it belongs to."""
    hooked = call.engine.webhooks.find(SURFACE + name)
    _check_own(call, hooked)
    return hooked


def _check_own(call: Call, hooked: Hooked) -> None:
    if not _is_own(call, hooked):
        # (What it reads, and where it leads, is not theirs to know.)
        raise Refused(Code.FORBIDDEN, f'"{_name(hooked)}" belongs to another key')


def _is_own(call: Call, hooked: Hooked) -> bool:
    principal, made_by = call.principal, hooked.live.log.created_by
    names = _name(hooked), hooked.state.source_name
    if not all(map(principal.may_see, names)):
        return False
    if principal.superadmin or principal.id == made_by:
        return True
    return call.gate.credentials.is_gone(made_by)


def _name(hooked: Hooked) -> str:
    return hooked.name.removeprefix(SURFACE)


def _problem(failure: DeliveryFailed | None) -> tuple[int | None, str | None]:
    return (None, None) if failure is None else (failure.status, str(failure))


def _attempt(attempt: DeliveryAttempt) -> wire.WebhookAttempt:
    return wire.WebhookAttempt(
        delivery_id=attempt.delivery,
        at=attempt.at_ms,
        attempt=attempt.attempt,
        from_seq=attempt.first,
        to_seq=attempt.last,
        records=attempt.records,
        delivered=not attempt.error,
        status=attempt.status,
        problem=attempt.error or None,
        took_ms=attempt.took_ms,
    )


def _state(hooked: Hooked, now_ms: int) -> wire.WebhookState:
    state, source = hooked.state, hooked.source
    destination, batch, secrets = state.destination, state.batch, state.secrets
    match = parse_webhook_filter(destination.filter)
    under_way = None
    if batch is not None:
        under_way = wire.WebhookUnderWay(
            delivery_id=batch.id,
            to_seq=batch.upto,
            failures=state.failures,
            retry_at=state.retry_at_ms or None,
        )
    rotates = len(secrets.valid(now_ms)) > 1
    return wire.WebhookState(
        webhook=_name(hooked),
        source=state.source_name,
        source_deleted=source is None,
        url=destination.url,
        filter=None if match is None else format_match(match),
        batch=wire.WebhookBatching(
            max_records=destination.batch_records, delay_ms=destination.batch_delay_ms
        ),
        status=state.status.value,
        cursor_seq=hooked.passed,
        lag=None if source is None else max(0, source.visible - hooked.passed),
        delivery=under_way,
        failing_since=state.failing_since_ms or None,
        last_error=state.last_error or None,
        last_delivered_at=state.delivered_at_ms or None,
        dead_letters=hooked.letters,
        old_secret_until=secrets.previous_until_ms if rotates else None,
        created_at=hooked.live.log.created_at_ms,
    )
