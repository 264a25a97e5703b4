"""Webhooks: batches of a log's records that are sent to a receiver, in order, at least once.

A batch has its id and its end written down before it is sent first, so that every attempt, behind a
crash too, is one of the same delivery. The cursor moves when the receiver took the batch, or when
all retries are used up and the batch lies among the dead letters; never otherwise.
"""

from __future__ import annotations

import msgspec

from headrace.core.entry import (
    DeliveryBatch,
    Destination,
    NoteDelivery,
    SetWebhook,
    WebhookSecrets,
    WebhookStatus,
)
from headrace.core.limits import (
    WEBHOOK_ERROR_CHARS_MAX,
    WEBHOOK_RETRY_AFTER_MS_MAX,
    WEBHOOK_SECRET_OVERLAP_MS,
)
from headrace.core.retry import DELIVERIES

ACTIVE = WebhookStatus.ACTIVE
GONE = 410
"""The status with which a receiver says that it wants nothing any more."""


class Webhook(msgspec.Struct, gc=False, array_like=True, tag="webhook"):
    """State of a webhook."""

    source: int
    """The log that it reads, by id: a later one of the same name is another."""
    source_name: str
    cursor: int
    """Everything up to here is delivered, among the dead letters, or not wanted."""
    destination: Destination
    secrets: WebhookSecrets
    status: WebhookStatus
    batch: DeliveryBatch | None = None
    """What is under way."""
    failures: int = 0
    """How often sending it failed."""
    retry_at_ms: int = 0
    failing_since_ms: int = 0
    """When the first of the attempts failed that have failed since the last success."""
    delivered_at_ms: int = 0
    last_error: str = ""


def rotate(secrets: WebhookSecrets, new: str, now_ms: int) -> WebhookSecrets:
    """The new secret, beside which the last one counts for a while."""
    if new == secrets.current:
        return secrets
    return WebhookSecrets(new, secrets.current, now_ms + WEBHOOK_SECRET_OVERLAP_MS)


def begin(log: int, webhook: Webhook, id: str, cursor: int, upto: int, now_ms: int) -> NoteDelivery:
    """A batch is about to be sent, with all its attempts before it; up to `cursor` nothing more is
    wanted.
    """
    assert webhook.cursor <= cursor < upto, (webhook.cursor, cursor, upto)
    batch = DeliveryBatch(id, upto, now_ms)
    return _note(log, webhook, cursor=cursor, batch=batch, failures=0, retry_at_ms=0)


def pass_over(log: int, webhook: Webhook, cursor: int) -> NoteDelivery:
    """Up to here nothing is wanted, or left."""
    return _note(log, webhook, cursor=max(cursor, webhook.cursor), batch=None)


def delivered(
    log: int, webhook: Webhook, upto: int, next: DeliveryBatch | None, now_ms: int
) -> NoteDelivery:
    """The receiver took the records up to here; perhaps the next batch is known already."""
    return NoteDelivery(log, upto, next, webhook.status, delivered_at_ms=now_ms)


def failed(
    log: int,
    webhook: Webhook,
    error: str,
    status: int | None,
    retry_after_ms: int | None,
    spread: float,
    now_ms: int,
) -> NoteDelivery:
    """The receiver did not take it: when to try again, or that nobody will.

    `failing`: its retries are used up, and the batch is to go to the dead letters with this.
    `disabled`: the receiver is gone; the batch stays where it is.
    """
    failures = webhook.failures + 1
    at_least_ms = min(retry_after_ms or 0, WEBHOOK_RETRY_AFTER_MS_MAX)
    wait_ms = DELIVERIES.wait_ms(failures, spread, at_least_ms)
    said = error[:WEBHOOK_ERROR_CHARS_MAX]
    since_ms = webhook.failing_since_ms or now_ms
    if status == GONE:
        # Who makes it active again has the batch tried at once, and as often as any.
        return _note(
            log, webhook, status=WebhookStatus.DISABLED, failures=0, retry_at_ms=0,
            failing_since_ms=since_ms, last_error=said,
        )  # fmt: skip
    if wait_ms is None:
        assert webhook.batch is not None
        return _note(
            log, webhook, status=WebhookStatus.FAILING, cursor=webhook.batch.upto, batch=None,
            failures=0, retry_at_ms=0, failing_since_ms=since_ms, last_error=said,
        )  # fmt: skip
    return _note(
        log, webhook, failures=failures, retry_at_ms=now_ms + wait_ms, failing_since_ms=since_ms,
        last_error=said,
    )  # fmt: skip


def _note(log: int, webhook: Webhook, **changes: object) -> NoteDelivery:
    return msgspec.structs.replace(
        NoteDelivery(
            log,
            webhook.cursor,
            webhook.batch,
            webhook.status,
            webhook.failures,
            webhook.retry_at_ms,
            webhook.failing_since_ms,
            webhook.delivered_at_ms,
            webhook.last_error,
        ),
        **changes,
    )


def apply(webhook: Webhook | None, entry: SetWebhook | NoteDelivery) -> Webhook:
    """Make an entry true."""
    if isinstance(entry, SetWebhook):
        return _set(webhook, entry)
    assert webhook is not None, entry
    webhook.cursor, webhook.batch, webhook.status = entry.cursor, entry.batch, entry.status
    webhook.failures, webhook.retry_at_ms = entry.failures, entry.retry_at_ms
    webhook.failing_since_ms, webhook.last_error = entry.failing_since_ms, entry.last_error
    webhook.delivered_at_ms = entry.delivered_at_ms
    return webhook


def _set(known: Webhook | None, entry: SetWebhook) -> Webhook:
    new = Webhook(
        entry.source,
        entry.source_name,
        entry.cursor,
        entry.destination,
        entry.secrets,
        entry.status,
    )
    if known is None or known.source != entry.source:
        return new
    new.cursor, new.delivered_at_ms = known.cursor, known.delivered_at_ms
    before, after = known.destination, entry.destination
    if (before.filter, before.batch_records) == (after.filter, after.batch_records):
        new.batch = known.batch  # else it would be another delivery under the same id
    mended = entry.status is ACTIVE and (known.status is not ACTIVE or before.url != after.url)
    if not mended:  # else what is under way is tried at once
        new.failures, new.retry_at_ms = known.failures, known.retry_at_ms
        new.failing_since_ms, new.last_error = known.failing_since_ms, known.last_error
    return new
