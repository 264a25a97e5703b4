"""Webhooks on a whole engine: order, retries, dead letters, isolation, restarts and crashes, on a
virtual clock.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook

from headrace.core.config import Durability, LogConfig
from headrace.core.entry import WebhookStatus
from headrace.core.errors import Code, Refused
from headrace.core.limits import WEBHOOKS_LOOKED_AT
from headrace.core.owners import TOPICS, WEBHOOKS
from headrace.core.record import draft
from headrace.core.webhook import Webhook
from headrace.engine.callbacks.sender import Callback
from headrace.engine.caps import Caps, KeyCaps
from headrace.engine.consumers.active_webhook import ActiveWebhook
from headrace.engine.consumers.webhooks import Hooked, WebhookPut, WebhookSpec
from headrace.engine.engine import Engine
from headrace.engine.start import Started, stop
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.receivers import Received, ScriptedReceivers, SeqFormat
from support.virtual import VirtualClock, VirtualLoop

from .test_crash_sweep import Recorder

FSYNC = LogConfig(durability=Durability.FSYNC)
URL = "https://a.example/hook"
FORMATS = {"topics": SeqFormat()}
SCHEDULE_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
Script = Callable[[Engine, ScriptedReceivers], Coroutine[Any, Any, None]]


async def begin(
    disk: HostileDisk, clock: VirtualClock, receivers: ScriptedReceivers, **more: Any
) -> Started:
    started = await boot(disk, clock, receivers=receivers, webhook_formats=FORMATS, **more)
    await started.engine.webhooks.delivery.run()
    return started


@pytest.fixture
def play() -> Iterator[Callable[[Script], None]]:
    """Runs a script on an engine in operation."""
    loop = VirtualLoop()

    def run(script: Script) -> None:
        async def live() -> None:
            receivers = ScriptedReceivers()
            started = await begin(HostileDisk(), VirtualClock(loop), receivers)
            await script(started.engine, receivers)

        loop.run(live())

    with small():
        yield run
    loop.close()


async def append(
    engine: Engine,
    count: int,
    *,
    name: str = "a",
    config: LogConfig = FSYNC,
    tag: str | None = None,
) -> None:
    drafts = draft([b"%d" % at for at in range(count)], tags=None if tag is None else [tag] * count)
    await engine.appender.append(name, drafts, owner=TOPICS, create=config)


async def hook(
    engine: Engine, name: str = "h", source: str = "a", created_by: str = "", **spec: Any
) -> WebhookPut:
    wanted = WebhookSpec(**{"url": URL, "batch_records": 3, **spec})
    return await engine.webhooks.put(f"topics/{name}", source, wanted, created_by=created_by)


def state(engine: Engine, name: str = "h") -> Webhook:
    return engine.webhooks.find(f"topics/{name}").state


def sent(calls: list[Received]) -> list[list[int]]:
    return [call.seqs for call in calls]


def test_records_come_in_order_and_in_batches(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 2)
        await hook(engine)
        await append(engine, 1)
        await asyncio.sleep(1)
        await append(engine, 7)
        await asyncio.sleep(1)
        assert sent(receivers.calls) == [[3], [4, 5, 6], [7, 8, 9], [10]], "what came before is not"
        assert len({call.id for call in receivers.calls}) == 4
        assert state(engine).cursor == 10
        attempts = await engine.webhooks.deliveries("topics/h")
        assert [(each.first, each.last, each.records) for each in attempts] == [
            (10, 10, 1), (7, 9, 3), (4, 6, 3), (3, 3, 1),
        ]  # fmt: skip
        assert [each.delivery for each in reversed(attempts)] == [c.id for c in receivers.calls]

    play(script)


def test_a_batch_is_tried_again_on_schedule_under_one_id(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [500, 302, "hang", 503]
        await append(engine, 4)
        await asyncio.sleep(1)
        failing = state(engine)
        assert (failing.failures, failing.last_error) == (1, "status 500")
        assert failing.failing_since_ms
        await asyncio.sleep(20_000)
        assert sent(receivers.calls) == [[2, 3, 4]] * 5 + [[5]]
        assert len({call.id for call in receivers.calls[:5]}) == 1
        assert {call.body for call in receivers.calls[:5]} == {receivers.calls[0].body}
        times = [call.at_s for call in receivers.calls[:5]]
        waits = [later - at for at, later in pairwise(times)]
        waits[2] -= 15  # the one that hung
        for wait_s, planned_s in zip(waits, SCHEDULE_S, strict=False):
            assert planned_s <= wait_s <= 1.2 * planned_s + 0.01
        well = state(engine)
        assert (well.cursor, well.failures, well.failing_since_ms) == (5, 0, 0)
        attempts = await engine.webhooks.deliveries("topics/h")
        assert [(each.attempt, each.status, each.error) for each in reversed(attempts)] == [
            (1, 500, "status 500"), (2, 302, "status 302"), (3, None, "no answer in 15 s"),
            (4, 503, "status 503"), (5, 200, ""), (1, 200, ""),
        ]  # fmt: skip

    play(script)


def test_a_batch_that_nobody_takes_becomes_a_dead_letter(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.always[URL] = 500
        await append(engine, 5)
        await asyncio.sleep(1.3 * sum(SCHEDULE_S))
        assert sent(receivers.calls) == [[2, 3, 4]] * 10
        failing = state(engine)
        assert (failing.status, failing.cursor) == (WebhookStatus.FAILING, 4)
        assert (failing.last_error, failing.batch) == ("status 500", None)
        found = await engine.webhooks.dead_letters("topics/h", 0, 10)
        [(_, letter)] = found.letters
        assert (letter.delivery, letter.attempts) == (receivers.calls[0].id, 10)
        assert (letter.first, letter.last, letter.records) == (2, 4, 3)
        assert bytes(letter.body) == receivers.calls[0].body
        await asyncio.sleep(100_000)
        assert len(receivers.calls) == 10, "nobody is called any more"
        refused = await engine.webhooks.replay("topics/h", 10)
        assert (refused.delivered, refused.left, str(refused.failure)) == (0, 1, "status 500")
        del receivers.always[URL]
        await engine.webhooks.change("topics/h", _active)
        await asyncio.sleep(1)
        assert sent(receivers.taken) == [[5, 6]]
        assert state(engine).failing_since_ms == 0
        replayed = await engine.webhooks.replay("topics/h", 10)
        assert (replayed.delivered, replayed.left, replayed.failure) == (1, 0, None)
        assert receivers.taken[-1].id == letter.delivery
        assert (await engine.webhooks.dead_letters("topics/h", 0, 10)).letters == []
        assert engine.webhooks.delivery.outcomes("topics") == {
            "delivered": 1,
            "failed": 10,
            "dead": 1,
        }

    play(script)


def _active(spec: WebhookSpec) -> WebhookSpec:
    return msgspec.structs.replace(spec, status=WebhookStatus.ACTIVE)


def _paused(spec: WebhookSpec) -> WebhookSpec:
    return msgspec.structs.replace(spec, status=WebhookStatus.PAUSED)


def test_a_receiver_that_is_gone_is_left_alone(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [500, 410]
        await append(engine, 2)
        await asyncio.sleep(100)
        await append(engine, 1)
        await asyncio.sleep(100_000)
        disabled = state(engine)
        assert (disabled.status, disabled.cursor) == (WebhookStatus.DISABLED, 1)
        assert len(receivers.calls) == 2
        assert (await engine.webhooks.dead_letters("topics/h", 0, 10)).letters == []
        await engine.webhooks.change("topics/h", _active)
        await asyncio.sleep(1)
        assert sent(receivers.calls) == [[2, 3]] * 3 + [[4]]
        assert len({call.id for call in receivers.calls[:3]}) == 1

    play(script)


def test_a_receiver_says_how_long_it_wants_to_be_left_alone(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [(429, 60_000), (429, 1_000)]
        await append(engine, 1)
        await asyncio.sleep(1000)
        first, second, third = (call.at_s for call in receivers.calls)
        assert 60 <= second - first <= 72.01
        assert 300 <= third - second <= 360.01, "less than planned is not asked for"

    play(script)


def test_receivers_that_hang_delay_nobody(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        for number in range(100):
            url = f"https://hang.example/{number}"
            receivers.always[url] = "hang"
            await hook(engine, f"hang{number}", url=url, created_by="key")
        await hook(engine, created_by="key")
        began = asyncio.get_running_loop().time()
        for round in range(20):
            await append(engine, 1)
            await asyncio.sleep(4)
            taken = receivers.taken[-1]
            assert (taken.url, taken.seqs) == (URL, [round + 2])
            assert taken.at_s - (began + 4 * round) < 0.01
        assert receivers.under_way <= 100

    play(script)


def test_few_records_wait_for_others_so_long_and_no_longer(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine, batch_delay_ms=5000)
        began = asyncio.get_running_loop().time()
        await append(engine, 1)
        await asyncio.sleep(3)
        await append(engine, 1)
        await asyncio.sleep(10)
        assert [(call.at_s - began, call.seqs) for call in receivers.calls] == [(5, [2, 3])]
        await append(engine, 4)
        await asyncio.sleep(1)
        assert sent(receivers.calls)[1:] == [[4, 5, 6]], "a full batch waits for nobody"
        await asyncio.sleep(10)
        assert sent(receivers.calls)[2:] == [[7]]

    play(script)


def test_only_what_is_wanted_is_sent_and_counted(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine, filter=b"x", batch_delay_ms=5000)
        for _ in range(3):
            await append(engine, 5, tag="y")
            await append(engine, 1, tag="x")
        await asyncio.sleep(1)
        assert sent(receivers.calls) == [[7, 13, 19]]
        await append(engine, 30, tag="y")
        await asyncio.sleep(10)
        assert len(receivers.calls) == 1
        assert engine.webhooks.find("topics/h").passed == 49
        await append(engine, 1, tag="x")
        await append(engine, 20, tag="y")
        await append(engine, 1, tag="x")
        await asyncio.sleep(10)
        assert sent(receivers.calls)[1:] == [[50, 71]]

    play(script)


def test_what_is_lost_before_it_was_sent_is_told(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        config = LogConfig(durability=Durability.FSYNC, cap_records=4)
        await append(engine, 1, config=config)
        await hook(engine)
        await engine.webhooks.change("topics/h", _paused)
        await append(engine, 9, config=config)
        await asyncio.sleep(10)
        assert receivers.calls == []
        await engine.webhooks.change("topics/h", _active)
        await asyncio.sleep(10)
        assert [msgspec.json.decode(call.body)["lost"] for call in receivers.calls] == [
            [2, 6],
            None,
        ]
        assert sent(receivers.calls) == [[7, 8, 9], [10]]

    play(script)


def test_who_changes_a_webhook_changes_what_is_under_way(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [None]
        await append(engine, 2, tag="x")
        await asyncio.sleep(1)
        await engine.webhooks.change(
            "topics/h", lambda spec: msgspec.structs.replace(spec, filter=b"x")
        )
        receivers.release.set()
        await asyncio.sleep(1)
        first, second = receivers.calls
        assert (first.seqs, second.seqs) == ([2, 3], [2, 3])
        assert first.id != second.id, "it may be another batch"
        await engine.webhooks.change("topics/h", _paused)
        receivers.script[URL] = [500]
        await append(engine, 1, tag="x")
        await engine.webhooks.change("topics/h", _active)
        await asyncio.sleep(1)
        elsewhere = "https://b.example/"
        await engine.webhooks.change(
            "topics/h", lambda spec: msgspec.structs.replace(spec, url=elsewhere)
        )
        await asyncio.sleep(1)
        assert receivers.checked == [URL, elsewhere], "only what is new is looked at"
        failed, mended = receivers.calls[2:]
        assert (mended.url, mended.seqs, mended.id) == (elsewhere, [4], failed.id)

    play(script)


def test_what_is_under_way_is_not_told_as_passed(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [200, None]
        await append(engine, 6)
        await asyncio.sleep(1)
        assert sent(receivers.calls) == [[2, 3, 4], [5, 6, 7]]
        assert (await engine.webhooks.get("topics/h")).passed == 4
        receivers.release.set()
        await asyncio.sleep(1)
        assert (await engine.webhooks.get("topics/h")).passed == 7

    play(script)


def test_what_is_told_of_a_webhook_stays_as_it_was(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        told = await engine.webhooks.get("topics/h")
        await append(engine, 3)
        await asyncio.sleep(1)
        assert told.state.cursor == 1, "what came later may not be durable yet"
        assert (await engine.webhooks.get("topics/h")).state.cursor == 4

    play(script)


def test_nobody_takes_a_webhook_over_that_was_made_meanwhile(
    play: Callable[[Script], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)

        async def look_up(url: str) -> None:
            monkeypatch.undo()
            await hook(engine, created_by="other")

        def check(hooked: Hooked) -> None:
            raise Refused(Code.FORBIDDEN, hooked.live.log.created_by)

        monkeypatch.setattr(receivers, "check", look_up)
        spec = WebhookSpec(url="https://b.example/")
        with pytest.raises(Refused, match="other"):
            await engine.webhooks.put("topics/h", "a", spec, created_by="key", check=check)
        assert state(engine).destination.url == URL

    play(script)


def test_letters_can_be_replayed_by_two_at_once(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.always[URL] = 500
        await append(engine, 2)
        await asyncio.sleep(400_000)
        assert state(engine).status is WebhookStatus.FAILING
        receivers.always[URL] = None
        replays = [engine.webhooks.replay("topics/h", 10) for _ in range(2)]
        asyncio.get_running_loop().call_later(1, receivers.release.set)
        done = await asyncio.gather(*replays)
        assert [each.left for each in done] == [0, 0]

    play(script)


def test_few_webhooks_look_in_one_turn_of_the_loop(
    play: Callable[[Script], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        for at in range(30):
            await hook(engine, f"h{at}")
        looks, sender = [0], engine.webhooks.delivery.sender
        start = sender.start

        def count(callback: Callback) -> None:
            looks[-1] += 1
            start(callback)

        monkeypatch.setattr(sender, "start", count)
        writing = asyncio.create_task(append(engine, 1))
        while sum(looks) < 30:
            looks.append(0)
            await asyncio.sleep(0)
        await writing
        assert max(looks) <= WEBHOOKS_LOOKED_AT, "others have their turns between"
        await asyncio.sleep(1)
        assert len(receivers.taken) == 30

    play(script)


def test_a_webhook_that_is_deleted_is_called_no_more(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [None]
        await append(engine, 9)
        await asyncio.sleep(1)
        await engine.webhooks.delete("topics/h")
        receivers.release.set()
        await append(engine, 1)
        await asyncio.sleep(100)
        assert len(receivers.calls) == 1
        assert [log.name for log in engine.state.logs.values()] == ["a"]
        live = engine.live("a")
        assert live.listeners == ()
        with pytest.raises(Refused) as refused:
            await engine.webhooks.test("topics/h")
        assert refused.value.code is Code.WEBHOOK_NOT_FOUND

    play(script)


def test_a_webhook_whose_log_is_gone_begins_anew(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 3)
        await hook(engine)
        await append(engine, 1, name="b")
        with pytest.raises(Refused) as refused:
            await hook(engine, source="b")
        assert refused.value.code is Code.CONFLICT
        receivers.script[URL] = [500]
        await append(engine, 1)
        await asyncio.sleep(1)
        await engine.logs.drop("a", if_empty=False)
        await asyncio.sleep(1000)
        assert len(receivers.calls) == 1
        assert engine.webhooks.find("topics/h").source is None
        await append(engine, 2)
        await hook(engine)
        await append(engine, 1)
        await asyncio.sleep(1)
        assert sent(receivers.calls[1:]) == [[3]]

    play(script)


def test_stock_verifiers_take_signatures_by_both_secrets(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        made = await hook(engine)
        assert made.secret is not None
        other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        await append(engine, 1)
        await asyncio.sleep(1)
        again = await engine.webhooks.put(
            "topics/h", "a", WebhookSpec(url=URL, batch_records=3, secret=other)
        )
        assert (again.created, again.secret) == (False, None)
        await append(engine, 1)
        await asyncio.sleep(86_400)
        await append(engine, 1)
        await asyncio.sleep(1)
        for call, secrets in zip(
            receivers.calls, ([made.secret], [other, made.secret], [other]), strict=True
        ):
            at = datetime.datetime.fromtimestamp(
                int(call.headers["webhook-timestamp"]), datetime.UTC
            )
            wanted = [
                StandardWebhook(secret).sign(call.id, at, call.body.decode()) for secret in secrets
            ]
            assert call.headers["webhook-signature"].split() == wanted
            assert call.headers["x-delivery"] == call.id

    play(script)


def test_a_test_is_sent_whatever_the_status_and_kept_nowhere(
    play: Callable[[Script], None],
) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine, status=WebhookStatus.PAUSED)
        receivers.script[URL] = [200, 500]
        taken = await engine.webhooks.test("topics/h")
        failed = await engine.webhooks.test("topics/h")
        assert taken.failure is None
        assert failed.failure is not None
        assert failed.failure.status == 500
        assert [call.id for call in receivers.calls] == [taken.id, failed.id]
        assert taken.id != failed.id
        assert await engine.webhooks.deliveries("topics/h") == []
        assert state(engine).failures == 0

    play(script)


def test_only_the_last_hundred_deliveries_are_kept(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine, batch_records=1)
        await append(engine, 130)
        await asyncio.sleep(10)
        attempts = await engine.webhooks.deliveries("topics/h")
        assert [each.first for each in attempts] == list(range(131, 31, -1))

    play(script)


def test_one_call_of_a_webhook_at_a_time_and_one_note_for_each(
    play: Callable[[Script], None],
) -> None:
    """With a backlog: that a batch was taken and that the next one begins is one frame."""

    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        together: list[int] = []
        receivers.on_call = lambda call: together.append(receivers.under_way)
        before = engine.journal.tail
        frames: list[int] = []
        enqueue = engine.journal.enqueue

        def counted(entries: Any, **how: Any) -> int:
            frames.append(len(entries))
            return enqueue(entries, **how)

        await append(engine, 30)
        engine.journal.enqueue = counted  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert len(receivers.calls) == 10
        assert set(together) == {0}
        assert len(frames) <= 11
        assert engine.journal.tail > before

    play(script)


def test_dead_letters_are_not_kept_for_ever(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        receivers.always[URL] = 500
        await append(engine, 1)
        await asyncio.sleep(1.3 * sum(SCHEDULE_S))
        assert len((await engine.webhooks.dead_letters("topics/h", 0, 10)).letters) == 1
        await asyncio.sleep(31 * 86_400)
        assert (await engine.webhooks.dead_letters("topics/h", 0, 10)).letters == []
        gone = await engine.webhooks.replay("topics/h", 10)
        assert (gone.delivered, gone.left) == (0, 0)

    play(script)


def test_a_server_that_cannot_write_any_more_calls_nobody() -> None:
    """A sync failed: what is taken could not be written down, so nothing more is sent."""
    loop, disk = VirtualLoop(), HostileDisk()
    receivers = ScriptedReceivers()

    async def live() -> None:
        clock = VirtualClock(loop)
        engine = (await begin(disk, clock, receivers)).engine
        await append(engine, 1)
        await hook(engine)
        receivers.script[URL] = [None]
        await append(engine, 9)
        await asyncio.sleep(1)
        assert len(receivers.calls) == 1
        number = len(disk.trace)
        disk.faults |= dict.fromkeys(range(number, number + 50), errno.EIO)
        receivers.release.set()
        await asyncio.sleep(1000)
        assert engine.journal.failure is not None
        assert len(receivers.calls) <= 2
        again = (await begin(disk.kill(), clock, receivers)).engine
        await asyncio.sleep(1)
        assert sent(receivers.taken)[-1] == [8, 9, 10]
        assert state(again).cursor == 10

    with small():
        loop.run(live())
    loop.close()


def test_a_commit_costs_one_call_however_many_webhooks_there_are(
    play: Callable[[Script], None],
) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        for number in range(20):
            await hook(engine, f"h{number}")
        live = engine.live("a")
        assert len(live.listeners) == 1
        told: list[int] = []
        notice = engine.webhooks.delivery._notice

        def counted(active: ActiveWebhook) -> None:
            told.append(live.visible)
            notice(active)

        for watch in engine.webhooks.delivery._watches.values():
            watch._notice = counted
        live.wake()
        live.wake()
        assert told == [], "nobody does anything in the turn of who wrote"
        await asyncio.sleep(0.1)
        assert len(told) == 20, "once for all that was committed meanwhile"
        for number in range(20):
            await engine.webhooks.delete(f"topics/h{number}")
        assert live.listeners == ()
        assert engine.webhooks.delivery._watches == {}

    play(script)


def test_what_nobody_foresaw_does_not_come_again_at_once(play: Callable[[Script], None]) -> None:
    async def script(engine: Engine, receivers: ScriptedReceivers) -> None:
        await append(engine, 1)
        await hook(engine)
        rendered = 0

        def broken(batch: object) -> bytes:
            nonlocal rendered
            rendered += 1
            raise ZeroDivisionError

        engine.webhooks.delivery.formats["topics"].render = broken  # type: ignore[method-assign]
        try:
            await append(engine, 1)
            await asyncio.sleep(10)
        finally:
            del engine.webhooks.delivery.formats["topics"].render
        assert rendered == 1

    play(script)


def test_so_many_webhooks_and_no_more() -> None:
    loop = VirtualLoop()
    caps = Caps(tail_bytes=600, logs={WEBHOOKS: 3}, per_key=KeyCaps(logs={WEBHOOKS: 2}))

    async def live() -> None:
        started = await begin(HostileDisk(), VirtualClock(loop), ScriptedReceivers(), caps=caps)
        engine = started.engine
        await append(engine, 1)
        for name in ("one", "two"):
            await hook(engine, name, created_by="key")
        for name, limit in (("three", "max_webhooks_per_key"), ("five", "max_webhooks")):
            with pytest.raises(Refused) as refused:
                await hook(engine, name, created_by="key" if name == "three" else "third")
            assert refused.value.detail["limit"] == limit
            if name == "three":
                await hook(engine, "four", created_by="other")

    with small():
        loop.run(live())
    loop.close()


@pytest.mark.parametrize("how", ["journal", "snapshot"])
def test_a_restart_sends_the_same_batch_again(how: str) -> None:
    loop, disk = VirtualLoop(), HostileDisk()
    receivers = ScriptedReceivers()

    async def live() -> None:
        clock = VirtualClock(loop)
        started = await begin(disk, clock, receivers)
        await append(started.engine, 1)
        await hook(started.engine, created_by="key")
        receivers.script[URL] = [500, None]
        await append(started.engine, 2)
        await asyncio.sleep(10)
        assert receivers.under_way == 1
        await append(started.engine, 5)
        if how == "snapshot":
            await started.upkeep.snapshot()
        await stop(started)
        assert receivers.under_way == 0
        disk.world.locked.clear()
        started = await begin(disk, clock, receivers)
        await asyncio.sleep(1)
        assert sent(receivers.calls) == [[2, 3]] * 3 + [[4, 5, 6], [7, 8]]
        assert len({call.id for call in receivers.calls[:3]}) == 1
        assert state(started.engine).cursor == 8
        await stop(started)
        problems = [found for found in Verification(disk).run() if isinstance(found, Problem)]
        assert problems == []

    with small():
        loop.run(live())
    loop.close()


class Told(NamedTuple):
    """What was going on when the disk was called."""

    appended: int = 0
    calls: tuple[tuple[str, int, int, bool], ...] = ()
    """(id, first, last, whether it was taken), in order."""


def test_no_crash_loses_a_record_nor_changes_the_id_of_a_delivery() -> None:
    loop, disk = VirtualLoop(), HostileDisk()
    clock, told = VirtualClock(loop), Told()

    async def live() -> None:
        nonlocal told
        receivers = ScriptedReceivers()
        receivers.script[URL] = [200, 500, 200, 503, 503]

        def note(call: Received) -> None:
            nonlocal told
            answer = receivers.script[URL][0] if receivers.script[URL] else 200
            seen = (call.id, call.seqs[0], call.seqs[-1], answer == 200)
            told = told._replace(calls=(*told.calls, seen))

        receivers.on_call = note
        started = await begin(disk, clock, receivers)
        engine = started.engine
        await append(engine, 1)
        await hook(engine)
        for count in (1, 4, 2, 3):
            await append(engine, count)
            told = told._replace(appended=told.appended + count)
            await asyncio.sleep(8)
            if count == 4:
                await started.upkeep.snapshot()
        await asyncio.sleep(1000)
        assert state(engine).cursor == 11

    async def judge(left: HostileDisk, told: Told) -> None:
        receivers = ScriptedReceivers()
        started = await begin(left, clock, receivers)
        engine = started.engine
        if "topics/h" not in engine.webhooks:
            assert told == Told()
            return
        taken = {seq for _, first, last, ok in told.calls if ok for seq in range(first, last + 1)}
        before = state(engine).cursor
        assert set(range(2, before + 1)) <= taken, "the cursor passed what was not delivered"
        await asyncio.sleep(100_000)
        head = engine.state.by_name["a"].head
        assert head >= told.appended + 1
        redone = [seq for call in receivers.taken for seq in call.seqs]
        assert redone == list(range(before + 1, head + 1)), "in order, and none left out"
        known: dict[int, set[str]] = {}
        sends = [*told.calls, *((c.id, c.seqs[0], c.seqs[-1], True) for c in receivers.calls)]
        for id, first, last, _ in sends:
            for seq in range(first, last + 1):
                known.setdefault(seq, set()).add(id)
        assert all(len(ids) == 1 for ids in known.values()), "a delivery has one id"

    recorder = Recorder(disk, lambda: told)  # type: ignore[arg-type, return-value]
    with small():
        loop.run(live())
        known: set[object] = set()
        for moment in recorder.moments:
            for how, _, left in moment.survivors():
                case = (moment.mark, left.world.contents())
                if case not in known:
                    known.add(case)
                    try:
                        loop.run(judge(left, moment.mark))  # type: ignore[arg-type]
                    except AssertionError as problem:
                        raise AssertionError(f"{moment.call}, {how}: {problem}") from None
    loop.close()
    assert len(known) > 50, "the story does too little"
