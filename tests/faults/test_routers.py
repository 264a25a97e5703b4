"""Routers on a whole engine: what is forwarded when, what readers see, what a crash leaves."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from itertools import chain
from typing import ParamSpec, TypeVar
from unittest import mock

import msgspec
import pytest

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.limits import CATCH_UP_S
from headrace.core.match import TagEq
from headrace.core.read import Gap, Loss
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.routers.control import RouterPlan
from headrace.engine.start import Started, stop
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import View, boot, go_on, view
from support.hostile import HostileDisk
from support.inline_ports import Inline
from support.virtual import VirtualClock, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")

EPHEMERAL, MEMORY, DISK, FSYNC = Durability
ROOMY = UpkeepPace(seal_bytes=1 << 20, disk_sync_ms=200)


class Server:
    """A life of an engine, and what users do with it in a word."""

    def __init__(self, started: Started, disk: HostileDisk, clock: VirtualClock) -> None:
        self.started = started
        self.engine = started.engine
        self.disk = disk
        self._clock = clock
        self._sent = 0

    @classmethod
    async def start(
        cls, loop: VirtualLoop, *, caps: Caps | None = None, pace: UpkeepPace = ROOMY, **how: object
    ) -> Server:
        disk, clock = HostileDisk(), VirtualClock(loop)
        caps = caps or Caps(tail_bytes=1 << 20)
        return cls(await boot(disk, clock, caps=caps, pace=pace, **how), disk, clock)  # type: ignore[arg-type]

    async def killed(self) -> Server:
        """The next life, after the process was killed."""
        disk = self.disk.copy().kill()
        findings = Verification(disk.copy().kill()).run()
        assert [str(found) for found in findings if isinstance(found, Problem)] == []
        return Server(await boot(disk, self._clock, pace=ROOMY), disk, self._clock)

    async def log(self, name: str, **config: object) -> None:
        await self.engine.logs.put(name, "topics", LogConfig(**config))  # type: ignore[arg-type]

    async def append(self, name: str, count: int = 1, **columns: object) -> list[bytes]:
        datas = [b'{"n":%d}' % (self._sent + at + 1) for at in range(count)]
        self._sent += count
        drafts = draft(datas, **columns)  # type: ignore[arg-type]
        await self.engine.appender.append(name, drafts, owner="topics", create=LogConfig())
        return datas

    async def route(
        self, source: str, dest: str, after: int | None = None, name: str = "", **rule: object
    ) -> None:
        plan = RouterPlan(source, dest, Rule(**rule), after=after)  # type: ignore[arg-type]
        await self.engine.routers.put(name or f"{source}->{dest}", plan, "topics")

    async def view(self, name: str) -> View:
        return await view(self.engine, name)

    async def data(self, name: str) -> list[bytes]:
        return [record.data for record in (await self.view(name)).records.values()]

    def shown(self, name: str) -> int:
        """How far readers would see now, were nothing done for them."""
        return self.engine.live(name).visible

    def journal(self) -> bytes:
        return b"".join(
            self.disk.read(f"journal/{name}") for name in sorted(self.disk.list("journal"))
        )


def test_copies_come_by_themselves(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        sent = await server.append("a", 3)
        await asyncio.sleep(0.01)
        assert server.shown("b") == 3
        assert await server.data("b") == sent

    loop.run(story())


@pytest.mark.parametrize("source", Durability)
@pytest.mark.parametrize("dest", Durability)
def test_a_reader_sees_what_was_acknowledged_before(
    loop: VirtualLoop, source: Durability, dest: Durability
) -> None:
    async def story() -> None:
        server = await Server.start(loop, delay_s=lambda: 0.001)
        await server.log("a", durability=source)
        await server.log("b", durability=dest)
        await server.log("c", durability=source)
        await server.route("a", "b")
        await server.route("b", "c")
        sent: list[bytes] = []
        for count in (1, 3, 2):
            sent += await server.append("a", count)
            assert await server.data("c") == sent
            assert await server.data("b") == sent

    loop.run(story())


def test_a_payload_is_journaled_once_however_many_copies_there_are(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        for number in range(20):
            await server.route("a", f"b{number}")
        await server.route("b7", "c", exactly_once=True)
        frames = server.engine.journal.stats.frames
        (sent,) = await server.append("a", 1)
        assert await server.data("c") == [sent]
        await asyncio.sleep(0.01)
        assert server.journal().count(sent) == 1
        assert server.engine.journal.stats.frames - frames <= 4
        again = await server.killed()
        for name in ("b0", "b19", "c"):
            assert await again.data(name) == [sent]

    loop.run(story())


def test_a_file_that_ends_between_record_and_copy(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("b", discard=Discard.REJECT, cap_records=1)
        await server.append("b")
        await server.route("a", "b")
        (sent,) = await server.append("a")
        server.started.upkeep.close_file()
        await server.engine.deleter.delete("b", 2, None)
        assert await server.data("b") == [sent]
        assert server.journal().count(sent) == 2
        assert await (await server.killed()).data("b") == [sent]
        await server.started.upkeep.checkpoint()
        assert await (await server.killed()).data("b") == [sent]

    loop.run(story())


def test_a_start_does_not_part_a_forward_from_its_records(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        sent = await server.append("a", 2)
        await server.engine.journal.wait_synced(server.engine.journal.tail)
        sent += await server.append("a", 2)
        assert await server.data("b") == sent
        for _ in range(3):
            server = await server.killed()
            assert await server.data("b") == sent
            sent += await server.append("a", 1)
            assert await server.data("b") == sent

    loop.run(story())


def test_a_start_does_not_part_a_sealed_forward_from_its_records(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("a", durability=FSYNC)
        await server.log("b", durability=FSYNC)
        await server.route("a", "b")
        upkeep = server.started.upkeep
        await upkeep.snapshot()
        sent = await server.append("a")
        assert await server.data("b") == sent
        # The newest snapshot and a segment know all of it: nobody reads the forward at a start.
        await asyncio.gather(upkeep.seal(), upkeep.checkpoint())
        await upkeep.snapshot()
        server = await (await server.killed()).killed()
        server.disk.remove(f"snapshots/{server.disk.list('snapshots')[-1]}")
        assert await (await server.killed()).data("b") == sent

    loop.run(story())


def test_a_trim_by_age_does_not_part_a_forward_from_its_records(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop, forwarding=False)
        await server.log("b")
        await server.log("c", ttl_ms=1000)
        await server.append("c")
        await server.route("a", "b")
        await server.route("a", "c")
        await asyncio.sleep(2)
        sent = await server.append("a")
        # Whatever is written next ends the file.
        journal, upkeep = server.engine.journal, server.started.upkeep
        size_bytes = journal.tail - journal.file_start
        upkeep._pace = msgspec.structs.replace(ROOMY, seal_bytes=size_bytes + 1)
        go_on(server.started)
        await asyncio.sleep(0.01)
        again = await server.killed()
        assert [await again.data(name) for name in ("b", "c")] == [sent, sent]

    loop.run(story())


def test_a_full_destination_holds_its_router_back(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("b", discard=Discard.REJECT, cap_records=3)
        await server.route("a", "b")
        sent = await server.append("a", 8)
        await asyncio.sleep(5)
        assert await server.data("b") == sent[:3]
        assert server.engine.routers.get("a->b").inbound.cursor == 3
        await server.engine.deleter.delete("b", 3, None)
        await asyncio.sleep(0.01)
        assert await server.data("b") == sent[2:5]
        await server.log("b", discard=Discard.REJECT, cap_records=6)
        await asyncio.sleep(2)
        assert server.shown("b") == 8
        assert await server.data("b") == sent[2:]

    loop.run(story())


def test_what_a_source_loses_meanwhile_is_a_hole(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("a", cap_records=2)
        await server.log("b", discard=Discard.REJECT, cap_records=2)
        await server.route("a", "b")
        first = await server.append("a", 2)
        assert await server.data("b") == first
        late = await server.append("a", 5)
        await server.engine.deleter.delete("b", 100, None)
        found = await server.view("b")
        assert [record.data for record in found.records.values()] == late[3:]
        assert found.gaps == [Gap(3, 5, Loss.SOURCE_TRIM)]
        assert list(found.records) == [6, 7]
        again = await (await server.killed()).view("b")
        assert (again.gaps, again.records) == (found.gaps, found.records)

    loop.run(story())


def test_what_was_deleted_in_time_is_passed_in_silence(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("b", discard=Discard.REJECT, cap_records=1)
        await server.append("b")
        await server.route("a", "b")
        sent = await server.append("a", 3, tags=["x", "y", "x"])
        await server.engine.deleter.delete("a", None, TagEq("x"))
        await server.engine.deleter.delete("b", 100, None)
        found = await server.view("b")
        assert ([*found.records], found.gaps, found.records[2].data) == ([2], [], sent[1])

    loop.run(story())


def test_a_limit_of_the_whole_instance_holds_routers_back(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop, caps=Caps(total_bytes=150, tail_bytes=1 << 20))
        await server.route("a", "b")
        sent = await server.append("a", 4)
        assert await server.data("b") == sent[:2]
        await server.engine.deleter.delete("a", 3, None)
        await asyncio.sleep(2)
        assert await server.data("b") == sent

    loop.run(story())


def test_history_is_read_from_segments(loop: VirtualLoop) -> None:
    async def story() -> None:
        pace = UpkeepPace(seal_bytes=300, disk_sync_ms=200)
        server = await Server.start(loop, caps=Caps(tail_bytes=1), pace=pace)
        sent: list[bytes] = []
        for _ in range(20):
            sent += await server.append("a", 5)
            await server.started.upkeep.checkpoint()
        assert server.engine.live("a").tail.start > 50
        await server.route("a", "all", after=0)
        await server.route("a", "half", after=50)
        task = asyncio.create_task(server.engine.routers.forwarder.run())
        await asyncio.sleep(1)
        assert (server.shown("all"), server.shown("half")) == (100, 50)
        assert await server.data("all") == sent
        assert await server.data("half") == sent[50:]
        sent += await server.append("a", 1)
        assert await server.data("all") == sent
        assert await (await server.killed()).data("all") == sent
        task.cancel()

    loop.run(story())


def test_a_reader_that_came_first_does_not_leave_the_router_alone(loop: VirtualLoop) -> None:
    class Slow(Inline):
        """One reads for long; whoever comes meanwhile is faster."""

        def __init__(self) -> None:
            self.delays_s = [0.0]

        async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            result = work(*args, **kwargs)
            await asyncio.sleep(self.delays_s.pop() if len(self.delays_s) > 1 else 0.0)
            return result

    async def story() -> None:
        pace = UpkeepPace(seal_bytes=300, disk_sync_ms=200)
        pool = Slow()
        server = await Server.start(loop, caps=Caps(tail_bytes=1), pace=pace, pool=pool)
        for _ in range(20):
            await server.append("a", 5)
            await server.started.upkeep.checkpoint()
        task = asyncio.create_task(server.engine.routers.forwarder.run())
        pool.delays_s = [0.0, 1.0, 0.01, 0.1]
        await server.route("a", "b", after=0)
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.data("b")
        assert 0 < server.engine.routers.get("a->b").inbound.cursor < 100
        await asyncio.sleep(5)
        assert server.shown("b") == 100
        task.cancel()

    loop.run(story())


def test_a_reader_may_have_hold_of_a_log_that_is_gone(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.append("a", 3)
        await server.route("a", "b", after=0)
        live = server.engine.live("b")
        await server.engine.logs.drop("b", if_empty=False)
        await server.engine.routers.catch_up(live)

    loop.run(story())


def test_a_segment_that_cannot_be_read_is_tried_again(loop: VirtualLoop) -> None:
    async def story() -> None:
        pace = UpkeepPace(seal_bytes=300, disk_sync_ms=200)
        server = await Server.start(loop, caps=Caps(tail_bytes=1), pace=pace)
        sent: list[bytes] = []
        for _ in range(10):
            sent += await server.append("a", 5)
            await server.started.upkeep.checkpoint()
        broken = True

        def watch(number: int, kind: str, path: str) -> None:
            if broken and kind == "open_read":
                server.disk.faults[number] = errno.EIO

        server.disk.before = watch
        task = asyncio.create_task(server.engine.routers.forwarder.run())
        await server.route("a", "b", after=0)
        await asyncio.sleep(1)
        assert server.disk.faults, "nothing went wrong"
        assert await server.data("b") == []
        broken = False
        await asyncio.sleep(5)
        assert server.shown("b") == 50
        assert await server.data("b") == sent
        assert not task.done()
        task.cancel()

    loop.run(story())


def test_a_reader_does_not_wait_for_ever(loop: VirtualLoop) -> None:
    class Stuck:
        busy = 0.0
        stuck = False

        async def run(self, work: Callable[..., object], *args: object, **kw: object) -> object:
            if self.stuck:
                await asyncio.sleep(3600)
            return work(*args, **kw)

    async def story() -> None:
        pool = Stuck()
        pace = UpkeepPace(seal_bytes=100, disk_sync_ms=200)
        server = await Server.start(loop, caps=Caps(tail_bytes=1), pace=pace, pool=pool)
        for _ in range(9):
            await server.append("a", 3)
            await server.started.upkeep.checkpoint()
        await server.append("b", 1)
        pool.stuck = True
        await server.route("a", "b", after=0)
        began = loop.time()
        assert len(await server.data("b")) == 1
        assert CATCH_UP_S <= loop.time() - began < 3 * CATCH_UP_S

    loop.run(story())


def test_deleting_a_topic_ends_its_routers(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        for source, dest in (("a", "b"), ("b", "c"), ("b", "d")):
            await server.route(source, dest)
        sent = await server.append("a", 2)
        dropped = await server.engine.logs.drop("b", if_empty=False)
        assert dropped is not None
        assert dropped.routers == ["a->b", "b->c", "b->d"]
        assert len(server.engine.routers) == 0
        assert await server.data("c") == sent, "what was acknowledged before had to arrive"
        await server.append("a", 1)
        await server.append("b", 1)
        assert await server.data("c") == sent
        again = await server.killed()
        assert len(again.engine.routers) == 0
        assert await again.data("d") == sent

    loop.run(story())


def test_what_was_acknowledged_before_a_router_ends_or_changes_arrives(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        sent = {name: list[bytes]() for name in "bcde"}
        await server.log("e", durability=Durability.FSYNC)
        for dest in "bcde":
            await server.route("a", dest)
        for dest in "bcde":
            new = await server.append("a", 1)
            match dest:
                case "b":
                    await server.engine.routers.delete("a->b")
                case "c":
                    await server.route("a", "c", match=TagEq("other"))
                case "d":
                    await server.route("a", "x", name="a->d")
                case "e":
                    await server.engine.logs.drop("a", if_empty=False)
            for other in "bcde"["bcde".index(dest) :]:
                sent[other] += new
        for dest, want in sent.items():
            assert await server.data(dest) == want, dest
        again = await server.killed()
        for dest, want in sent.items():
            assert await again.data(dest) == want, dest

    loop.run(story())


def test_a_slow_store_does_not_leave_records_behind_when_a_router_ends(loop: VirtualLoop) -> None:
    """A read that takes longer than readers wait for routers, record after record."""

    class Slow:
        busy = 0.0
        delay_s = 0.0

        async def run(self, work: Callable[..., object], *args: object, **kw: object) -> object:
            await asyncio.sleep(self.delay_s)
            return work(*args, **kw)

    async def story() -> None:
        pool = Slow()
        pace = UpkeepPace(seal_bytes=100, disk_sync_ms=200)
        server = await Server.start(loop, caps=Caps(tail_bytes=1), pace=pace, pool=pool)
        sent: list[bytes] = []
        for _ in range(3):
            sent += await server.append("a", 3)
            await server.started.upkeep.checkpoint()
        await server.append("b", 1)
        await server.route("a", "b", after=0)
        pool.delay_s = 2 * CATCH_UP_S
        await server.engine.routers.delete("a->b")
        pool.delay_s = 0
        assert (await server.data("b"))[1:] == sent

    loop.run(story())


@pytest.mark.parametrize("end", ["drop", "delete"])
def test_what_is_acknowledged_while_a_router_ends_arrives(loop: VirtualLoop, end: str) -> None:
    async def story() -> None:
        server = await Server.start(loop, delay_s=lambda: 0.001)
        await server.log("b", durability=Durability.FSYNC)
        await server.route("a", "b")
        acked: list[bytes] = []
        first = server.engine.live("a")

        async def write() -> None:
            while (
                first.log.id in server.engine.open_logs and "a->b" in server.engine.routers._routers
            ):
                sent = await server.append("a", 1)
                if first.log.id in server.engine.open_logs and len(server.engine.routers):
                    acked.extend(sent)

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.0105)
        if end == "drop":
            await server.engine.logs.drop("a", if_empty=False)
        else:
            await server.engine.routers.delete("a->b")
        await writing
        assert len(acked) > 5
        assert (await server.data("b"))[: len(acked)] == acked

    loop.run(story())


def test_a_log_does_not_go_before_what_its_routers_have_to_bring(loop: VirtualLoop) -> None:
    """There is more than can be brought at once: who asks is told, and asks again."""

    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        await server.append("a", 40)
        with (
            mock.patch("headrace.core.route.FORWARD_RECORDS_MAX", 4),
            mock.patch("headrace.engine.routers.forwarding.FINISH_S", 0.0),
            mock.patch.object(server.engine.routers.forwarder, "catch_up", mock.AsyncMock()),
            pytest.raises(Refused) as refused,
        ):
            await server.engine.logs.drop("a", if_empty=False)
        assert refused.value.code is Code.THROTTLED
        assert await server.engine.logs.drop("a", if_empty=False) is not None
        assert len(await server.data("b")) == 40

    loop.run(story())


def test_two_that_end_routers_do_not_hold_each_other_up(loop: VirtualLoop) -> None:
    """Both wait to be admitted, and each finds the other there when its turn has come."""

    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        await server.route("c", "d")
        admission = server.engine.admission
        writing = [asyncio.create_task(server.append(name)) for name in "ac"]
        await asyncio.sleep(0)
        admission.room.clear()
        await asyncio.gather(*writing)
        ending = [
            asyncio.create_task(server.engine.routers.delete(name)) for name in ("a->b", "c->d")
        ]
        await asyncio.sleep(0.01)
        assert admission.parked == 2
        turns = chain(
            [admission.wait] * 5, [mock.Mock(side_effect=AssertionError("round and round"))]
        )
        with mock.patch.object(admission, "wait", lambda *args, **how: next(turns)(*args, **how)):
            admission.room.set()
            assert await asyncio.gather(*ending) == [True, True]
        assert [len(await server.data(name)) for name in "bd"] == [1, 1]

    loop.run(story())


def test_a_full_destination_does_not_keep_its_source_alive(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("b", cap_records=2, discard=Discard.REJECT)
        await server.route("a", "b")
        await server.append("a", 5)
        assert await server.engine.logs.drop("a", if_empty=False) is not None
        assert len(await server.data("b")) == 2

    loop.run(story())


def test_a_router_that_is_deleted_stops_at_once(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        sent = await server.append("a", 1)
        assert await server.data("b") == sent
        assert await server.engine.routers.delete("a->b")
        assert not await server.engine.routers.delete("a->b")
        await server.append("a", 1)
        await asyncio.sleep(1)
        assert await server.data("b") == sent
        assert not server.engine.live("a").listeners

    loop.run(story())


def test_pointing_a_router_elsewhere_begins_anew(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b", name="r")
        sent = await server.append("a", 1)
        assert await server.data("b") == sent
        await server.route("a", "c", name="r")
        more = await server.append("a", 1)
        assert await server.data("b") == sent
        assert await server.data("c") == more
        await server.route("x", "c", name="r")
        late = await server.append("x", 1)
        await server.append("a", 1)
        assert await server.data("c") == more + late
        router = server.engine.routers.get("r")
        assert (router.inbound.cursor, router.inbound.forwarded) == (1, 1)
        again = await server.killed()
        assert await again.data("c") == more + late

    loop.run(story())


def test_the_same_router_created_by_two_at_once(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop, delay_s=lambda: 0.01)
        plan = RouterPlan("a", "b", Rule())
        made = await asyncio.gather(
            *(server.engine.routers.put("r", plan, "topics") for _ in range(3))
        )
        assert made == [True, False, False]
        again = await server.killed()
        assert again.engine.routers.get("r").inbound.source == again.engine.live("a").log.id

    loop.run(story())


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_router_that_begins_again_from_the_start(loop: VirtualLoop, exactly_once: bool) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b", exactly_once=exactly_once)
        sent = await server.append("a", 4)
        assert await server.data("b") == sent
        await server.engine.deleter.delete("b", 2, None)
        server = await server.killed()
        await server.engine.routers.delete("a->b")
        await server.route("a", "b", after=0, exactly_once=exactly_once)
        found = await server.data("b")
        # The evidence is the copy itself: what was deleted there is brought again.
        assert found == (sent[1:] + sent[:1] if exactly_once else sent[1:] + sent)

    loop.run(story())


def test_mirrors_do_not_echo(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        await server.route("b", "c")
        with pytest.raises(Refused) as refused:
            await server.route("c", "a")
        assert refused.value.code is Code.ROUTER_CYCLE
        assert refused.value.detail["cycle"] == ["c", "a", "b", "c"]
        await server.route("c", "a", allow_cycle=True)
        sent = {name: await server.append(name, 2) for name in ("a", "b", "c")}
        server = await server.killed()
        for name in ("a", "b", "c"):
            sent[name] += await server.append(name, 1, nodes=[name])
        for name in ("a", "b", "c"):
            assert sorted(await server.data(name)) == sorted(chain.from_iterable(sent.values()))

    loop.run(story())


def test_stopping_brings_what_is_left(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("a", durability=EPHEMERAL)
        await server.route("a", "b")
        sent = await server.append("a", 3)
        await stop(server.started)
        again = await server.killed()
        assert again.started.recovered.clean
        assert await again.data("b") == sent
        assert (await again.view("b")).gaps == []

    loop.run(story())


def test_what_an_ephemeral_source_lost_is_a_hole(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("a", durability=EPHEMERAL)
        await server.log("b", discard=Discard.REJECT, cap_records=1)
        await server.route("a", "b")
        sent = await server.append("a", 2)
        assert await server.data("b") == sent[:1]
        server = await server.killed()
        await server.engine.deleter.delete("b", 2, None)
        lost = (await server.view("a")).gaps[0].last - 1
        found = await server.view("b")
        assert found.gaps == [Gap(2, 1 + lost, Loss.SOURCE_TRIM)]
        assert found.records == {}

    loop.run(story())


def test_an_ephemeral_destination_is_not_filled_twice(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.log("b", durability=EPHEMERAL)
        await server.route("a", "b")
        sent = await server.append("a", 3)
        assert await server.data("b") == sent
        server = await server.killed()
        more = await server.append("a", 1)
        found = await server.view("b")
        assert [record.data for record in found.records.values()] == more
        assert [gap.reason for gap in found.gaps] == [Loss.RESTART]

    loop.run(story())


def test_readers_go_on_when_nothing_can_be_written(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop)
        await server.route("a", "b")
        sent = await server.append("a", 2)
        assert await server.data("b") == sent

        def watch(number: int, kind: str, path: str) -> None:
            if kind == "append" and not server.disk.faults:
                server.disk.faults[number] = errno.EIO

        server.disk.before = watch
        with pytest.raises(Refused):
            await server.append("a", 1)
        await asyncio.sleep(3)
        assert await server.data("b") == sent
        with pytest.raises(Refused) as refused:
            await server.route("a", "c")
        assert refused.value.code is Code.READ_ONLY
        assert await (await server.killed()).data("b") == sent

    loop.run(story())


def test_a_file_is_closed_when_its_copies_would_fill_a_segment(loop: VirtualLoop) -> None:
    async def story() -> None:
        pace = UpkeepPace(seal_bytes=20_000, disk_sync_ms=200)
        server = await Server.start(loop, pace=pace)
        for number in range(50):
            await server.route("a", f"b{number}")
        await server.started.upkeep.checkpoint()
        rotations = server.engine.journal.stats.rotations
        for _ in range(10):
            await server.append("a", 4)
            await asyncio.sleep(0.01)
        assert server.engine.journal.stats.rotations > rotations
        await server.started.upkeep.checkpoint()
        sizes = [segment.record_bytes for segment in server.started.upkeep.manifest.segments]
        assert max(sizes) <= 2 * pace.seal_bytes
        again = await server.killed()
        assert len(await again.data("b49")) == 40

    loop.run(story())


def test_a_router_to_a_new_topic_needs_its_creation_to_be_synced(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await Server.start(loop, delay_s=lambda: 0.01)
        await server.append("a", 1)
        made = asyncio.create_task(server.route("a", "b", after=0))
        await asyncio.sleep(0.001)
        assert server.shown("b") == 0, "shown before the topic was there for certain"
        await made
        assert len(await server.data("b")) == 1

    loop.run(story())
