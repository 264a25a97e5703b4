"""Subscriptions of a tenant: events that are sent to a receiver, by webhooks of the engine."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType

from headrace.core.entry import WebhookStatus
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    I64_MAX,
    LIST_PAGE_DEFAULT,
    LIST_PAGE_MAX,
    WEBHOOK_DEAD_LETTERS_MAX,
)
from headrace.engine.callbacks.sender import DeliveryFailed
from headrace.engine.consumers.delivering import DeliveryAttempt
from headrace.engine.consumers.webhooks import Hooked, WebhookSpec
from headrace.search.values import format_date
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.commands import read_command
from headrace.surfaces.feeds.delivery_format import parse_filters
from headrace.surfaces.feeds.names import consumers_of, log_of
from headrace.surfaces.feeds.permissions import MANAGERS, READERS, FeedRole
from headrace.surfaces.feeds.routes import (
    check_takes_vendor,
    enter,
    find,
    parse_listing,
    parse_number,
    vendor_answer,
)
from headrace.web.answers import Answer
from headrace.web.calls import Call

_create = msgspec.json.Decoder(wire.SubscriptionRequest)
_patch = msgspec.json.Decoder(wire.SubscriptionPatch)


class FeedSubscriptionRoutes:
    """The handlers of subscriptions."""

    async def create(self, call: Call) -> Answer:
        tenant = enter(call, MANAGERS)
        check_takes_vendor(call)
        request = await read_command(call, _create)
        find(call.engine, tenant)
        done = await call.engine.webhooks.put(
            f"{consumers_of(tenant)}sub-{secrets.token_hex(8)}",
            log_of(tenant),
            WebhookSpec(
                url=request.callback_url,
                filter=msgspec.json.encode(request.filters),
                batch_records=request.batch_settings.max_batch_size,
                batch_delay_ms=request.batch_settings.max_delay_seconds * 1000,
                secret=None if request.secret is UNSET else request.secret,
            ),
            "latest",
            log_of(tenant),  # who makes keys has no more of anything by that
        )
        described = _describe(done.hooked)
        described.secret = UNSET if done.secret is None else done.secret
        return vendor_answer(msgspec.json.encode(described), 201)

    async def list(self, call: Call) -> Answer:
        tenant = enter(call, READERS)
        check_takes_vendor(call)
        behind, limit = parse_listing(call.req, consumers_of(tenant))
        engine = call.engine
        find(engine, tenant)
        found, more = await engine.webhooks.page(
            behind, consumers_of(tenant), limit, lambda _: True
        )
        reply = wire.SubscriptionList([_describe(hooked) for hooked in found], more)
        return vendor_answer(msgspec.json.encode(reply))

    async def get(self, call: Call) -> Answer:
        name = _enter(call, READERS)
        return vendor_answer(msgspec.json.encode(_describe(await call.engine.webhooks.get(name))))

    async def change(self, call: Call) -> Answer:
        name = _enter(call, MANAGERS)
        patch = await read_command(call, _patch)
        hooked = await call.engine.webhooks.change(name, _changer(patch))
        return vendor_answer(msgspec.json.encode(_describe(hooked)))

    async def delete(self, call: Call) -> Answer:
        await call.engine.webhooks.delete(_enter(call, MANAGERS))
        return Answer(204, [])

    async def test(self, call: Call) -> Answer:
        """Send one event that is kept nowhere; says what became of it."""
        tried = await call.engine.webhooks.test(_enter(call, MANAGERS))
        reply = wire.TestResult(
            delivery_id=tried.id,
            delivered=tried.failure is None,
            took_ms=tried.took_ms,
            status=UNSET if tried.status is None else tried.status,
            error=_problem(tried.failure),
        )
        return vendor_answer(msgspec.json.encode(reply))

    async def deliveries(self, call: Call) -> Answer:
        attempts = await call.engine.webhooks.deliveries(_enter(call, READERS))
        reply = wire.DeliveryList([_describe_attempt(attempt) for attempt in attempts])
        return vendor_answer(msgspec.json.encode(reply))

    async def dead_letters(self, call: Call) -> Answer:
        name = _enter(call, READERS)
        after = parse_number(call.req, "after", 0, I64_MAX) or 0
        limit = parse_number(call.req, "limit", 1, LIST_PAGE_MAX) or LIST_PAGE_DEFAULT
        page = await call.engine.webhooks.dead_letters(name, after, limit)
        letters = [
            wire.FeedDeadLetter(
                number=number,
                delivery_id=letter.delivery,
                at=format_date(letter.at_ms),
                attempts=letter.attempts,
                first_sequence_number=letter.first,
                last_sequence_number=letter.last,
                error=letter.error,
                body=letter.body,
            )
            for number, letter in page.letters
        ]
        return vendor_answer(msgspec.json.encode(wire.DeadLetterList(letters, page.more)))

    async def replay(self, call: Call) -> Answer:
        """Send dead letters again, the oldest first, until one is not taken."""
        name = _enter(call, MANAGERS)
        done = await call.engine.webhooks.replay(name, WEBHOOK_DEAD_LETTERS_MAX)
        reply = wire.DeadLetterReplay(
            delivered=done.delivered, left=done.left, error=_problem(done.failure)
        )
        return vendor_answer(msgspec.json.encode(reply))


def _enter(call: Call, roles: tuple[FeedRole, ...]) -> str:
    """The name of a subscription in the engine, for who has one of the roles."""
    tenant, id = enter(call, roles), call.param("subscriptionId")
    check_takes_vendor(call)
    name = consumers_of(tenant) + id
    if "/" in id or name not in call.engine.webhooks:
        raise Refused(Code.WEBHOOK_NOT_FOUND, f"{tenant} has no such subscription")
    return name


def _changer(patch: wire.SubscriptionPatch) -> Callable[[WebhookSpec], WebhookSpec]:
    def change(spec: WebhookSpec) -> WebhookSpec:
        changes: dict[str, object] = {}
        if patch.callback_url is not UNSET:
            changes["url"] = patch.callback_url
        if patch.filters is not UNSET:
            changes["filter"] = msgspec.json.encode(patch.filters)
        if (batching := patch.batch_settings) is not UNSET:
            if batching.max_batch_size is not UNSET:
                changes["batch_records"] = batching.max_batch_size
            if batching.max_delay_seconds is not UNSET:
                changes["batch_delay_ms"] = batching.max_delay_seconds * 1000
        if patch.status is not UNSET:
            changes["status"] = WebhookStatus(patch.status)
        if patch.secret is not UNSET:
            changes["secret"] = patch.secret
        return msgspec.structs.replace(spec, **changes)

    return change


def _describe(hooked: Hooked) -> wire.Subscription:
    state = hooked.state
    destination = state.destination
    return wire.Subscription(
        id=hooked.name.rpartition("/")[2],
        callback_url=destination.url,
        status=state.status.value,
        filters=parse_filters(destination.filter),
        batch_settings=wire.BatchSettings(
            destination.batch_records, destination.batch_delay_ms // 1000
        ),
        cursor=wire.SubscriptionCursor(hooked.passed),
        created_at=format_date(hooked.live.log.created_at_ms),
        dead_letters=hooked.letters,
        failing_since=_instant(state.failing_since_ms),
        last_error=state.last_error or UNSET,
        last_delivered_at=_instant(state.delivered_at_ms),
    )


def _describe_attempt(attempt: DeliveryAttempt) -> wire.Delivery:
    return wire.Delivery(
        delivery_id=attempt.delivery,
        at=format_date(attempt.at_ms),
        attempt=attempt.attempt,
        first_sequence_number=attempt.first,
        last_sequence_number=attempt.last,
        events=attempt.records,
        delivered=not attempt.error,
        took_ms=attempt.took_ms,
        status=UNSET if attempt.status is None else attempt.status,
        error=attempt.error or UNSET,
    )


def _instant(at_ms: int) -> str | UnsetType:
    return format_date(at_ms) if at_ms else UNSET


def _problem(failure: DeliveryFailed | None) -> str | UnsetType:
    return UNSET if failure is None else str(failure)
