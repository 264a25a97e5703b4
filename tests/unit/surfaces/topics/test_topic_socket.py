"""A WebSocket of the topics surface over a whole engine."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any
from unittest import mock

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN
from websockets.protocol import Protocol as Peer

from headrace.core.config import Durability
from headrace.core.errors import Refused
from headrace.core.limits import BUFFER_GRACE_S, COMMAND_BYTES_MAX, FRAMES_PER_TURN, SLOW_CONSUMER_S
from headrace.surfaces.topics import websocket, wire
from headrace.surfaces.topics.drafts import AppendLimits
from headrace.surfaces.topics.following import FollowLimits
from headrace.surfaces.topics.websocket import SocketLimits, TopicSocket
from headrace.web.credentials import LOCAL, Principal, Scope
from support.plumbing import Pipe
from support.serving import SYNC_S, House, live

LIMITS = SocketLimits(AppendLimits(100, 10_000, 1000, 50, 50), FollowLimits(3, 100), 20_000)


class Client:
    """The far end of a socket."""

    def __init__(self, house: House, principal: Principal = LOCAL) -> None:
        self.pipe = Pipe()
        self.socket = TopicSocket(house.hub, principal, LIMITS)
        self.pipe.protocol = self.socket
        self.socket.attach(self.pipe, b"", lambda: None, lambda: None)
        self._peer = Peer(CLIENT, state=OPEN, max_size=None)

    def say(self, **command: Any) -> None:
        text = json.dumps(command).encode()
        self.socket.data_received(Frame(Opcode.TEXT, text).serialize(mask=True))

    def heard(self) -> list[dict[str, Any]]:
        """What came since the last look."""
        self._peer.receive_data(self.pipe.take())
        events = self._peer.events_received()
        frames = [e for e in events if isinstance(e, Frame) and e.opcode is Opcode.TEXT]
        return [json.loads(frame.data) for frame in frames]

    def ops(self) -> list[str]:
        return [message["op"] for message in self.heard()]


def test_publications_do_not_wait_for_each_others_sync() -> None:
    async def story(house: House) -> None:
        await house.put("t", durability=Durability.FSYNC)
        client = Client(house)
        started = house.loop.time()
        for number in range(50):
            client.say(op="publish", request_id=number, topic="t", records=[{"data": number}])
        await asyncio.sleep(3 * SYNC_S)
        acks = client.heard()
        assert [ack["request_id"] for ack in acks] == list(range(50))
        assert [ack["seqs"] for ack in acks] == [[seq] for seq in range(1, 51)]
        assert house.loop.time() - started < 50 * SYNC_S / 2
        assert all(ack["performance"]["fsync_ms"] >= 0 for ack in acks)

    live(story)


def test_more_commands_than_fit_into_a_turn_are_all_answered() -> None:
    async def story(house: House) -> None:
        client = Client(house)
        count = 2 * FRAMES_PER_TURN + 1
        ping = Frame(Opcode.TEXT, b'{"op":"ping"}').serialize(mask=True)
        client.socket.data_received(ping * count)
        assert client.pipe.reading_paused
        await asyncio.sleep(SYNC_S)
        assert client.ops() == ["pong"] * count
        assert not client.pipe.reading_paused

    live(story)


def test_who_publishes_too_much_at_once_is_not_read() -> None:
    async def story(house: House) -> None:
        await house.put("t", durability=Durability.FSYNC)
        client = Client(house)
        for number in range(30):
            client.say(op="publish", topic="t", records=[{"data": number}])
        assert client.pipe.reading_paused
        assert client.socket._flying == 11
        await asyncio.sleep(10 * SYNC_S)
        assert not client.pipe.reading_paused
        assert client.ops() == ["ack"] * 30
        assert house.engine.live("t").visible == 30

    with mock.patch("headrace.surfaces.topics.websocket.PUBLISHES_MAX", 10):
        live(story)


def test_who_says_too_much_during_a_subscription_is_not_read() -> None:
    async def story(house: House) -> None:
        await house.append("t", b"1")
        client = Client(house)
        client.say(op="subscribe", topic="t")
        for _ in range(9):
            client.say(op="publish", topic="t", return_seqs=False, records=[{"data": "x" * 90}])
        assert client.pipe.reading_paused
        assert len(client.socket._inbox) < 9
        await asyncio.sleep(1)
        assert not client.pipe.reading_paused
        assert client.ops().count("ack") == 9
        assert client.socket._inbox_bytes == 0

    with mock.patch("headrace.surfaces.topics.websocket.PUBLISHES_BYTES_MAX", 500):
        live(story)


def test_one_socket_watches_only_so_many_prefixes() -> None:
    async def story(house: House) -> None:
        client = Client(house)
        for prefix in "abc":
            client.say(op="subscribe", topic=f"{prefix}*")
        client.say(op="subscribe", topic="a*")
        await asyncio.sleep(0.1)
        assert client.ops() == ["subscribed"] * 4
        client.say(op="subscribe", topic="d*")
        await asyncio.sleep(0.1)
        (refusal,) = client.heard()
        assert (refusal["op"], refusal["code"]) == ("error", "invalid_request")
        client.say(op="unsubscribe", topic="a*")
        client.say(op="subscribe", topic="d*")
        await asyncio.sleep(0.1)
        assert client.ops() == ["unsubscribed", "subscribed"]

    live(story)


def test_subscribed_comes_before_the_records_and_what_was_said_meanwhile_after_it() -> None:
    async def story(house: House) -> None:
        await house.append("t", b"1", b"2")
        client = Client(house)
        client.say(op="subscribe", request_id="s", topic="t")
        client.say(op="ping", request_id="p")
        client.say(op="unsubscribe", topic="t")
        await asyncio.sleep(0.1)
        assert client.ops() == ["subscribed", "pong", "unsubscribed"]
        await house.append("t", b"3")
        await asyncio.sleep(0.1)
        assert client.ops() == []

    live(story)


def test_a_blocked_client_is_neither_read_nor_written_to() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        client = Client(house)
        client.say(op="subscribe", topic="t")
        await asyncio.sleep(0.1)
        assert client.ops() == ["subscribed", "caught_up"]
        client.pipe.choke()
        assert client.pipe.reading_paused
        await house.append("t", b"1")
        await house.append("t", b"2")
        await asyncio.sleep(0.1)
        assert client.ops() == []
        client.pipe.drain()
        await asyncio.sleep(0.1)
        (record,) = client.heard()
        assert [r["$seq"] for r in record["records"]] == [1, 2], "gathered in one batch"
        assert not client.pipe.reading_paused

    live(story)


def test_a_long_block_makes_what_retention_took_the_clients_own_loss() -> None:
    async def story(house: House) -> None:
        await house.put("t", cap_records=1)
        for blocked_s, reason in (
            (BUFFER_GRACE_S / 2, "cap"),
            (BUFFER_GRACE_S * 2, "from_seq_too_old"),
        ):
            client = Client(house)
            client.say(op="subscribe", topic="t", tail=True)
            await asyncio.sleep(0.1)
            assert client.ops() == ["subscribed", "caught_up"]
            client.pipe.choke()
            for _ in range(3):
                await house.append("t", b"1")
            await asyncio.sleep(blocked_s)
            client.pipe.drain()
            await asyncio.sleep(0.1)
            tombstone, record, caught_up = client.heard()
            assert (tombstone["op"], tombstone["reason"]) == ("tombstone", reason)
            assert [r["data"] for r in record["records"]] == [1]
            assert caught_up["op"] == "caught_up"

    live(story)


def test_a_client_that_stays_blocked_is_told_and_left() -> None:
    async def story(house: House) -> None:
        client = Client(house)
        client.pipe.choke()
        await asyncio.sleep(SLOW_CONSUMER_S + 1)
        (error,) = client.heard()
        assert (error["op"], error["code"]) == ("error", "slow_consumer")
        assert client.socket.closed

    live(story)


def test_more_topics_than_allowed() -> None:
    async def story(house: House) -> None:
        for name in ("a", "b", "c", "d"):
            await house.put(name)
        client = Client(house)
        client.say(op="subscribe", topics={"a": {}, "b": {}})
        await asyncio.sleep(0.1)
        client.heard()
        client.say(op="subscribe", request_id="r", topics={"c": {}, "d": {}})
        await asyncio.sleep(0.1)
        (error,) = client.heard()
        assert (error["request_id"], error["code"]) == ("r", "invalid_request")
        client.say(op="subscribe", topics={"a": {}, "b": {}, "c": {}})
        await asyncio.sleep(0.1)
        assert client.ops()[0] == "subscribed"
        client.say(op="subscribe", topic="new:*")
        await asyncio.sleep(0.1)
        assert client.ops() == ["subscribed"]
        await house.append("new:1", b"1")
        await asyncio.sleep(0.1)
        (error,) = client.heard()
        assert (error["code"], error["detail"]) == ("throttled", {"topics": ["new:1"]})

    live(story)


def test_a_prefix_brings_a_topic_again_after_its_end() -> None:
    async def story(house: House) -> None:
        client = Client(house)
        client.say(op="subscribe", topic="p:*")
        await asyncio.sleep(0.1)
        await house.append("p:1", b"1")
        await asyncio.sleep(0.1)
        await house.engine.logs.drop("p:1", if_empty=False)
        await house.append("p:1", b"2")
        await asyncio.sleep(0.1)
        heard = client.heard()
        assert [m["op"] for m in heard] == ["subscribed", "record", "topic_deleted", "record"]
        assert [m["records"][0]["data"] for m in heard if m["op"] == "record"] == [1, 2]
        client.say(op="unsubscribe", topic="p:*")
        await house.append("p:1", b"3")
        await house.append("p:2", b"3")
        await asyncio.sleep(0.1)
        assert client.ops() == ["unsubscribed"]
        assert len(house.hub) == 0

    live(story)


def test_a_prefix_shows_only_what_the_key_may_see() -> None:
    async def story(house: House) -> None:
        client = Client(house, Principal("ann", Scope.READ, ("acme:",)))
        client.say(op="subscribe", topic="a*")
        await asyncio.sleep(0.1)
        await house.append("other", b"1")
        await house.append("acme:1", b"2")
        await house.append("abc", b"3")
        await asyncio.sleep(0.1)
        _, record = client.heard()
        assert record["topic"] == "acme:1"

    live(story)


def test_nothing_is_left_of_a_client_that_hung_up() -> None:
    async def story(house: House) -> None:
        await house.put("t", durability=Durability.FSYNC)
        client = Client(house)
        client.say(op="subscribe", topics={"t": {}, "p:*": {}})
        await asyncio.sleep(0.1)
        client.say(op="publish", topic="t", records=[{"data": 1}])
        client.socket.connection_lost(None)
        await asyncio.sleep(0.1)
        assert house.engine.live("t").visible == 1, "what was published is published"
        assert (len(house.hub), len(house.wheel)) == (0, 0)
        assert not house.hub._prefixes
        assert not house.engine.live("t").listeners

    live(story)


@pytest.mark.parametrize("durability", list(Durability))
def test_an_ack_comes_before_what_it_causes(durability: Durability) -> None:
    async def story(house: House) -> None:
        await house.put("t", durability=durability)
        client, other = Client(house), Client(house)
        for one in (client, other):
            one.say(op="subscribe", topics={"t": {}, "p:*": {}})
        await asyncio.sleep(0.1)
        client.heard()
        other.heard()
        for topic in ("t", "p:new"):
            for burst in (1, 3):
                for number in range(burst):
                    client.say(op="publish", topic=topic, records=[{"data": number}])
                await asyncio.sleep(10 * SYNC_S)
                acked = 0
                for message in client.heard():
                    if message["op"] == "ack":
                        acked = message["last_seq"]
                    elif message["op"] == "record":
                        assert message["records"][-1]["$seq"] <= acked
                assert acked == house.engine.live(topic).visible
                assert "record" in other.ops()

    live(story)


def test_a_client_that_hung_up_is_free_without_the_collector() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        gc.collect()
        gc.disable()
        try:
            client = Client(house)
            client.say(op="subscribe", topics={"t": {}, "p:*": {}})
            client.say(op="publish", topic="t", records=[{"data": 1}])
            await asyncio.sleep(0.1)
            client.socket.connection_lost(None)
            client.pipe.protocol = None
            del client
            await asyncio.sleep(0.1)
            assert not any(isinstance(one, TopicSocket) for one in gc.get_objects())
        finally:
            gc.enable()

    live(story)


def test_a_large_command_is_parsed_in_the_pool_and_in_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "INLINE_BYTES_MAX", 1000)
    waited: list[str] = []

    class Noted:
        async def run(self, work: Any, *args: Any) -> Any:
            waited.append(work.__name__)
            await asyncio.sleep(1)
            return work(*args)

    async def story(house: House) -> None:
        await house.put("t")
        monkeypatch.setattr(house.hub.engine, "pool", Noted())
        client = Client(house)
        large, deep = "x" * 2000, json.loads("[" * 200 + "]" * 200)
        client.say(op="publish", request_id=1, topic="t", records=[{"data": large}])
        client.say(op="publish", request_id=2, topic="t", records=[{"data": 2}])
        client.say(op="publish", request_id=3, topic="t", records=[{"data": deep}, {"data": large}])
        client.say(op="publish", request_id=4, topic="?", records=[{"data": large}])
        client.say(op="subscribe", request_id=5, topic="t", from_seq=0, more=large)
        client.say(op="ping", request_id=6, more=large)
        client.say(op="ping", request_id=7)
        await asyncio.sleep(20)
        heard = client.heard()
        said = [(message["op"], message.get("request_id")) for message in heard]
        asked = [each for each in said if each[1] is not None]
        assert asked == [
            ("ack", 1), ("ack", 2), ("error", 3), ("error", 4), ("subscribed", 5), ("error", 6),
            ("pong", 7),
        ]  # fmt: skip
        records = [r for message in heard if message["op"] == "record" for r in message["records"]]
        assert [record["data"] for record in records] == [large, 2]
        assert waited == ["_decode", "_parse_drafts"] * 2 + ["_decode"] * 3

    live(story)


def test_a_large_command_without_records_is_not_taken_apart() -> None:
    text = b'{"op":"subscribe","topic":"t","match":[%b[]]}' % (b"[]," * (COMMAND_BYTES_MAX // 3))
    with pytest.raises(Refused):
        websocket._decode(text)
    publish = b'{"op":"publish","topic":"t","records":[{"data":"%b"}]}' % (b"x" * COMMAND_BYTES_MAX)
    assert isinstance(websocket._decode(publish), wire.PlainPublish)
    tagged = publish.replace(b'"data"', b'"tag":"a","data"')
    assert isinstance(websocket._decode(tagged), wire.Publish)
