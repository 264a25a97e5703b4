"""Webhooks: what moves the cursor, when a batch is tried again, and who signs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.entry import (
    DeliveryBatch,
    Destination,
    NoteDelivery,
    SetWebhook,
    WebhookSecrets,
    WebhookStatus,
)
from headrace.core.errors import Refused
from headrace.core.webhook import Webhook, apply, begin, delivered, failed, pass_over, rotate
from headrace.core.webhook_signature import format_secret, key_of, parse_secret, sign

PLAN = Destination("https://a.example/", b"", 50, 0)
SECRETS = WebhookSecrets("a secret of some kind")
DAY_MS = 86_400_000


def made(**more: Any) -> Webhook:
    entry = SetWebhook(1, 7, "orders", 10, PLAN, SECRETS, WebhookStatus.ACTIVE)
    return apply(None, msgspec.structs.replace(entry, **more))


def again(webhook: Webhook, **more: Any) -> Webhook:
    entry = SetWebhook(
        1, webhook.source, "orders", 99, webhook.destination, SECRETS, webhook.status
    )
    return apply(webhook, msgspec.structs.replace(entry, **more))


def sending(upto: int = 20, failures: int = 0) -> Webhook:
    webhook = made()
    apply(webhook, begin(1, webhook, "dlv_1", 12, upto, 1000))
    for _ in range(failures):
        apply(webhook, fail(webhook))
    return webhook


def fail(webhook: Webhook, status: int | None = 500, wait_ms: int | None = None) -> NoteDelivery:
    return failed(1, webhook, "it is broken", status, wait_ms, 0.0, 2000)


def test_the_cursor_moves_only_when_something_was_taken_or_given_up() -> None:
    webhook = sending()
    assert (webhook.cursor, webhook.batch) == (12, DeliveryBatch("dlv_1", 20, 1000))
    for _ in range(9):
        apply(webhook, fail(webhook))
        assert (webhook.cursor, webhook.batch) == (12, DeliveryBatch("dlv_1", 20, 1000))
        assert webhook.status is WebhookStatus.ACTIVE
    given_up = fail(webhook)
    assert (given_up.cursor, given_up.batch) == (20, None)
    assert given_up.status is WebhookStatus.FAILING
    taken = delivered(1, webhook, 20, None, 3000)
    apply(webhook, taken)
    assert (webhook.cursor, webhook.batch, webhook.failures) == (20, None, 0)
    assert (webhook.failing_since_ms, webhook.last_error, webhook.delivered_at_ms) == (0, "", 3000)


def test_what_failed_is_known_until_something_is_taken() -> None:
    webhook = sending()
    apply(webhook, fail(webhook, wait_ms=7000))
    assert (webhook.failures, webhook.retry_at_ms) == (1, 9000)
    apply(webhook, failed(1, webhook, "x" * 1000, None, None, 0.0, 9000))
    assert (webhook.failures, webhook.failing_since_ms) == (2, 2000)
    assert webhook.last_error == "x" * 200


def test_a_receiver_that_is_gone_keeps_its_batch() -> None:
    webhook = sending(failures=3)
    apply(webhook, fail(webhook, status=410))
    assert webhook.status is WebhookStatus.DISABLED
    assert (webhook.cursor, webhook.failures, webhook.retry_at_ms) == (12, 0, 0)
    assert webhook.batch is not None
    active = again(webhook, status=WebhookStatus.ACTIVE)
    assert active.batch == webhook.batch
    assert (active.failing_since_ms, active.last_error) == (0, "")


def test_a_wait_that_nobody_could_want_is_cut_off() -> None:
    webhook = sending()
    apply(webhook, fail(webhook, wait_ms=1000 * DAY_MS))
    assert webhook.retry_at_ms == 2000 + DAY_MS


@pytest.mark.parametrize(
    ("change", "keeps_batch", "tries_at_once"),
    [
        ({}, True, False),
        ({"destination": msgspec.structs.replace(PLAN, url="https://b.example/")}, True, True),
        ({"destination": msgspec.structs.replace(PLAN, filter=b"x")}, False, False),
        ({"destination": msgspec.structs.replace(PLAN, batch_records=1)}, False, False),
        ({"destination": msgspec.structs.replace(PLAN, batch_delay_ms=1)}, True, False),
        ({"status": WebhookStatus.PAUSED}, True, False),
        ({"secrets": WebhookSecrets("another one, as long")}, True, False),
    ],
)
def test_who_changes_a_webhook_keeps_what_is_under_way(
    change: dict[str, Any], keeps_batch: bool, tries_at_once: bool
) -> None:
    webhook = sending(failures=2)
    changed = again(webhook, **change)
    assert changed.cursor == 12
    assert changed.batch == (webhook.batch if keeps_batch else None)
    assert (changed.failures, changed.retry_at_ms == 0) == (
        0 if tries_at_once else 2, tries_at_once
    )  # fmt: skip


def test_another_source_begins_anew() -> None:
    changed = again(sending(failures=2), source=8)
    assert (changed.source, changed.cursor, changed.batch, changed.failures) == (8, 99, None, 0)


def test_what_is_not_wanted_is_passed() -> None:
    webhook = made()
    apply(webhook, pass_over(1, webhook, 15))
    assert (webhook.cursor, webhook.batch) == (15, None)
    assert pass_over(1, webhook, 3).cursor == 15, "never back"


def test_a_batch_has_all_its_attempts_though_the_one_before_it_came_to_nothing() -> None:
    webhook = sending(failures=9)
    since_ms = webhook.failing_since_ms
    apply(webhook, pass_over(1, webhook, 20))
    apply(webhook, begin(1, webhook, "dlv_2", 20, 30, 4000))
    assert (webhook.failures, webhook.retry_at_ms) == (0, 0)
    assert since_ms == webhook.failing_since_ms > 0, "nothing was taken since"


def test_a_replaced_secret_counts_for_a_day() -> None:
    secrets = rotate(WebhookSecrets("one"), "two", 1000)
    assert secrets.valid(1000) == ("two", "one")
    assert secrets.valid(999 + DAY_MS) == ("two", "one")
    assert secrets.valid(1000 + DAY_MS) == ("two",)
    assert rotate(secrets, "two", 5000) is secrets
    assert rotate(secrets, "three", 5000).valid(6000) == ("three", "two")


def test_nothing_that_is_printed_tells_a_secret() -> None:
    webhook = made()
    entry = SetWebhook(1, 7, "orders", 10, PLAN, SECRETS, WebhookStatus.ACTIVE)
    for said in (repr(webhook), repr(entry), entry.describe(), str(SECRETS)):
        assert "a secret" not in said


def test_the_vectors_of_the_rulings() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signature = "v1,hVsFLpmw4Ib/Xm0eZLt3KqYBZdt0U8gdGeuz0EsGv78="
    assert sign([secret], "msg_1", 1_700_000_000, b'{"a":1}') == signature
    assert sign([secret, secret], "msg_1", 1_700_000_000, b'{"a":1}') == f"{signature} {signature}"


def test_a_secret_is_its_own_key_unless_it_says_otherwise() -> None:
    assert key_of("a secret of some kind") == b"a secret of some kind"
    assert key_of(format_secret(b"k" * 32)) == b"k" * 32
    assert key_of("whsec_not base64 at all") == b"whsec_not base64 at all"


@pytest.mark.parametrize("text", ["", "x" * 15, "x" * 129, "x" * 16 + "\n"])
def test_secrets_that_are_none(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_secret(text)
    assert text.strip() not in refused.value.message or not text.strip()


def test_secrets_that_are_some() -> None:
    for text in ("x" * 16, "x" * 128, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"):
        assert parse_secret(text) == text
