"""The stream of a watch session over a whole engine: what the machine of follows rarely meets."""

from __future__ import annotations

import asyncio
import errno
import gc
from unittest import mock

from headrace.core.config import Durability
from headrace.core.limits import COHORT_MAX, WHEEL_TICK_S
from headrace.core.match import TagEq
from headrace.core.selector import EVERYTHING, ColumnSelector
from headrace.delivery.channel import Channel
from headrace.delivery.endings import Replaced
from headrace.surfaces.topics.cursors import parse_composite
from headrace.surfaces.topics.events import TopicView
from headrace.surfaces.topics.sessions import Prefix, Session, Sessions, WatchPosition, begin
from headrace.surfaces.topics.watchstream import EventView, WatchStream
from headrace.web.concurrency import Slots
from headrace.web.credentials import LOCAL
from support.hostile import HostileDisk
from support.listening import ListeningPipe
from support.serving import SYNC_S, House, live

BEAT_S = 10.0


def look(wanted: ColumnSelector = EVERYTHING, *, strong: bool = False) -> TopicView:
    return TopicView(
        selector=wanted, records_max=100, bytes_max=10_000, strong=strong,
        tags=True, meta=True, data=True,
    )  # fmt: skip


class Viewer:
    """A session, and whoever watches it."""

    def __init__(
        self, house: House, *topics: str, seen: TopicView | None = None, prefix: str | None = None
    ) -> None:
        self._house = house
        self._truth = house.truth
        view = seen or look()
        places: dict[str, WatchPosition] = {}
        for topic in topics:
            places[topic] = begin(0, house.engine.live(topic).log.id, view, listed=True)
        prefixes = [] if prefix is None else [Prefix(prefix, view)]
        self.session = Session(LOCAL, places, prefixes, BEAT_S)
        self._sessions = Sessions(Slots(), 10_000_000, house.wheel.time)
        self._sessions.add(self.session)
        self.topics_max = 10

    def open(self) -> None:
        house = self._house
        stream = WatchStream(house.hub, self.session, self._sessions, self.topics_max)
        self.stream, self.pipe = stream, ListeningPipe(self._truth)
        self.pipe.protocol = stream
        stream.attach(self.pipe, b"head|", lambda: None, lambda: None)

    def heard(self) -> list[tuple[str, object]]:
        """Kinds of events since the last look, each with what tells most of it."""
        told = {"record": "to_seq", "tombstone": "reason", "error": "code"}
        events = [heard.event for heard in self.pipe.heard]
        self.pipe.heard.clear()
        return [(event.name, event.data[told.get(event.name, "head_seq")]) for event in events]


def test_a_stream_that_is_gone_is_free_without_the_collector() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        gc.collect()
        gc.disable()
        try:
            viewer = Viewer(house, "t", prefix="p:")
            viewer.open()
            await house.append("p:1", b"1")
            await asyncio.sleep(1)
            viewer.stream.connection_lost(None)
            viewer.pipe.protocol = None
            del viewer
            assert not any(isinstance(one, WatchStream) for one in gc.get_objects())
        finally:
            gc.enable()

    live(story)


def test_progress_over_what_nobody_wants_is_told_once_a_heartbeat_and_is_true() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        viewer = Viewer(house, "t", seen=look(ColumnSelector(match=TagEq("x"))))
        viewer.open()
        await asyncio.sleep(1)
        assert viewer.heard() == [("caught-up", 0)]
        for _ in range(8):
            await house.append("t", b"1", tags=["y"])
            await asyncio.sleep(1)
        assert viewer.heard() == []
        await asyncio.sleep(BEAT_S - 8 + 2 * WHEEL_TICK_S)
        assert viewer.heard() == [("caught-up", 8)]
        await asyncio.sleep(BEAT_S * 3)
        assert viewer.heard() == [], "nothing new to tell; heartbeats are no events"

    live(story)


def test_a_strong_stream_is_not_told_that_it_caught_up_before_anything_is_known() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        await house.append("t", b"1", b"2")
        assert house.engine.journal.synced < house.engine.journal.tail
        viewer = Viewer(house, "t", seen=look(strong=True))
        viewer.open()
        assert viewer.heard() == []
        await asyncio.sleep(3 * SYNC_S)
        assert viewer.heard() == [("record", 2), ("caught-up", 2)]

    live(story)


def test_eventual_streams_do_not_wait_for_the_sync_that_strong_ones_wait_for() -> None:
    async def story(house: House) -> None:
        await house.put("t", durability=Durability.DISK)
        now, sure = Viewer(house, "t"), Viewer(house, "t", seen=look(strong=True))
        for viewer in (now, sure):
            viewer.open()
        await asyncio.sleep(1)
        assert now.heard() == sure.heard() == [("caught-up", 0)]
        await house.append("t", b"1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert now.heard() == [("record", 1)]
        assert sure.heard() == []
        await asyncio.sleep(3 * SYNC_S)
        assert sure.heard() == [("record", 1)]

    live(story)


def test_a_stream_lost_before_its_first_page_still_finds_out_about_a_new_instance() -> None:
    async def story(house: House) -> None:
        await house.append("t", b"1")
        viewer = Viewer(house, "t")
        viewer.open()
        await asyncio.sleep(1)
        assert viewer.heard() == [("record", 1), ("caught-up", 1)]
        viewer.stream.connection_lost(None)
        await house.engine.logs.drop("t", if_empty=False)
        await house.append("t", b"2", b"3")
        viewer.open()
        viewer.stream.connection_lost(None)
        viewer.open()
        await asyncio.sleep(1)
        assert viewer.heard() == [("tombstone", "recreated"), ("record", 2), ("caught-up", 2)]

    live(story)


def test_a_topic_gone_while_nobody_watched_is_told_as_gone() -> None:
    async def story(house: House) -> None:
        await house.append("a", b"1", b"2")
        await house.append("b", b"1")
        viewer = Viewer(house, "a", "b")
        viewer.open()
        await asyncio.sleep(1)
        viewer.stream.connection_lost(None)
        await house.engine.logs.drop("a", if_empty=False)
        for _ in range(2):  # a client that missed it hears it again
            viewer.open()
            await asyncio.sleep(1)
            assert viewer.heard() == [("topic-deleted", 2), ("caught-up", 1)]
            assert not viewer.stream.closed
            viewer.stream.connection_lost(None)
        await house.engine.logs.drop("b", if_empty=False)
        viewer.open()
        assert viewer.heard() == [("topic-deleted", 2), ("topic-deleted", 1)]
        assert viewer.stream.closed, "there is nothing left to watch"

    live(story)


def test_ids_told_at_the_opening_know_where_the_reader_stands_in_every_topic() -> None:
    """The first event may be of one topic, but its id is for all of them."""

    async def story(house: House) -> None:
        await house.append("a", b"1")
        await house.append("b", b"1", b"2", b"3")
        viewer = Viewer(house, "a", "b")
        viewer.open()
        await asyncio.sleep(1)
        viewer.stream.end(Replaced())
        viewer.session.rewind({"a": 1, "b": 1})
        await house.engine.logs.drop("a", if_empty=False)
        viewer.open()
        first = viewer.pipe.heard[0].event
        assert first.name == "topic-deleted"
        assert parse_composite(first.id or "") == {"a": 1, "b": 1}

    live(story)


def test_an_instance_that_goes_before_its_first_page_leaves_no_seq_of_the_last_one_in_ids() -> None:
    async def story(house: House) -> None:
        await house.append("t", b"1")
        viewer = Viewer(house, "t")
        viewer.open()
        await asyncio.sleep(1)
        assert viewer.heard() == [("record", 1), ("caught-up", 1)]
        viewer.stream.connection_lost(None)
        await house.engine.logs.drop("t", if_empty=False)
        await house.put("t")
        epoch = house.engine.live("t").log.id
        viewer.open()
        await house.engine.logs.drop("t", if_empty=False)
        await asyncio.sleep(1)
        (told,) = viewer.pipe.heard
        assert (told.event.name, told.event.data["head_seq"]) == ("topic-deleted", 0)
        assert told.event.id is not None
        assert parse_composite(told.event.id) == {f"t@{epoch}": 0}

    live(story)


def test_a_gone_topic_is_not_told_to_a_stream_that_ended_meanwhile() -> None:
    async def story(house: House) -> None:
        await house.append("a", b"1")
        await house.append("b", b"1")
        viewer = Viewer(house, "a", "b")
        viewer.open()
        await asyncio.sleep(1)
        viewer.pipe.choke()
        dropping = house.loop.create_task(house.engine.logs.drop("a", if_empty=False))
        await asyncio.sleep(0)
        viewer.pipe.drain()  # resumes to find the topic gone, but not yet for certain
        viewer.stream.connection_lost(None)
        viewer.pipe.abort()
        await dropping

    live(story)


def test_more_new_topics_than_allowed_are_told_as_left_out() -> None:
    async def story(house: House) -> None:
        viewer = Viewer(house, prefix="p:")
        viewer.topics_max = 2
        viewer.open()
        for number in range(3):
            await house.append(f"p:{number}", b"1")
        await asyncio.sleep(1)
        assert sorted(viewer.heard(), key=str) == [("error", 429), ("record", 1), ("record", 1)]
        await house.engine.logs.drop("p:0", if_empty=False)
        assert viewer.heard() == [("topic-deleted", 1)]
        viewer.stream.connection_lost(None)
        viewer.open()
        await asyncio.sleep(1)
        assert ("record", 1) in viewer.heard(), "now there is room for the third"

    live(story)


def test_many_watchers_share_one_encoding() -> None:
    """Whoever has caught up is written to together with whoever is at the same place."""

    async def story(house: House) -> None:
        await house.append("t", b"1")
        viewers = [Viewer(house, "t") for _ in range(600)]
        for viewer in viewers:
            viewer.open()
        await asyncio.sleep(1)
        (channel,) = house.hub._channels.values()
        assert sorted(map(len, channel._cohorts)) == [88, COHORT_MAX, COHORT_MAX]
        with mock.patch.object(
            EventView, "encode", autospec=True, side_effect=EventView.encode
        ) as encode:
            await house.append("t", b"2")
            await asyncio.sleep(1)
        assert encode.call_count == 1
        assert all(viewer.heard()[-1] == ("record", 2) for viewer in viewers)

    live(story)


def test_who_wants_nothing_of_a_batch_is_not_looked_at() -> None:
    """However many there are with selectors of their own."""

    async def story(house: House) -> None:
        await house.put("t")
        tags = [f"x{number}" for number in range(50)]
        viewers = [Viewer(house, "t", seen=look(ColumnSelector(match=TagEq(tag)))) for tag in tags]
        for viewer in viewers:
            viewer.open()
        await asyncio.sleep(1)
        for viewer in viewers:
            viewer.heard()
        with mock.patch.object(Channel, "_step", autospec=True, side_effect=Channel._step) as step:
            await house.append("t", b"1", b"2", b"3", tags=["x7", "y", "x9"])
            await asyncio.sleep(1)
        assert step.call_count == 2
        heard = [viewer.heard() for viewer in viewers]
        assert [at for at in range(50) if heard[at] == [("record", 3)]] == [7, 9]
        assert all(f.position == 3 for viewer in viewers for f in viewer.stream.followers)
        await asyncio.sleep(BEAT_S + 2 * WHEEL_TICK_S)
        assert [viewer.heard() for viewer in viewers].count([("caught-up", 3)]) == 48
        viewers[0].stream.connection_lost(None)
        viewers[0].open()
        await house.append("t", b"4", tags=["x0"])
        await house.append("t", b"5", tags=["x9"])
        await house.engine.deleter.delete("t", 6, TagEq("x9"))
        await house.append("t", b"6", tags=["x9"])
        await asyncio.sleep(1)
        assert ("record", 4) in viewers[0].heard()
        assert viewers[9].heard()[-1] == ("record", 6)
        for viewer in viewers:
            viewer.stream.connection_lost(None)
        await asyncio.sleep(1)
        assert (len(house.hub), len(house.wheel)) == (0, 0)

    live(story)


def test_who_was_blocked_is_not_served_by_what_an_index_found_for_the_others() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        viewers = [Viewer(house, "t", seen=look(ColumnSelector(match=TagEq("x")))) for _ in "ab"]
        for viewer in viewers:
            viewer.open()
        await asyncio.sleep(1)
        viewers[1].pipe.choke()
        await house.append("t", b"1", tags=["x"])
        await asyncio.sleep(1)
        house.engine.live("t").listen(viewers[1].pipe.drain)  # comes back in time for the next
        await house.append("t", b"2", tags=["x"])
        await asyncio.sleep(1)
        assert viewers[0].heard() == [("caught-up", 0), ("record", 1), ("record", 2)]
        records = [one.event.data["records"] for one in viewers[1].pipe.heard[1:]]
        assert [record["$seq"] for some in records for record in some] == [1, 2]

    with mock.patch("headrace.delivery.channel.INDEXED_COHORTS_MIN", 1):
        live(story)


def test_followers_wait_while_there_is_no_room() -> None:
    async def story(house: House) -> None:
        await house.put("t", cap_records=1)
        await house.append("t", b"1")
        disk = house.engine.journal._disk
        assert isinstance(disk, HostileDisk)
        full = True

        def watch(number: int, called: str, path: str) -> None:
            if called == "append" and full:
                disk.faults[number] = errno.ENOSPC

        disk.before = watch
        writing = asyncio.create_task(house.append("t", b"2"))
        await asyncio.sleep(1)
        viewer = Viewer(house, "t")
        viewer.open()
        await asyncio.sleep(1)
        assert viewer.heard() == []  # what was pushed out is not for certain
        full = False
        await writing
        await asyncio.sleep(1)
        heard = viewer.heard()
        assert heard == [("tombstone", "from_seq_too_old"), ("record", 2), ("caught-up", 2)]

    live(story)


def test_that_a_topic_is_deleted_is_said_when_that_is_durable() -> None:
    async def story(house: House) -> None:
        await house.put("t")
        viewer = Viewer(house, "t")
        viewer.open()
        await asyncio.sleep(1)
        viewer.pipe.heard.clear()
        dropping = asyncio.create_task(house.engine.logs.drop("t", if_empty=False))
        journal = house.engine.journal
        while not viewer.pipe.heard:  # noqa: ASYNC110
            await asyncio.sleep(SYNC_S / 10)
        assert viewer.pipe.heard[0].event.name == "topic-deleted"
        assert journal.synced == journal.tail
        await dropping

    live(story)
