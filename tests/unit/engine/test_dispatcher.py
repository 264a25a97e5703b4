"""The dispatcher of a queue: windows, workers who stay, time, and what fails too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

import msgspec
import pytest

from headrace.core.config import Discard, Durability, Kind, LogConfig
from headrace.core.entry import Claim, Start
from headrace.core.errors import Code, Refused
from headrace.core.limits import SEVERE_TICKS
from headrace.core.read import Slice
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.ports import Pool
from headrace.engine.queues.dead_letters import Redriven
from headrace.engine.queues.jobs import Claimed, Queues
from headrace.engine.start import Started
from headrace.engine.timings import Timings
from headrace.engine.upkeep.cycle import UpkeepPace
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.inline_ports import Inline
from support.virtual import VirtualClock, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")
Story = Callable[["Shop"], Coroutine[Any, Any, None]]


class Shop:
    """One engine with one queue."""

    def __init__(self, started: Started, loop: VirtualLoop, disk: HostileDisk) -> None:
        self.started = started
        self.engine: Engine = started.engine
        self.queues: Queues = started.engine.queues
        self.loop = loop
        self.disk = disk

    async def open(self, jobs: int = 0, **config: object) -> OpenLog:
        await self.engine.logs.put("q", "topics", LogConfig(kind=Kind.QUEUE, **config))  # type: ignore[arg-type]
        if jobs:
            await self.add(jobs)
        return self.engine.live("q")

    async def add(self, jobs: int, name: str = "q", **how: object) -> None:
        drafts = draft([b'{"n":%d}' % n for n in range(jobs)], keys=how.pop("keys", None))  # type: ignore[arg-type]
        await self.engine.appender.append(name, drafts, owner="topics", create=LogConfig(), **how)  # type: ignore[arg-type]

    async def claim(self, node: str, wanted: int = 1, lease_ms: int | None = None) -> list[int]:
        return seqs_of(await self.queues.claim("q", node, wanted, lease_ms, Timings()))

    async def ack(self, node: str, *seqs: int) -> list[int]:
        return (await self.queues.ack("q", node, seqs, None, Timings())).held

    async def nack(self, node: str, *seqs: int, delay_ms: int = 0) -> list[int]:
        return (await self.queues.nack("q", node, seqs, None, delay_ms)).held

    async def redrive(
        self, name: str, count_max: int, to: str | None = None, asked: list[str] | None = None
    ) -> Redriven:
        note = ([] if asked is None else asked).append
        return await self.queues.redrive(name, count_max, to, note, owner="topics")

    def count(self) -> tuple[int, int, int]:
        counters = self.queues.count(self.engine.live("q"))
        return counters.ready, counters.in_flight, counters.dead_lettered

    async def read(self, name: str) -> list[tuple[bytes, bytes | None]]:
        page = await self.engine.reader.read(
            self.engine.live(name), 0, records_max=99, bytes_max=1 << 20
        )
        return [
            (piece.block.data_at(at), piece.block.metas[at] if piece.block.metas else None)
            for piece in page.slices
            for at in piece.picks
        ]


def seqs_of(claimed: Claimed) -> list[int]:
    return [piece.block.seq_at(at) for piece in claimed.jobs for at in piece.picks]


class Hand:
    """A worker without a connection."""

    def __init__(self, shop: Shop, node: str, depth: int = 1, lease_ms: int | None = None) -> None:
        self.node = node
        self.depth = depth
        self.lease_ms = lease_ms
        self.held: dict[int, int] = {}
        self.blocked = False
        self.got: list[list[int]] = []
        self.dismissed: Refused | None = None
        self.paced = 0
        self._dispatcher = shop.queues.dispatcher(shop.queues.find("q"))
        self._dispatcher.join(self)

    def give(self, live: OpenLog, claim: Claim, jobs: list[Slice]) -> None:
        seqs = [piece.block.seq_at(at) for piece in jobs for at in piece.picks]
        assert len(self.held) <= self.depth
        assert set(seqs) <= self.held.keys()
        self.got.append(seqs)

    def on_throttled(self) -> None:
        self.paced += 1

    def close(self, refused: Refused) -> None:
        self.dismissed = refused
        self.leave()

    def leave(self) -> None:
        self._dispatcher.leave(self)

    def wake(self) -> None:
        self.blocked = False
        self._dispatcher.schedule()


@pytest.fixture
def tell() -> Iterator[Callable[[Story], None]]:
    loop = VirtualLoop()

    def run(story: Story, caps: Caps | None = None, pool: Pool | None = None) -> None:
        disk = HostileDisk()

        async def live() -> None:
            clock = VirtualClock(loop)
            started = await boot(
                disk,
                clock,
                caps=caps or Caps(),
                pace=UpkeepPace(),
                pool=pool,
                delay_s=lambda: 0.005,
            )
            await story(Shop(started, loop, disk))

        loop.run(live())
        assert loop.complaints == []

    yield run
    loop.close()


Tell = Callable[..., None]


class SlowPool(Inline):
    """Reading takes a while."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0.01)
        return await super().run(work, *args, **kwargs)


async def seal(shop: Shop) -> None:
    """Let what was written so far leave memory."""
    shop.started.upkeep.close_file()
    await shop.started.upkeep.checkpoint()
    live = shop.engine.live("q")
    assert live.tail.start == live.log.head + 1, "still in memory"


async def soon() -> None:
    """Let everything happen that can happen now."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- the window ----------------------------------------------------------------------------------


def test_a_window_shares_among_all_who_come_within_it(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=50, claim_jitter_ms=100)
        began = shop.loop.time()
        hands = await asyncio.gather(*(shop.claim(f"w{at}", 10) for at in range(10)))
        assert [len(hand) for hand in hands] == [5] * 10
        assert shop.loop.time() == began + 0.1

    tell(story)


def test_a_window_closes_early_once_the_regulars_are_there_and_nobody_goes_short(
    tell: Tell,
) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=20, claim_jitter_ms=1000)
        await asyncio.gather(shop.claim("a"), shop.claim("b"))
        began = shop.loop.time()
        first = asyncio.ensure_future(shop.claim("a"))
        await asyncio.sleep(0.2)
        assert not first.done(), "b is expected"
        assert sorted(await shop.claim("b") + await first) == [3, 4]
        assert shop.loop.time() == began + 0.2
        began = shop.loop.time()
        await asyncio.gather(shop.claim("a", 10), shop.claim("b", 10))
        assert shop.loop.time() == began + 1.0, "there was not enough for both"

    tell(story)


def test_the_first_window_lasts(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=5, claim_jitter_ms=50)
        began = shop.loop.time()
        assert await shop.claim("a", 2) == [1, 2]
        assert shop.loop.time() == began + 0.05
        assert await shop.claim("a", 2) == [3, 4]
        assert shop.loop.time() == began + 0.05, "nobody else is known"

    tell(story)


def test_who_gave_up_in_a_window_gets_nothing(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, claim_jitter_ms=50)
        patient = asyncio.ensure_future(shop.claim("patient", 2))
        hasty = asyncio.ensure_future(shop.claim("hasty", 2))
        await asyncio.sleep(0.01)
        hasty.cancel()
        assert await patient == [1, 2]

    tell(story)


def test_a_queue_that_goes_away_ends_the_wait(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(claim_jitter_ms=500)
        waiting = asyncio.ensure_future(shop.claim("w"))
        await asyncio.sleep(0.01)
        await shop.engine.logs.drop("q", if_empty=False, owner="topics")
        with pytest.raises(Refused) as refusal:
            await waiting
        assert refusal.value.code is Code.LOG_NOT_FOUND

    tell(story)


# --- workers who stay ----------------------------------------------------------------------------


def test_a_worker_is_kept_busy(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=4)
        hand = Hand(shop, "w", depth=2)
        await soon()
        assert hand.got == [[1, 2]]
        await shop.ack("w", 1)
        await soon()
        assert hand.got == [[1, 2], [3]]
        await shop.nack("w", 2)
        await soon()
        assert hand.got[-1] == [2], "a returned job comes first"
        await shop.ack("w", 2, 3)
        await soon()
        assert hand.got[-1] == [4]
        await shop.add(1)
        await soon()
        assert hand.got[-1] == [5]

    tell(story)


def test_workers_share_what_comes(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open()
        hands = [Hand(shop, node, depth=3) for node in "abc"]
        await shop.add(6)
        await soon()
        assert [len(hand.held) for hand in hands] == [2, 2, 2]
        await shop.add(1)
        await soon()
        assert sorted(len(hand.held) for hand in hands) == [2, 2, 3]

    tell(story)


def test_workers_and_claimers_share_a_window(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(claim_jitter_ms=100)
        hand = Hand(shop, "stays", depth=10)
        asks = asyncio.ensure_future(shop.claim("asks", 10))
        await shop.add(6)
        assert len(await asks) == 3
        await soon()
        assert len(hand.held) == 3

    tell(story)


def test_time_brings_jobs_without_anybody_asking(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open()
        hand = Hand(shop, "w", lease_ms=1000)
        now_ms = shop.engine.clock.now_ms()
        await shop.add(1, due_ms=[now_ms + 500])
        await asyncio.sleep(0.4)
        assert hand.got == []
        await asyncio.sleep(0.2)
        assert hand.got == [[1]]
        await asyncio.sleep(0.9)
        assert hand.got == [[1]]
        await asyncio.sleep(0.2)
        assert hand.got == [[1], [1]], "its lease was over"
        await shop.nack("w", 1, delay_ms=300)
        await asyncio.sleep(0.4)
        assert hand.got == [[1]] * 3

    tell(story)


def test_a_worker_who_leaves_gives_back_what_he_got_here_and_nothing_else(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=4)
        assert await shop.claim("w") == [1]
        hand = Hand(shop, "w", depth=3)
        await soon()
        assert hand.got == [[2, 3, 4]]
        await shop.ack("w", 3)
        await shop.nack("w", 4)
        hand.blocked = True  # takes nothing more
        await soon()
        assert await shop.claim("w", 1) == [4], "the same worker, elsewhere"
        hand.leave()
        assert shop.count() == (1, 2, 0)
        assert await shop.ack("w", 1, 2, 4) == [1, 4]

    tell(story)


def test_the_jobs_of_a_worker_who_leaves_go_to_the_others(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=1)
        first = Hand(shop, "first")
        await soon()
        second = Hand(shop, "second")
        await soon()
        assert (first.got, second.got) == ([[1]], [])
        first.leave()
        await soon()
        assert second.got == [[1]]

    tell(story)


def test_a_blocked_worker_is_left_alone(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open()
        hand = Hand(shop, "w")
        hand.blocked = True
        await shop.add(1)
        await soon()
        assert shop.count() == (1, 0, 0)
        hand.wake()
        await soon()
        assert hand.got == [[1]]

    tell(story)


def test_a_deleted_job_gives_room_for_another(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2)
        hand = Hand(shop, "w")
        await soon()
        await shop.engine.deleter.delete("q", 2, None)
        await soon()
        assert hand.got == [[1], [2]]

    tell(story)


def test_workers_are_dismissed_when_their_queue_goes(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=1)
        hand = Hand(shop, "w")
        await soon()
        dropping = asyncio.ensure_future(shop.engine.logs.drop("q", if_empty=False, owner="topics"))
        await soon()
        assert hand.dismissed is None, "told before it is durable"
        await dropping
        await soon()
        assert hand.dismissed is not None
        assert hand.dismissed.code is Code.LOG_NOT_FOUND

    tell(story)


def test_workers_are_dismissed_when_nothing_can_be_written(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        live = await shop.open(jobs=1)
        hand = Hand(shop, "w")
        shop.engine.journal._fail(OSError("broken"))
        await soon()
        assert hand.dismissed is not None
        assert hand.dismissed.code is Code.READ_ONLY
        assert not live.listeners

    tell(story)


def test_workers_of_a_queue_that_can_wait_are_told_once(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(priority=-1)
        hand = Hand(shop, "w", depth=9)
        await soon()
        for _ in range(SEVERE_TICKS):
            shop.engine.scheduler.feel(lag_ms=100)
        await shop.add(1)
        await shop.add(1)
        await soon()
        assert (hand.paced, hand.got) == (1, [])
        while shop.engine.scheduler.pressure.severe:
            shop.engine.scheduler.feel(lag_ms=0)
        await asyncio.sleep(1)
        assert hand.got == [[1, 2]]

    tell(story)


def test_a_desk_that_nobody_stays_at_costs_nothing(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        live = await shop.open(jobs=1)
        hand = Hand(shop, "w", lease_ms=1000)
        await soon()
        hand.leave()
        assert not live.listeners
        await shop.add(5)
        assert live.dispatcher is not None
        assert (live.dispatcher._timer, live.dispatcher._scheduled) == (None, None)

    tell(story)


# --- durability ----------------------------------------------------------------------------------


def test_only_durable_leases_wait_for_a_sync(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2)
        journal = shop.engine.journal
        await shop.claim("w")
        assert journal.synced < journal.tail
        await shop.engine.logs.put(
            "q", "topics", LogConfig(kind=Kind.QUEUE, leases_durable=True, lease_ms=60_000)
        )
        await shop.claim("w")
        assert journal.synced == journal.tail
        await shop.nack("w", 2)
        assert journal.synced == journal.tail
        hand = Hand(shop, "v", depth=1)
        await soon()
        assert hand.got == [], "not before it is durable"
        await asyncio.sleep(0.01)
        assert hand.got == [[2]]

    tell(story)


def test_an_ack_is_as_durable_as_the_queue(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, durability=Durability.FSYNC)
        await shop.claim("w", 2)
        journal = shop.engine.journal
        await shop.ack("w", 1)
        assert journal.synced == journal.tail
        acked = asyncio.ensure_future(shop.ack("w", 2))
        await asyncio.sleep(0)
        assert await shop.ack("w", 2) == []
        assert journal.synced == journal.tail, "who is told that it is gone is told the truth"
        assert acked.done()

    tell(story)


@pytest.mark.parametrize("how", ["asks", "waits in a window", "stays"])
@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK])
def test_the_next_of_a_group_goes_when_the_end_of_the_last_one_stays(
    tell: Tell, durability: Durability, how: str
) -> None:
    """A crash must not bring back a job when somebody already has the one behind it."""

    async def story(shop: Shop) -> None:
        live = await shop.open(durability=durability)
        await shop.add(2, keys=["a", "a"])
        assert await shop.claim("w") == [1]
        if how == "waits in a window":
            live.log.config = msgspec.structs.replace(live.log.config, claim_jitter_ms=1)
        journal = shop.engine.journal
        await journal.wait_synced(journal.tail)
        # While a sync runs, nothing is even written.
        shop.engine.commit([Start(0, "")], sync=True)
        await soon()
        acking = asyncio.ensure_future(shop.ack("w", 1))
        await asyncio.sleep(0)
        acked = journal.tail
        assert journal.written < acked
        if how == "stays":
            hand = Hand(shop, "v")
            while not hand.got:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert hand.got == [[2]]
        else:
            assert await shop.claim("v") == [2]
        assert acked <= (journal.synced if durability is Durability.FSYNC else journal.written)
        assert await acking == [1]

    tell(story)


def test_other_jobs_do_not_wait_for_acks(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, durability=Durability.FSYNC)
        await shop.claim("w")
        journal = shop.engine.journal
        acking = asyncio.ensure_future(shop.ack("w", 1))
        await asyncio.sleep(0)
        assert await shop.claim("v") == [2]
        assert journal.synced < journal.tail
        await acking

    tell(story)


def test_an_ack_that_must_measure_first_acks_only_what_is_still_held(tell: Tell) -> None:
    """The same worker gets the job again meanwhile: the token of the first delivery is stale."""

    async def story(shop: Shop) -> None:
        live = await shop.open(jobs=3)
        await seal(shop)
        assert await shop.claim("w", 2) == [1, 2]
        fences = [live.log.jobs.leases[seq].fence for seq in (1, 2)]
        acking = asyncio.ensure_future(shop.queues.ack("q", "w", [1, 2], fences, Timings()))
        await asyncio.sleep(0.001)
        await shop.nack("w", 1)
        assert await shop.claim("w", 1) == [1]
        done = await acking
        assert (done.held, done.skipped) == ([2], [1])
        assert shop.count() == (1, 1, 0)

    tell(story, caps=Caps(tail_bytes=0), pool=SlowPool())


# --- dead letters --------------------------------------------------------------------------------


async def fail(shop: Shop, *seqs: int) -> None:
    """Claim these jobs, which are next, and give them back."""
    assert await shop.claim("w", len(seqs)) == [*seqs]
    await shop.nack("w", *seqs)


def test_a_dead_letter_is_moved_whole(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, max_deliveries=1, dead_letter="dlq")
        await fail(shop, 1)
        assert await shop.claim("w") == [2]
        assert shop.count() == (0, 1, 1)
        (letter,) = await shop.read("dlq")
        assert letter == (
            b'{"n":0}',
            b'{"$dead_letter_from":"q","$dead_letter_deliveries":"1","$dead_letter_src_seq":"1"}',
        )

    tell(story)


def test_where_dead_letters_have_no_room_they_wait(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.engine.logs.put(
            "dlq", "topics", LogConfig(cap_records=1, discard=Discard.REJECT)
        )
        await shop.add(1, name="dlq")
        await shop.open(jobs=2, max_deliveries=1, dead_letter="dlq")
        await fail(shop, 1)
        assert await shop.claim("w") == [2]
        assert shop.count() == (1, 1, 0)
        await shop.engine.deleter.delete("dlq", 9, None)
        assert await shop.claim("w") == []
        assert shop.count() == (0, 1, 1)

    tell(story)


@pytest.mark.parametrize("config", [{"auto_create": False}, {}])
def test_where_dead_letters_have_no_place_they_wait(tell: Tell, config: dict[str, bool]) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=1, max_deliveries=1, dead_letter="dlq", **config)
        await fail(shop, 1)
        assert await shop.claim("w") == []
        assert shop.count() == (1, 0, 0)
        assert "dlq" not in shop.engine.state.by_name

    tell(story, caps=Caps(logs={"topics": 1}))


def test_a_dead_letter_lets_the_next_of_its_group_go_in_the_same_claim(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        for jitter_ms in (0, 20):
            await shop.open(max_deliveries=1, dead_letter="dlq", claim_jitter_ms=jitter_ms)
            await shop.add(3, keys=["a", "a", "a"])
            [first] = await shop.claim("w")
            await shop.nack("w", first)
            assert await shop.claim("w", 9) == [first + 1], "fewer than asked: there is no more"
            await shop.nack("w", first + 1)
            both = await asyncio.gather(shop.claim("v"), shop.claim("w"))
            assert sorted(both) == [[], [first + 2]]
            await shop.engine.deleter.delete("q", first + 3, None)

    tell(story)


def test_a_worker_waits_in_peace_for_room_for_dead_letters(tell: Tell) -> None:
    """Tried again, but not at once for ever: nothing else would happen."""

    async def story(shop: Shop) -> None:
        await shop.engine.logs.put(
            "dlq", "topics", LogConfig(cap_records=1, discard=Discard.REJECT)
        )
        await shop.add(1, "dlq")
        await shop.open(max_deliveries=1, dead_letter="dlq")
        await shop.add(2, keys=["a", "a"])
        await shop.nack("w", *await shop.claim("w"))
        tries = 0
        move = shop.queues._letters.move_spent

        async def counted(live: OpenLog, spent: list[int]) -> bool:
            nonlocal tries
            tries += 1
            assert tries < 99, "over and over"
            return await move(live, spent)

        shop.queues._letters.move_spent = counted  # type: ignore[method-assign]
        hand = Hand(shop, "w")
        await asyncio.sleep(10)
        assert tries > 5
        assert hand.got == []
        await shop.engine.deleter.delete("dlq", 2, None)
        await asyncio.sleep(2)
        assert hand.got == [[2]], "what stood before it is gone"

    tell(story)


def test_many_dead_letters_without_room_hold_nobody_up(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.engine.logs.put(
            "dlq", "topics", LogConfig(cap_records=1, discard=Discard.REJECT)
        )
        await shop.add(1, "dlq")
        await shop.open(jobs=600, max_deliveries=2, dead_letter="dlq")
        for _ in range(2):
            assert len(await shop.claim("w", 600)) == 600
            await shop.nack("w", *range(1, 601))
        await shop.add(1)
        assert await shop.claim("w") == [601]
        await shop.nack("w", 601)
        assert await shop.claim("w") == [601], "once more, as it is allowed to"

    tell(story)


def test_a_claim_finds_the_job_behind_many_dead_letters(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=600, max_deliveries=1, dead_letter="dlq")
        claimed = await shop.claim("w", 600)
        await shop.nack("w", *claimed)
        assert await shop.claim("w", 10) == []
        assert shop.count() == (0, 0, 600)
        assert shop.engine.live("dlq").log.count == 600

    tell(story)


def test_dead_letters_hold_nobody_up_who_gets_enough(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=600, max_deliveries=1, dead_letter="dlq")
        await shop.nack("w", *await shop.claim("w", 600))
        await shop.add(1)
        assert await shop.claim("w") == [601]
        assert 0 < shop.count()[2] < 600, "the others wait for the next claim"

    tell(story)


def test_a_dead_letter_that_is_read_from_a_segment_is_moved_once(tell: Tell) -> None:
    """Its payload must be fetched first, and others ask meanwhile."""

    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, max_deliveries=1, dead_letter="dlq")
        await shop.add(20)
        await seal(shop)
        await fail(shop, 1, 2)
        hands = await asyncio.gather(*(shop.claim(node, 2) for node in "abc"))
        assert sorted(seq for hand in hands for seq in hand) == [3, 4, 5, 6, 7, 8]
        assert len(await shop.read("dlq")) == 2
        assert shop.count()[2] == 2

    tell(story, caps=Caps(tail_bytes=0), pool=SlowPool())


def test_who_waits_hears_of_a_segment_that_cannot_be_read(
    tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, max_deliveries=1, dead_letter="dlq")
        await seal(shop)
        await fail(shop, 1)
        await shop.engine.logs.put(
            "q",
            "topics",
            LogConfig(kind=Kind.QUEUE, max_deliveries=1, dead_letter="dlq", claim_jitter_ms=10),
        )
        shop.engine.segments.read = broken  # type: ignore[method-assign]
        with pytest.raises(OSError, match="broken"):
            await shop.claim("w", 2)
        assert shop.count() == (2, 0, 0), "both are where they were"

    def broken(*_: object) -> None:
        raise OSError("broken")

    tell(story, caps=Caps(tail_bytes=0))
    assert "could not be handed out" in caplog.text


# --- and back ------------------------------------------------------------------------------------


def test_a_redrive_sends_back_what_it_can(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2, max_deliveries=1, dead_letter="dlq")
        await fail(shop, 1, 2)
        await shop.claim("w", 2)
        await shop.add(1, name="dlq")  # nobody knows where this one belongs
        asked: list[str] = []
        done = await shop.redrive("dlq", 100, None, asked)
        assert (done.redriven, done.skipped, done.left, asked) == (2, 1, 1, ["q"])
        assert await shop.claim("w", 9) == [3, 4]
        assert [meta for _, meta in await shop.read("q")] == [None, None]
        assert shop.engine.live("q").log.jobs.deliveries == {3: 1, 4: 1}

    tell(story)


def test_a_redrive_of_many_looks_past_those_that_stay(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.add(1500, name="dlq")
        await shop.open(jobs=1, max_deliveries=1, dead_letter="dlq")
        await fail(shop, 1)
        await shop.claim("w")
        done = await shop.redrive("dlq", 1)
        assert (done.redriven, done.skipped, done.left) == (1, 1500, 1500)

    tell(story)


def test_a_redrive_leaves_alone_what_somebody_works_on(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=2)
        await shop.engine.logs.put("other", "topics", LogConfig(kind=Kind.QUEUE))
        assert await shop.claim("doctor") == [1]
        done = await shop.redrive("q", 9, "other")
        assert (done.redriven, done.skipped, done.left) == (1, 1, 1)
        assert await shop.ack("doctor", 1) == [1]

    tell(story)


def test_a_redrive_needs_a_queue_to_go_to(tell: Tell) -> None:
    async def story(shop: Shop) -> None:
        await shop.open(jobs=1)
        await shop.add(1, name="log")
        for to, code in (("log", Code.NOT_A_QUEUE), ("nowhere", Code.LOG_NOT_FOUND)):
            with pytest.raises(Refused) as refusal:
                await shop.redrive("q", 9, to)
            assert refusal.value.code is code
        assert shop.count() == (1, 0, 0)

    tell(story)
