"""Frames of a WebSocket against those of another implementation, and every way to be wrong."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import CLIENT, OPEN
from websockets.protocol import Protocol as Peer

from headrace.core.limits import (
    CLOSE_S,
    FRAMES_PER_TURN,
    MESSAGE_PARTS_MAX,
    MESSAGE_STILL_S,
    WHEEL_TICK_S,
)
from headrace.delivery.endings import Ending, ShuttingDown, describe
from headrace.delivery.websocket import PartialMessages, Socket, frame
from support.plumbing import NoLogs, Pipe
from support.virtual import VirtualLoop

BYTES_MAX = 1000
LARGE = b"<too large>"
BINARY = b"<binary>"


class Ear(Socket):
    """Keeps what it hears."""

    def __init__(self, partial_messages: PartialMessages | None = None) -> None:
        super().__init__(NoLogs(), 15.0, BYTES_MAX, partial_messages)
        self.heard: list[bytes] = []
        self.gone = 0
        self.pipe = Pipe()
        self.pipe.protocol = self
        self.attach(self.pipe, b"", lambda: None, lambda: None)

    def message(self, text: bytes) -> None:
        self.heard.append(text)

    def refuse_binary(self) -> None:
        self.heard.append(BINARY)

    def refuse_large(self, bytes_max: int) -> None:
        assert bytes_max == BYTES_MAX
        self.heard.append(LARGE)

    def on_end(self) -> None:
        self.gone += 1

    def closing_message(self, ending: Ending) -> bytes:
        said = describe(ending)
        return said[1].encode() if said else b""


def run(story: Callable[[Ear], Coroutine[None, None, None]]) -> None:
    loop = VirtualLoop()

    async def tell() -> None:
        await story(Ear())

    try:
        loop.run(tell())
        assert not loop.complaints
    finally:
        loop.close()


def said(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def answers(ear: Ear) -> list[Frame]:
    """What another implementation makes of what we wrote."""
    peer = Peer(CLIENT, state=OPEN, max_size=None)
    peer.receive_data(ear.pipe.take())
    return [event for event in peer.events_received() if isinstance(event, Frame)]


texts = st.text(max_size=350).map(str.encode)
messages = st.lists(st.lists(texts, min_size=1, max_size=4), max_size=6)


@given(messages, st.lists(st.integers(1, 900), min_size=1, max_size=20), st.data())
def test_messages_arrive_whole_however_they_are_cut(
    sent: list[list[bytes]], cuts: list[int], data: st.DataObject
) -> None:
    raw, expected = b"", []
    for parts in sent:
        kind = data.draw(st.sampled_from((Opcode.TEXT, Opcode.BINARY)))
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            raw += said(Opcode.CONT if at else kind, part, fin=last)
            if not last and data.draw(st.booleans()):
                raw += said(Opcode.PING, b"in between")
        whole = b"".join(parts)
        answer = BINARY if kind is Opcode.BINARY else whole
        expected.append(LARGE if len(whole) > BYTES_MAX else answer)

    async def story(ear: Ear) -> None:
        rest, at = raw, 0
        while rest:
            size = cuts[at % len(cuts)]
            ear.data_received(rest[:size])
            rest, at = rest[size:], at + 1
        assert ear.heard == expected
        assert not ear.closed

    run(story)


@given(st.binary(max_size=70_000))
def test_another_implementation_reads_our_frames(payload: bytes) -> None:
    peer = Peer(CLIENT, state=OPEN, max_size=None)
    peer.receive_data(frame(payload))
    (event,) = peer.events_received()
    assert isinstance(event, Frame)
    assert (event.opcode, event.data) == (Opcode.TEXT, payload)


@pytest.mark.parametrize(
    "raw",
    [
        Frame(Opcode.TEXT, b"open").serialize(mask=False),
        b"\xc1" + said(Opcode.TEXT, b"rsv1")[1:],
        b"\x83" + said(Opcode.TEXT, b"opcode 3")[1:],
        b"\x8b" + said(Opcode.TEXT, b"opcode 11")[1:],
        said(Opcode.CONT, b"of nothing"),
        said(Opcode.TEXT, b"a", fin=False) + said(Opcode.TEXT, b"b"),
        b"\x09" + said(Opcode.PING, b"in parts")[1:],
        b"\x89" + said(Opcode.TEXT, b"x" * 200)[1:],
    ],
    ids=["unmasked", "rsv1", "opcode 3", "opcode 11", "of nothing", "inside", "parts", "long"],
)
def test_who_does_not_keep_to_the_protocol_is_told_and_left(raw: bytes) -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(raw)
        ear.data_received(said(Opcode.TEXT, b"too late"))
        assert b"too late" not in ear.heard
        last = answers(ear)[-1]
        assert last.opcode is Opcode.CLOSE
        assert Close.parse(last.data).code == 1002
        assert ear.gone == 1

    run(story)


def test_a_frame_far_too_large_is_passed_over_without_being_kept() -> None:
    async def story(ear: Ear) -> None:
        huge = said(Opcode.TEXT, b"x" * 1_000_000)
        for at in range(0, len(huge), 10_000):
            ear.data_received(huge[at : at + 10_000])
            assert len(ear._buffer) < 20
        ear.data_received(said(Opcode.TEXT, b"next"))
        assert ear.heard == [LARGE, b"next"]

    run(story)


def test_a_ping_is_answered_and_a_pong_is_not() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.PONG, b"?") + said(Opcode.PING, b"there?"))
        (pong,) = answers(ear)
        assert (pong.opcode, pong.data) == (Opcode.PONG, b"there?")

    run(story)


def test_an_idle_socket_pings() -> None:
    async def story(ear: Ear) -> None:
        await asyncio.sleep(15 + 2 * WHEEL_TICK_S)
        (ping,) = answers(ear)
        assert ping.opcode is Opcode.PING

    run(story)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (Close(1000, "bye").serialize(), 1000),
        (Close(4000, "").serialize(), 4000),
        (b"", None),
        (b"\x03", 1002),
        (b"\x03\xed", 1002),
    ],
)
def test_a_goodbye_is_answered(payload: bytes, code: int | None) -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.CLOSE, payload) + said(Opcode.TEXT, b"too late"))
        (last,) = answers(ear)
        assert last.opcode is Opcode.CLOSE
        assert last.data == (b"" if code is None else Close(code, "").serialize())
        assert ear.heard == []
        assert ear.pipe.closing
        assert ear.gone == 1

    run(story)


def test_the_server_says_goodbye_and_waits_for_the_answer() -> None:
    async def story(ear: Ear) -> None:
        ear.say(b"said before")
        ear.end(ShuttingDown())
        *words, last = answers(ear)
        assert [word.data for word in words] == [b"said before", b"the server is shutting down"]
        assert Close.parse(last.data).code == 1001
        assert ear.pipe.ended
        assert not ear.pipe.closing
        await asyncio.sleep(CLOSE_S + 2 * WHEEL_TICK_S)
        assert ear.pipe.aborted, "the peer never answered"

    run(story)


def test_what_is_said_in_one_round_goes_out_together_and_in_order() -> None:
    async def story(ear: Ear) -> None:
        ear.pipe.take()
        ear.say(b"one")
        ear.say(b"two")
        assert ear.pipe.sent == []
        await asyncio.sleep(0)
        assert ear.pipe.sent == [frame(b"one") + frame(b"two")]
        ear.say(b"three")
        ear.say_now(b"four")
        assert [event.data for event in answers(ear)] == [b"one", b"two", b"three", b"four"]

    run(story)


def test_a_held_socket_takes_nothing_in() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.TEXT, b"one"))
        ear.hold()
        assert ear.pipe.reading_paused
        ear.data_received(said(Opcode.TEXT, b"two") + said(Opcode.TEXT, b"three"))
        assert ear.heard == [b"one"]
        ear.release()
        await asyncio.sleep(0)
        assert ear.heard == [b"one", b"two", b"three"]
        assert not ear.pipe.reading_paused

    run(story)


# --- what a peer may cost -------------------------------------------------------------------------


async def settle(ear: Ear) -> int:
    """Until all is taken in; how many turns of the loop that took."""
    turns = 0
    while ear._behind:
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_frames_are_taken_in_by_turns() -> None:
    count = 20 * FRAMES_PER_TURN

    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.PING, b"") * count)
        assert len(ear.pipe.sent) <= FRAMES_PER_TURN + 1
        assert ear.pipe.reading_paused
        assert await settle(ear) >= 19
        assert len(answers(ear)) == count
        assert not ear.pipe.reading_paused

    run(story)


def test_a_socket_held_between_turns_stays_held() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.TEXT, b"x") * 3 * FRAMES_PER_TURN)
        ear.hold()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(ear.heard) == FRAMES_PER_TURN
        assert ear.pipe.reading_paused
        ear.release()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(ear.heard) == 3 * FRAMES_PER_TURN
        assert not ear.pipe.reading_paused

    run(story)


def test_a_message_of_empty_parts_ends() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.TEXT, b"a", fin=False))
        ear.data_received(said(Opcode.CONT, b"", fin=False) * (MESSAGE_PARTS_MAX + 10))
        await settle(ear)
        assert Close.parse(answers(ear)[-1].data).code == 1008
        assert ear.gone == 1

    run(story)


def test_a_message_of_small_parts_is_kept_as_one() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.TEXT, b"a", fin=False))
        for _ in range(BYTES_MAX - 1):
            ear.data_received(said(Opcode.CONT, b"b", fin=False))
        assert gc.get_referents(ear._message) == []
        assert len(ear._message) == BYTES_MAX
        ear.data_received(said(Opcode.CONT, b"c"))
        assert ear.heard == [LARGE]
        assert not ear._message

    run(story)


def test_a_frame_is_unmasked_as_it_comes() -> None:
    async def story(ear: Ear) -> None:
        raw = said(Opcode.TEXT, bytes(range(32, 127)) * 10)
        for at in range(len(raw)):
            ear.data_received(raw[at : at + 1])
            assert len(ear._buffer) < 14
        assert ear.heard == [bytes(range(32, 127)) * 10]

    run(story)


def test_messages_under_way_are_bounded_together() -> None:
    async def story(ear: Ear) -> None:
        messages = PartialMessages()
        ears = [Ear(messages) for _ in range(4)]
        for one in ears:
            one.data_received(said(Opcode.TEXT, b"x" * 900, fin=False))
        assert [one.closed for one in ears] == [False, False, True, True]
        assert Close.parse(answers(ears[-1])[-1].data).code == 1013
        assert messages.size_bytes == 1800
        small = Ear(messages)
        small.data_received(said(Opcode.TEXT, b"x" * 400, fin=False) + said(Opcode.CONT, b"y"))
        assert len(small.heard) == 1
        for one in ears[:2]:
            one.connection_lost(None)
        assert messages.size_bytes == 0

    with (
        mock.patch("headrace.delivery.websocket.MESSAGES_BYTES_MAX", 2000),
        mock.patch("headrace.delivery.websocket.MESSAGE_BYTES_FAIR", 500),
    ):
        run(story)


def test_a_control_frame_too_long_is_not_waited_for() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(b"\x89\xff" + (1 << 40).to_bytes(8, "big"))
        assert Close.parse(answers(ear)[-1].data).code == 1002

    run(story)


def test_a_message_that_stands_still_is_given_up() -> None:
    async def story(ear: Ear) -> None:
        ear.data_received(said(Opcode.TEXT, b"one", fin=False))
        for second in range(100):
            await asyncio.sleep(1.01)
            ear.say(b"something else")
            if second % 25 == 0:
                ear.data_received(said(Opcode.CONT, b"more", fin=False))
        assert not ear.closed, "slow is not still"
        await asyncio.sleep(2 * 15 + MESSAGE_STILL_S)
        assert ear.closed
        assert Close.parse(answers(ear)[-1].data).code == 1002

    run(story)


def test_a_socket_that_is_gone_is_free_without_the_collector() -> None:
    async def story(ear: Ear) -> None:
        gc.collect()
        gc.disable()
        try:
            other = Ear()
            held = {other}
            other.attach(other.pipe, b"", lambda: None, partial(held.discard, other))
            other.data_received(said(Opcode.TEXT, b"x" * 900)[:-1])
            assert len(other._message) == 899
            other.leave()
            assert not other._message
            ref = weakref.ref(other)
            other.connection_lost(None)
            other.pipe.protocol = None
            del other
            assert ref() is None
        finally:
            gc.enable()

    run(story)
