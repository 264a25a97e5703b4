"""Watches and replays in virtual time: what is told, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from headrace.core.config import LogConfig
from headrace.core.owners import NOTIFICATIONS
from headrace.core.read import Page
from headrace.engine.open_log import OpenLog
from headrace.observe import snapshot
from headrace.surfaces.notifications.events import EventForm
from headrace.surfaces.notifications.identifiers import parse_notified
from headrace.surfaces.notifications.records import make_drafts
from support.notify_server import NotifyServer, events, run, settled, told

QUICK = "watch_endpoint: {sse_heartbeat_interval_sec: 10, connection_max_duration_sec: 60}"
SMALL = "watch_endpoint: {replay_batch_size: 3, replay_batch_delay_ms: 1000}"


def test_what_comes_while_the_past_is_told_is_told_once_and_behind_it(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        for n in range(10):
            await server.notify(n=n)
        line = await server.watch(from_id="3")
        first = told(line)
        assert first[0] == "replay_started"
        assert "replay_completed" not in first  # it waits between batches
        for n in range(10, 15):
            await server.notify(n=n)
        await asyncio.sleep(10)
        numbers = [str(seq) for seq in range(3, 16)]
        before, behind = numbers[:8], numbers[8:]
        assert told(line) == ["replay_started", *before, "replay_completed", *behind]
        names = [event.name for event in events(line)]
        assert (
            names
            == ["replay-control", *["replay"] * 8, "replay-control"] + ["live-notification"] * 5
        )

    run(story, tmp_path, SMALL)


def test_a_replay_knows_nothing_of_what_comes_later(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        for n in range(5):
            await server.notify(n=n)
        line = await server.watch("replay", from_id="1")
        await server.notify(n=9)
        await asyncio.sleep(10)
        assert told(line) == [
            "replay_started", "1", "2", "3", "4", "5", "replay_completed", "end_of_stream"
        ]  # fmt: skip
        assert line.closing

    run(story, tmp_path, SMALL)


def test_heartbeats_come_while_nothing_else_does_and_the_end_comes_in_time(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        line = await server.watch()
        await asyncio.sleep(11)
        assert told(line) == ["connection_established", "heartbeat"]
        await server.notify(n=1)
        await asyncio.sleep(9)
        assert told(line) == ["connection_established", "heartbeat", "1"]
        await asyncio.sleep(60)
        assert told(line)[-1] == "max_duration_reached"
        assert told(line).count("heartbeat") == 5
        assert line.closing

    run(story, tmp_path, QUICK)


def test_the_limit_covers_the_past_of_a_watch_and_not_a_replay(tmp_path: Path) -> None:
    slow = (
        "watch_endpoint: {replay_batch_size: 1, replay_batch_delay_ms: 40000, "
        "connection_max_duration_sec: 60}"
    )

    async def story(server: NotifyServer) -> None:
        for n in range(4):
            await server.notify(n=n)
        watch = await server.watch(from_id="1")
        replay = await server.watch("replay", from_id="1")
        await asyncio.sleep(300)
        assert [each for each in told(watch) if each != "heartbeat"] == [
            "replay_started", "1", "2", "max_duration_reached"
        ]  # fmt: skip
        assert told(replay) == [
            "replay_started", "1", "2", "3", "4", "replay_completed", "end_of_stream"
        ]  # fmt: skip

    run(story, tmp_path, slow)


def test_who_cannot_keep_up_gets_the_rest_later(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        for n in range(20):
            await server.notify("x" * 50_000, n=n)
        line = server.site.connect()
        line.stuck = True
        body = b'{"event_type":"plain","identifier":{"n":"*"},"from_id":"1"}'
        await line.send(
            b"POST /api/v1/replay HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
            % len(body)
            + body
        )
        await asyncio.sleep(20)
        assert "replay_completed" not in told(line)
        line.drain()
        await asyncio.sleep(20)
        assert told(line)[-2:] == ["replay_completed", "end_of_stream"]
        assert told(line)[1:-2] == [str(seq) for seq in range(1, 21)]

    run(story, tmp_path, "watch_endpoint: {replay_batch_size: 1}")


def test_who_takes_nothing_is_cut_off_and_may_come_again(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n=0)
        line = await server.watch()
        line.choke()
        await asyncio.sleep(25)
        assert not line.closing
        await asyncio.sleep(10)
        assert line.closing
        assert told(line) == ["connection_established"]

    run(story, tmp_path, QUICK)


def test_a_stop_says_so_also_while_the_past_is_told(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        for n in range(9):
            await server.notify(n=n)
        watch, replay = await server.watch(from_id="1"), await server.watch("replay", from_id="1")
        server.engine.drain()
        for line in (watch, replay):
            line.protocol.shutdown()
        await settled(watch)
        assert told(watch)[-1] == told(replay)[-1] == "server_shutdown"
        await asyncio.sleep(60)
        assert "replay_completed" not in told(watch) + told(replay)

    run(story, tmp_path, SMALL)


def test_equal_watches_share_bytes(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n=0)
        watching = [await server.watch() for _ in range(3)]
        await server.notify({"a": 1}, n=1)
        frames = {line.sent[-1] for line in watching}
        assert len(frames) == 1
        assert b'"payload":{"a": 1}' in frames.pop()

    run(story, tmp_path)


def test_a_history_that_cannot_be_read_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n=0)

        async def fail(*args: object, **how: object) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr(server.engine.reader, "read", fail)
        line = await server.watch("replay", from_id="1")
        first, error, closing = events(line)
        assert first.data["type"] == "replay_started"
        assert error.name == "error"
        assert error.data["error"] == "stream_processing_failed"
        assert error.data["topic"] == "plain.*"
        assert closing.data["reason"] == "end_of_stream"

    run(story, tmp_path)


def test_what_is_counted(tmp_path: Path) -> None:
    schema = """
notification_schema_strict: false
notification_schema:
  known:
    topic: {base: known, key_order: [n]}
    identifier: {n: {type: StringHandler, required: true}}
"""

    async def story(server: NotifyServer) -> None:
        for n in range(2):
            await server.notify(n=n)
        body = {"event_type": "known", "identifier": {"n": "a"}}
        await settled(await server.send("POST", "/api/v1/notification", body))
        await settled(await server.send("POST", "/api/v1/notification", body | {"x": 1}))
        await settled(await server.send("LINK", "/api/v1/coffee"))
        line = await server.watch("replay", from_id="1")
        watching = await server.watch()
        found = snapshot(server.app._notifications.surface.samples(None))  # type: ignore[misc]
        other = {"event_type": "other"}
        assert found["aviso_notifications_total"] == [
            other | {"status": "success", "value": 2},
            {"event_type": "known", "status": "success", "value": 1},
        ]
        replay, watch = {"route": "/api/v1/replay"}, {"route": "/api/v1/watch"}
        assert found["aviso_sse_connections_total"] == [
            replay | other | {"value": 1}, watch | other | {"value": 1}
        ]  # fmt: skip
        assert found["aviso_sse_connections_active"] == [
            replay | other | {"value": 0}, watch | other | {"value": 1}
        ]  # fmt: skip
        assert found["aviso_sse_events_sent_total"] == [replay | other | {"value": 2}]
        assert found["aviso_sse_connection_duration_seconds"]["count"] == 1
        requests = {
            (each["route"], each["method"], each["status_code"]): each["value"]
            for each in found["aviso_http_requests_total"]
        }
        assert requests["/api/v1/notification", "POST", "200"] == 3
        assert requests["/api/v1/notification", "POST", "400"] == 1
        assert requests["other", "other", "404"] == 1
        assert line.closing
        assert not watching.closing

    run(story, tmp_path, schema)


@pytest.mark.parametrize("path", ["watch", "replay"])
def test_a_stream_that_cannot_begin_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n=0)

        async def fail(*args: object) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr(server.engine.reader, "seek", fail)
        line = await server.watch(path, from_date="2001-01-01T00:00:00Z")
        assert line.statuses == [500]
        body = json.loads(line.heard.partition(b"\r\n\r\n")[2])
        assert body["code"] == "SSE_STREAM_INITIALIZATION_FAILED"
        assert body["error"] == "SSE stream creation failed"
        assert body["topic"] == "plain.*"
        assert body["message"] == body["details"] == "internal error"

    run(story, tmp_path)


@pytest.mark.parametrize("kind", ["in_memory", "jetstream"])
def test_a_watch_gets_what_is_superseded_before_its_turn(kind: str, tmp_path: Path) -> None:
    """Many notify of one subject at once, of which one is kept: who watches gets all of them."""
    configuration = f"notification_backend: {{kind: {kind}}}"
    if kind == "jetstream":
        configuration = """
notification_schema:
  plain:
    topic: {base: plain, key_order: [n]}
    identifier: {n: {type: StringHandler, required: false}}
    storage_policy: {allow_duplicates: false}
"""

    async def story(server: NotifyServer) -> None:
        await server.notify(n="a")
        watching = await server.watch()
        body = {"event_type": "plain", "identifier": {"n": "a"}}
        raw = json.dumps(body).encode()
        head = (
            b"POST /api/v1/notification HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
        )
        for _ in range(50):  # all in one round of the loop
            server.site.connect().receive(head % len(raw) + raw)
        await settled(watching)
        assert told(watching) == ["connection_established", *map(str, range(2, 52))]
        assert told(await server.watch("replay", from_id="1"))[1:-2] == ["51"]

    run(story, tmp_path, configuration)


def test_a_watch_does_not_get_what_an_admin_deleted_before_its_turn(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n="a")
        watching = await server.watch()
        watching.choke()
        for n in ("a", "b", "a"):
            await server.notify(n=n)
        gone = await server.send("DELETE", "/api/v1/admin/notification/plain@3")
        await settled(gone)
        assert gone.statuses == [200]
        watching.drain()
        await settled(watching)
        assert told(watching) == ["connection_established", "4"]

    run(story, tmp_path, "notification_backend: {kind: in_memory}")


@pytest.mark.parametrize("selecting_ms", [0, 50])
def test_watches_that_could_not_be_asked_at_once_look_for_themselves(
    selecting_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.delivery.idle_cohorts.SELECTING_MS", selecting_ms)
    monkeypatch.setattr("headrace.core.selector_index.SELECTOR_COST_HARD", 0)

    def corner(at: int) -> str:
        return f"0,0,0,{at + 1},{at + 1},0,0,0"

    async def story(server: NotifyServer) -> None:
        await server.notify(n=0, polygon=corner(0))
        lines = [
            await server.watch(identifier={"n": "*", "polygon": corner(at)}) for at in range(40)
        ]
        for _ in range(3):
            # A box that meets all of theirs, and a shape that meets those of the last ones.
            await server.notify(n=1, polygon="0.5,25.5,25.5,0.5,26,26,0.5,25.5")
            await server.notify(n=2, polygon="80,80,80,81,81,80,80,80")
        await asyncio.sleep(5)
        for at, line in enumerate(lines):
            expected = ["2", "4", "6"] if at >= 25 else []
            assert told(line) == ["connection_established", *expected], at

    run(story, tmp_path)


def test_any_payload_becomes_a_message_of_wis2(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        path = "/api/v1/watch?event_type=plain&format=wis2&identifier=%7B%22n%22:%22*%22%7D"
        line = await server.send("GET", path)
        await settled(line)
        for payload in (b"1e400", b'"a"', b"[1, 2]"):
            body = b'{"event_type":"plain","identifier":{"n":1},"payload":%b}' % payload
            sent = await server.send_raw("POST", "/api/v1/notification", body)
            await settled(sent)
            assert sent.statuses == [200]
        for payload in (b'"payload":1e400}', b'"payload":"a"}', b'"payload":[1, 2]}'):
            assert payload in line.heard

    run(story, tmp_path)


def test_a_watch_that_cannot_be_served_keeps_nothing_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("headrace.surfaces.notifications.events.EventForm._encode_wis2", fail)

    async def story(server: NotifyServer) -> None:
        path = "/api/v1/watch?event_type=plain&format=wis2&identifier=%7B%22n%22:%22*%22%7D"
        broken = await server.send("GET", path)
        await settled(broken)
        good = await server.watch()
        await server.notify(n=1)
        await settled(good)
        assert told(good) == ["connection_established", "1"]
        assert [event.name for event in events(broken)][1:] == ["error", "connection-closing"]

    run(story, tmp_path)
    assert "a push failed" in caplog.messages


PLAIN = """\
notification_schema:
  plain:
    topic: {base: plain, key_order: [n]}
    identifier: {n: {type: IntHandler, required: false}}
"""


def test_a_polygon_that_no_notification_can_have_is_passed_over_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n=1)
        assert "polygon" not in caplog.text
        for _ in range(2):
            line = await server.watch(
                "replay", identifier={"polygon": "0,0,0,1,1,1,0,0"}, from_id="1"
            )
            assert told(line) == ["replay_started", "1", "replay_completed", "end_of_stream"]
        assert caplog.text.count("a polygon is passed over") == 1

    run(story, tmp_path, PLAIN)


def test_one_page_of_the_past_is_made_in_a_round_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, crowded, busy = 0, 0, False
    encode = EventForm.encode

    def end_round() -> None:
        nonlocal busy
        busy = False

    def counted(form: EventForm, name: bytes, page: Page) -> bytes:
        nonlocal made, crowded, busy
        made, crowded, busy = made + 1, crowded + busy, True
        asyncio.get_running_loop().call_soon(end_round)
        return encode(form, name, page)

    async def story(server: NotifyServer) -> None:
        for n in range(9):
            await server.notify(n=n)
        monkeypatch.setattr(EventForm, "encode", counted)
        body = {"event_type": "plain", "identifier": {"n": "*"}, "from_id": "1"}
        lines = [await server.send("POST", "/api/v1/replay", body) for _ in range(20)]
        await asyncio.sleep(5)
        assert (made, crowded) == (60, 0)
        assert {told(line)[-1] for line in lines} == {"end_of_stream"}

    run(story, tmp_path, "watch_endpoint: {replay_batch_size: 3}")


async def append_directly(server: NotifyServer, number: int) -> None:
    """A notification as the surface stores it, in the middle of what the surface does."""
    drafts = make_drafts(parse_notified(None, "plain", {"n": str(number)}), UNSET)
    await server.engine.appender.append(
        "notify:plain", drafts, owner=NOTIFICATIONS, create=LogConfig()
    )


def test_what_comes_while_a_time_is_looked_up_is_told_once(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n=1)
        seek = server.engine.reader.seek

        async def slow_seek(live: OpenLog, at_ns: int) -> int:
            found = await seek(live, at_ns)
            await append_directly(server, 2)
            return found

        server.engine.reader.seek = slow_seek  # type: ignore[method-assign]
        line = await server.watch(from_date="2001-01-01T00:00:00Z")
        await asyncio.sleep(1)
        assert told(line) == ["replay_started", "1", "replay_completed", "2"]

    run(story, tmp_path)


def test_a_type_that_comes_while_an_empty_past_is_told_is_followed(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        start = server.app.gate.hub.tasks.start

        def start_later(work: Coroutine[Any, Any, None], *rest: Any) -> None:
            async def with_the_first() -> None:
                await append_directly(server, 1)
                await work

            start(with_the_first(), *rest)

        server.app.gate.hub.tasks.start = start_later  # type: ignore[method-assign]
        line = await server.watch(from_id="1")
        await asyncio.sleep(1)
        assert told(line) == ["replay_started", "replay_completed", "1"]

    run(story, tmp_path)
