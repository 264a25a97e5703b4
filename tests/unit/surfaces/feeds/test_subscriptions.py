"""Subscriptions from end to end, in virtual time: what receivers get, and what is told of it."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook

from headrace.core.retry import DELIVERIES
from support.feeds_server import RECEIVER, FeedsServer, run
from support.receivers import Received

DAY_S = 86_400
ALL_RETRIES_S = 5 * DAY_S
OLD, NEW = (f"whsec_{b64encode(bytes([at] * 32)).decode()}" for at in (1, 2))


def numbers(call: Received) -> list[int]:
    return [event["sequenceNumber"] for event in json.loads(call.body)["events"]]


def cursor(call: Received) -> int:
    found: int = json.loads(call.body)["cursor"]["sequenceNumber"]
    return found


async def patch(server: FeedsServer, path: str, **body: object) -> Any:
    reply = await server.send("PATCH", path, body)
    assert reply.status == 200, reply
    return reply.json


def test_a_batch_that_nobody_takes_is_a_dead_letter_and_is_sent_again_when_asked() -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe()
        server.receivers.always[RECEIVER] = 500
        await server.store(2)
        await asyncio.sleep(1)
        failing = await server.get(path)
        assert (failing["status"], failing["lastError"]) == ("active", "status 500")
        since = failing["failingSince"]
        await asyncio.sleep(ALL_RETRIES_S)
        await server.store()
        given_up = await server.get(path)
        assert (given_up["status"], given_up["deadLetters"]) == ("failing", 1)
        assert (given_up["failingSince"], given_up["cursor"]["sequenceNumber"]) == (since, 3)
        calls = server.receivers.calls
        assert len(calls) == len(DELIVERIES.waits_s) + 1
        assert len({(call.id, call.body) for call in calls}) == 1
        page = await server.get(f"{path}/dead-letters")
        assert page["hasMore"] is False
        [letter] = page["deadLetters"]
        assert letter["deliveryId"] == calls[0].headers["X-Epistola-Delivery-Id"]
        assert letter["body"] == json.loads(calls[0].body)
        assert (letter["firstSequenceNumber"], letter["lastSequenceNumber"]) == (2, 3)
        assert (letter["attempts"], letter["error"]) == (len(calls), "status 500")

        refused = await server.send("POST", f"{path}/dead-letters/replay")
        assert refused.json == {"delivered": 0, "left": 1, "error": "status 500"}
        del server.receivers.always[RECEIVER]
        replayed = await server.send("POST", f"{path}/dead-letters/replay")
        assert replayed.json == {"delivered": 1, "left": 0}
        [taken] = server.receivers.taken
        assert (taken.id, taken.body) == (calls[0].id, calls[0].body)
        assert (await server.get(f"{path}/dead-letters"))["deadLetters"] == []
        assert (await server.get(path))["status"] == "failing", "nobody has said that it may go on"

        assert (await patch(server, path, status="active"))["status"] == "active"
        await asyncio.sleep(1)
        assert numbers(server.receivers.taken[-1]) == [4]
        well = await server.get(path)
        assert (well["cursor"]["sequenceNumber"], well["deadLetters"]) == (4, 0)
        assert "failingSince" not in well
        assert "lastError" not in well

    run(story)


def test_who_has_dead_letters_sent_twice_at_once_has_each_sent_once() -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe(batchSettings={"maxBatchSize": 1, "maxDelaySeconds": 0})
        server.receivers.always[RECEIVER] = 500
        for _ in range(2):
            await server.store()
            await asyncio.sleep(ALL_RETRIES_S)
            await patch(server, path, status="active")
        server.receivers.always[RECEIVER] = None
        replays = [
            asyncio.ensure_future(server.send("POST", f"{path}/dead-letters/replay"))
            for _ in range(2)
        ]
        await asyncio.sleep(1)
        server.receivers.release.set()
        done = [(await replay).json for replay in replays]
        assert done == [{"delivered": 2, "left": 0}, {"delivered": 0, "left": 0}]
        assert [numbers(call) for call in server.receivers.taken] == [[2], [3]]

    run(story)


def test_a_subscription_that_ends_while_its_dead_letters_are_sent() -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe()
        server.receivers.always[RECEIVER] = 500
        await server.store()
        await asyncio.sleep(ALL_RETRIES_S)
        server.receivers.always[RECEIVER] = None
        replay = asyncio.ensure_future(server.send("POST", f"{path}/dead-letters/replay"))
        await asyncio.sleep(1)
        assert (await server.send("DELETE", path)).status == 204
        server.receivers.release.set()
        reply = await replay
        assert (reply.status, reply.json["code"]) == (404, "NOT_FOUND")
        assert "__" not in reply.json["message"], "which logs there are is nobody's business"

    run(story)


def test_a_receiver_that_is_gone_is_called_again_when_somebody_says_so() -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe()
        server.receivers.script[RECEIVER] = [410]
        await server.store()
        await asyncio.sleep(1)
        await server.store()
        await asyncio.sleep(ALL_RETRIES_S)
        disabled = await server.get(path)
        assert (disabled["status"], disabled["cursor"]) == ("disabled", {"sequenceNumber": 1})
        assert (disabled["deadLetters"], len(server.receivers.calls)) == (0, 1)
        await patch(server, path, status="active")
        await asyncio.sleep(1)
        assert [numbers(call) for call in server.receivers.taken] == [[2], [3]]
        attempts = (await server.get(f"{path}/deliveries"))["deliveries"]
        assert [(each["delivered"], each["status"]) for each in attempts] == [
            (True, 200), (True, 200), (False, 410),
        ]  # fmt: skip
        assert attempts[1]["deliveryId"] == attempts[2]["deliveryId"]

    run(story)


def verifies(secret: str, call: Received) -> bool:
    """Whether a stock library finds the signature of this secret, but for how old it is."""
    at = datetime.fromtimestamp(int(call.headers["webhook-timestamp"]), UTC)
    signature = StandardWebhook(secret).sign(call.id, at, call.body.decode())
    return signature in call.headers["webhook-signature"].split(" ")


def test_a_secret_that_is_replaced_signs_for_a_day_more() -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe(secret=OLD)
        await server.store()
        await asyncio.sleep(1)
        await patch(server, path, secret=NEW)
        await asyncio.sleep(DAY_S - 10)
        await server.store()
        await asyncio.sleep(20)
        await server.store()
        await asyncio.sleep(1)
        calls = server.receivers.taken
        assert [verifies(OLD, call) for call in calls] == [True, True, False]
        assert [verifies(NEW, call) for call in calls] == [False, True, True]
        for call, secret in zip(calls, (OLD, NEW, NEW), strict=True):
            digest = hmac.digest(secret.encode(), call.body, "sha256").hex()
            assert call.headers["X-Epistola-Signature"] == f"sha256={digest}"

    run(story)


def test_filters_of_a_subscription_leave_out_events_and_its_cursor_passes_them() -> None:
    async def story(server: FeedsServer) -> None:
        filters = {"resourceTypes": ["version", "activation"], "templateIds": ["invoice", "letter"]}
        path = await server.subscribe(filters=filters)
        await server.store(templateId="invoice")
        await server.store(type="theme")
        await server.store(type="activation", templateId="letter")
        await server.store(templateId="other")
        await asyncio.sleep(1)
        assert [numbers(call) for call in server.receivers.taken] == [[2], [4]]
        assert (await server.get(path))["cursor"]["sequenceNumber"] == 5
        await patch(server, path, filters={"environmentIds": ["production"]})
        await server.store(type="activation", environmentId="production", templateId="other")
        await server.store(templateId="invoice")
        await asyncio.sleep(1)
        assert numbers(server.receivers.taken[-1]) == [6]

    run(story)


def test_events_wait_for_others_as_long_as_the_batch_is_not_full() -> None:
    async def story(server: FeedsServer) -> None:
        await server.subscribe(batchSettings={"maxBatchSize": 3, "maxDelaySeconds": 10})
        await server.store(2)
        await asyncio.sleep(9)
        assert server.receivers.taken == []
        await server.store(2)
        await asyncio.sleep(0.1)
        assert [numbers(call) for call in server.receivers.taken] == [[2, 3, 4]]
        await asyncio.sleep(11)
        assert [numbers(call) for call in server.receivers.taken] == [[2, 3, 4], [5]]
        assert [cursor(call) for call in server.receivers.taken] == [4, 5]

    run(story)


def test_a_test_is_one_event_that_is_stored_nowhere() -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe(filters={"eventTypes": ["no.such"]})
        done = (await server.send("POST", f"{path}/test")).json
        [call] = server.receivers.taken
        assert (done["delivered"], done["status"], done["deliveryId"]) == (True, 200, call.id)
        [event] = json.loads(call.body)["events"]
        assert (event["type"], event["tenantId"]) == ("subscription.test", "acme-corp")
        server.receivers.script[RECEIVER] = [302]
        refused = (await server.send("POST", f"{path}/test")).json
        assert (refused["delivered"], refused["status"]) == (False, 302)
        assert refused["deliveryId"] != call.id, "each has its own"
        assert (await server.get("/events"))["cursor"]["sequenceNumber"] == 1
        assert (await server.get(f"{path}/deliveries"))["deliveries"] == []

    run(story)


def test_events_that_retention_takes_from_a_paused_subscription_are_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(server: FeedsServer) -> None:
        path = await server.subscribe()
        await patch(server, path, status="paused")
        await server.store(2)
        await asyncio.sleep(8 * DAY_S)
        await server.store()
        await patch(server, path, status="active")
        await asyncio.sleep(1)
        assert [numbers(call) for call in server.receivers.taken] == [[4]]
        assert (await server.get(path))["cursor"]["sequenceNumber"] == 4

    run(story)
    [line] = [each for each in caplog.records if "missed" in each.getMessage()]
    assert (line.fields["first"], line.fields["last"]) == (2, 3)  # type: ignore[attr-defined]
