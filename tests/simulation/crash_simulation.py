"""Several lives of one engine: clients do as they like, crashes come at any time; no real time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, closing
from dataclasses import dataclass
from random import Random
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.match import TagEq, TagPrefix
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.routers.control import RouterPlan
from headrace.engine.start import Started, stop
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.storage.objects import LocalObjects, StoreError
from support.engine_harness import Record, boot, go_on, halt, small, view_all
from support.hostile import HARMLESS, Crash, HostileDisk, Survival
from support.oracle import Blow, History, Mark, judge
from support.rival import Rival
from support.virtual import Stuck, VirtualClock, VirtualLoop
from support.writers import LoopWriter, server_writer

from .shadow import WISH, Shadow, Wish
from .watchers import Gallery, Witness, hire

P = ParamSpec("P")
T = TypeVar("T")

EXPECTED = {
    Code.LOG_NOT_FOUND, Code.LOG_FULL, Code.READ_ONLY, Code.THROTTLED, Code.SHUTTING_DOWN,
    Code.ROUTER_CYCLE, Code.LOG_INCOMPATIBLE, Code.STORAGE_UNAVAILABLE,
}  # fmt: skip
NAMES = ("a", "b", "c", "d")
TAGS = ("x", "xy", "z")
CLIENTS = 5
LIVES = 5
LIFE_S = 8.0
SETTLE_S = 3.0
"""Longer than a router whose destination is full waits before it tries again."""
WATCH_S = 12.0
"""Longer than a watcher looks away."""
PADS: tuple[Callable[[Random], int], ...] = (
    *[lambda random: random.randrange(30)] * 40,
    lambda random: random.randrange(500),
    lambda random: random.randrange(4000),
)
"""How long records are: a few are above all budgets of memory, pages, frames and files."""
LIMITS = {
    "headrace.engine.logs.reader.READ_SCANNED_MAX": 5,
    "headrace.engine.routers.steps.FORWARD_FRAME_BYTES": 500,
    "headrace.engine.flow.admission.JOURNAL_PENDING_BYTES_MAX": 4000,
    "headrace.formats.segment.ROW_GROUP_ROWS": 16,
    "headrace.formats.segment.ROW_GROUP_BYTES": 2000,
    "headrace.delivery.channel.FRAMES_KEPT": 1,
}
"""So small that they are reached."""


class SlowPool:
    """Work takes a while, and others go on meanwhile."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._pause()
        result = work(*args, **kwargs)
        await self._pause()
        return result

    async def _pause(self) -> None:
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.choice((0, 0.001, 0.02)))


@dataclass
class Follower:
    """A reader that waits for more."""

    name: str
    log: int | None = None
    after: int = 0


class Simulation:
    """One seed, one story."""

    def __init__(self, seed: int, *, rivals: bool = False, seals: bool = False) -> None:
        self.random = Random(seed)
        self.sealing = Random(f"seals of {seed}") if seals else None
        """Records are sealed by age, and when somebody asks for it, by dice of its own."""
        self.seals = 0
        self.rivals = Random(seed) if rivals else None
        """Another publisher replaces segments all the time, by dice of its own."""
        self.replacements = 0
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = HostileDisk()
        self.history = History()
        self.mark = self.history.mark()
        self.blow = Blow.KILL
        self.story: list[str] = []
        """What happened, for the reader of a failure and to compare two runs."""
        self.watching = Random(f"watchers of {seed}")
        self.watchers = hire(self.watching, NAMES)
        self._sent = 0
        self._forget: list[tuple[str, Wish]] = []  # keyed appends nobody acknowledged
        self._caps = Caps(tail_bytes=self.random.choice((400, 3000)))
        self._pace = UpkeepPace(
            seal_bytes=self.random.choice((300, 1500)) * (8 if self.sealing else 1),
            disk_sync_ms=200,
            seal_ms=self.sealing.choice((50, 400)) if self.sealing else 0,
        )

    def run(self) -> None:
        ticks = Random(self.random.random())
        now_s = 0.0

        def perf_counter() -> float:
            nonlocal now_s
            now_s += ticks.choice((0.0, 0.0, 0.003))
            return now_s

        with ExitStack() as stack:
            stack.enter_context(closing(self.loop))
            for limit, value in LIMITS.items():
                stack.enter_context(mock.patch(limit, value))
            self.swallowed = stack.enter_context(small(perf_counter))
            for number in range(LIVES):
                self._say(f"life {number}")
                Life(self).run()
        seen = sum(watcher.worked for watcher in self.watchers)
        # In stories of crash after crash there may be nothing to see.
        assert seen > 20 or self.loop.now_s < 10, "nobody saw anything"

    def _say(self, what: str) -> None:
        self.story.append(f"{self.loop.now_s:.3f} {what}")


class Life:
    """From one start to one end, however it comes."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._random = world.random
        self._loop = world.loop
        self._disk = world.disk
        self._say = world._say
        self._history = world.history
        self._ended = asyncio.Event()
        self._problem: BaseException | None = None
        self._mark: Mark | None = None
        self._paused = False
        self._busy = 0
        self._followers: list[Follower] = []
        self._started: Started | None = None

    def run(self) -> None:
        ending = self._random.choice((*Survival, "kill", "kill", "torn", "stop"))
        power = isinstance(ending, Survival)
        try:
            self._loop.run_until_complete(self._loop.create_task(self._live(ending)))
        except Crash as crash:
            self._say(f"crash: {crash}")
        mark = self._mark or self._history.mark()
        self._loop.stop_all()
        if self._started is not None:
            halt(self._started)
        self._check_complaints()
        self._say(f"end: {ending}")
        # What a failed sync covered may be gone although the machine goes on.
        failed = self._disk.sync_failed
        blow = Blow.POWER if power or failed else Blow.KILL
        if power:
            disk = self._disk.lose_power(ending, self._random)
        else:
            torn = self._random if ending == "torn" else None
            disk = self._disk.kill(torn, evicted=self._random if failed else None)
        self._world.clock.skew_ms += self._random.choice((0, 0, 0, 700, -700))
        self._world.disk, self._world.blow = self._stumble(disk, blow)
        self._world.mark = mark

    def _stumble(self, disk: HostileDisk, blow: Blow) -> tuple[HostileDisk, Blow]:
        """Perhaps die again while recovering."""
        while self._random.random() < 0.3:
            disk.crash_at = self._random.randrange(40)
            try:
                self._loop.run(boot(disk, self._world.clock, forwarding=False))
            except (Crash, Stuck) as crash:  # stuck when it was the journal's writer that died
                self._say(f"crash while recovering: {crash}")
            if self._random.random() < 0.5:
                disk, blow = (
                    disk.lose_power(self._random.choice([*Survival]), self._random),
                    Blow.POWER,
                )
            else:
                disk = disk.kill(torn=self._random)
        self._loop.complaints.clear()
        return disk, blow

    def _check_complaints(self) -> None:
        """Whatever went wrong in the background, but for the crash itself."""
        for context in self._loop.complaints:
            problem = context.get("exception")
            if not isinstance(problem, Crash | Refused):
                raise AssertionError(f"in the background: {context}") from problem
        self._loop.complaints.clear()
        self._world.swallowed.check()
        if self._problem is not None:
            raise self._problem

    # --- the life itself -------------------------------------------------------------------------

    async def _live(self, ending: object) -> None:
        random = self._random
        self._started = await boot(
            self._disk,
            self._world.clock,
            caps=self._world._caps,
            pace=self._world._pace,
            pool=SlowPool(random),
            make_writer=random.choice((LoopWriter, server_writer)),
            delay_s=lambda: random.choice((0.0, 0.0, 0.001, 0.03)),
            throttled=True,
            forwarding=False,
        )
        self._engine = self._started.engine
        await self._find_survivors()
        self._shadow = Shadow(self._engine, self._history, self._world.clock)
        witness = Witness(self._engine, self._history)
        self._gallery = Gallery(witness, self._world.watching)
        go_on(self._started)
        self._arm(ending)
        self._followers = [Follower(name) for name in NAMES]
        for work in (
            self._started.upkeep.run(),
            self._started.upkeep.run_timers(),
            self._engine.routers.forwarder.run(),
            *(self._client() for _ in range(CLIENTS)),
            *(self._follow(follower) for follower in self._followers),
            *(self._gallery.attend(watcher) for watcher in self._world.watchers),
        ):
            self._loop.create_task(self._guard(work))
        if self._world.rivals is not None:
            for work in (self._started.upkeep.run_exchange(), self._meddle(self._world.rivals)):
                self._loop.create_task(self._guard(work))
        if self._world.sealing is not None:
            self._loop.create_task(self._guard(self._seal(self._world.sealing)))
        for _ in range(2):
            self._paused = False
            await self._until_end(LIFE_S / 2)
            await self._check_quiet()
        if ending == "stop" and self._engine.journal.failure is None:
            self._paused = False  # clients go on, and are turned away
            await stop(self._started)
        if self._mark is None:
            self._mark = self._history.mark()
        self._disk.crash()

    async def _meddle(self, random: Random) -> None:
        """As the pipeline does: in a process of its own, which no crash of ours ends."""
        rival = Rival(LocalObjects(HostileDisk(self._disk.world)), random)
        while True:
            await asyncio.sleep(0.5 if self._paused else random.choice((0.001, 0.01, 0.1)))
            torn, self._disk.world.torn = self._disk.world.torn, None
            rival.act()
            self._disk.world.torn = torn
            self._world.replacements += rival.replacements
            rival.replacements = 0

    async def _seal(self, random: Random) -> None:
        """As an operator does, two of them at a time now and then."""
        while True:
            await asyncio.sleep(random.choice((0.01, 0.1, 1.0)))
            calls = [self._seal_once(random.random() < 0.3) for _ in range(random.choice((1, 2)))]
            await asyncio.gather(*calls)

    async def _seal_once(self, retire: bool) -> None:
        tail, touched = self._engine.journal.tail, bool(self._engine.touched)
        assert self._started is not None
        self._world.seals += 1
        try:
            await self._engine.seal(retire=retire)
        except Refused as refused:
            if refused.code not in EXPECTED:
                raise
            await asyncio.sleep(1)
            return
        if touched:  # else there may be nothing behind what is sealed but control
            assert self._started.upkeep.manifest.sealed_to >= tail

    async def _find_survivors(self) -> None:
        """What the life before left must be what it may have left; the history goes on from it."""
        world = self._world
        mark, blow = world.mark, world.blow
        with world.clock.held() as now_ms:
            views = await view_all(self._engine)
        index = judge(world.history, mark, blow, views, now_ms)
        self._say(f"survived: {index} of {mark.promised(blow)}..{mark.offered}")
        self._history = world.history = world.history.after(mark, index, views)

    def _arm(self, ending: object) -> None:
        """Choose the disk call that goes wrong, if one does."""
        at = self._disk.calls + self._random.randrange(700)
        fails = self._random.choice((errno.EIO, errno.ENOSPC))
        if self._random.random() < 0.85:
            fails = 0
            self._disk.crash_at = at if ending != "stop" else None

        def watch(number: int, kind: str, path: str) -> None:
            nonlocal fails
            if fails and number >= at and kind not in HARMLESS:
                self._say(f"call {number}: {kind} {path} fails")
                self._disk.faults[number] = fails
                fails = 0
            if number == self._disk.crash_at:
                self._say(f"call {number}: {kind} {path}")
                self._mark = self._history.mark()
                self._ended.set()

        self._disk.before = watch

    async def _until_end(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        if self._problem is not None:
            raise self._problem
        raise Crash("as planned")

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Crash:
            self._ended.set()
        except Exception as problem:  # noqa: BLE001  (raised again by whoever runs this life)
            self._problem = self._problem or problem
            self._ended.set()

    async def _until_idle(self) -> None:
        while self._busy:
            await self._until_end(0.1)
        await self._until_end(SETTLE_S)

    async def _check_quiet(self) -> None:
        """Nobody writes: the engine is the model, and every follower has all there is."""
        self._paused = self._gallery.quiet = True
        await self._until_idle()
        await self._until_end(WATCH_S)
        if self._engine.journal.failure is None:
            self._gallery.check_all_came()
            with self._world.clock.held() as now_ms:
                views = await view_all(self._engine)
            judge(self._history, self._history.mark(), None, views, now_ms)
            for follower in self._followers:
                if found := views.get(follower.name):
                    # (What came and was deleted again is not told before something else comes.)
                    after = follower.after if follower.log == found.id else 0
                    missed = [seq for seq in found.records if seq > after]
                    assert not missed, f"{follower} sleeps, and there are {missed}"
        self._gallery.quiet = False

    # --- clients ---------------------------------------------------------------------------------

    async def _client(self) -> None:
        while True:
            await asyncio.sleep(self._random.choice((0, 0, 0.001, 0.01, 0.3)))
            if self._paused:
                await asyncio.sleep(0.1)
                continue
            self._busy += 1
            try:
                await self._act()
            finally:
                self._busy -= 1

    async def _act(self) -> None:
        name = self._random.choice(NAMES)
        act: Callable[[str], Awaitable[None]] = self._random.choices(
            (
                self._append, self._retry, self._delete, self._put, self._drop, self._read,
                self._route, self._unroute, self._look, self._rush,
            ),
            (60, 5, 10, 4, 2, 10, 4, 1, 5, 3),
        )[0]  # fmt: skip
        await self._try(act(name))

    async def _try(self, act: Awaitable[None]) -> None:
        try:
            await act
        except StoreError:
            self._say("try again")  # a disk call failed as planned, and a reader was in need of it
        except Refused as refused:
            if refused.code not in EXPECTED:
                raise
            if refused.code is Code.READ_ONLY:
                self._say("read-only")
                await asyncio.sleep(1)

    def _config(self) -> LogConfig:
        random = self._random
        return LogConfig(
            durability=random.choice([*Durability]),
            ttl_ms=random.choice((0, 0, 0, 1500)),
            cap_records=random.choice((0, 0, 6)),
            cap_bytes=random.choice((0, 0, 0, 400)),
            discard=random.choice((Discard.OLD, Discard.OLD, Discard.REJECT)),
            keep_per_key=(keep := random.choice((0, 0, 1, 2))),
            keys_max=random.choice((0, 2)) if keep else 0,
        )

    def _records(self) -> list[Record]:
        made = []
        for _ in range(self._random.choice((1, 1, 2, 5))):
            self._world._sent += 1
            pad = b" " * self._random.choice(PADS)(self._random)
            tag = self._random.choice((None, *TAGS))
            meta = b'{"m":%d}' % self._world._sent if self._random.random() < 0.2 else None
            made.append(Record(b'{"n":%d}' % self._world._sent + pad, meta, tag, None, 0, tag))
        return made

    async def _append(self, name: str) -> None:
        wish = Wish(records=self._records(), config=self._config())
        if self._random.random() < 0.3:
            wish.key = f"k{self._world._sent}"
        await self._send(name, wish)
        if wish.key and self._random.random() < 0.3:
            await self._send(name, Wish(wish.records, wish.key, wish.config))

    async def _retry(self, name: str) -> None:
        """Somebody never heard of his append, perhaps before the crash, and asks again."""
        if self._world._forget:
            name, wish = self._random.choice(self._world._forget)
            await self._send(name, Wish(wish.records, wish.key, wish.config))

    async def _send(self, name: str, wish: Wish) -> None:
        WISH.set(wish)
        records = wish.records
        drafts = draft(
            [record.data for record in records],
            [record.meta for record in records],
            [record.tag for record in records],
            keys=[record.key for record in records],
        )
        if wish.key:
            self._world._forget = [*self._world._forget[-5:], (name, wish)]
        done = await self._engine.appender.append(
            name, drafts, owner="topics", create=wish.config, key=wish.key
        )
        if done.deduped:
            assert wish.key is not None
            assert wish.index == 0
            assert (done.first, done.last) == self._shadow.keys[done.log.id, wish.key]
            return
        self._history.acknowledge(wish.index, wish.durability)
        self._history.acknowledge(wish.control, Durability.FSYNC)
        block = self._history.states[wish.index][name]
        assert wish.last == done.last
        stamped = [record._replace(ts_ms=block.last_ts_ms) for record in records]
        self._history.show(done.log.id, enumerate(stamped, done.first), done.last)

    async def _delete(self, name: str) -> None:
        wish = Wish(
            before=self._random.choice((None, 3, 10, 40)),
            match=self._random.choice((None, TagEq("x"), TagPrefix("x"), TagEq("z"))),
        )
        if wish.before is None and wish.match is None:
            wish.before = 20
        log = self._history.now.get(name)
        if log is not None:
            given = self._history.given.get(log.id, 0)
            wish.due = frozenset(
                seq
                for seq, record in log.records.items()
                if seq <= given
                and (log.id, seq) in self._history.named
                and wish.covers(seq, record)
            )
        WISH.set(wish)
        _, count = await self._engine.deleter.delete(name, wish.before, wish.match)
        assert bool(count) == bool(wish.index)
        if wish.index:
            self._history.acknowledge(wish.index, wish.durability)

    async def _put(self, name: str, config: LogConfig | None = None) -> None:
        wish = Wish(config=config or self._config())
        WISH.set(wish)
        assert wish.config is not None
        as_it_was = self._control(name)
        await self._engine.logs.put(name, "topics", wish.config)
        self._history.acknowledge(wish.index or as_it_was, wish.durability)

    async def _drop(self, name: str) -> None:
        wish = Wish()
        WISH.set(wish)
        gone = self._shadow.gone.get(name, 0)
        if await self._engine.logs.drop(name, if_empty=False):
            self._history.acknowledge(wish.index, wish.durability)
        else:
            self._history.acknowledge(gone, Durability.FSYNC)

    def _control(self, name: str) -> int:
        """The step that made the log of this name what it is."""
        log = self._history.now.get(name)
        return self._shadow.control.get(log.id, 0) if log is not None else 0

    async def _look(self, name: str) -> None:
        """Ask for the state of a log, as surfaces do: what it tells must stay."""
        engine, shadow = self._engine, self._shadow
        try:
            live = engine.state_of(name)
        except Refused as refused:
            gone = shadow.gone.get(name, 0)
            said = await engine.settle_refusal(refused)
            if said is refused and engine.journal.failure is None:
                self._history.acknowledge(gone, Durability.FSYNC)
            return
        log, head = live.log, engine.head_of(live)
        known = self._history.now[name]
        told = log.id, log.count, log.size_bytes
        assert told == (known.id, len(known.records), known.size_bytes)
        control, appended = shadow.control.get(log.id, 0), shadow.appended.get(log.id)
        await engine.settle_all(live)
        if engine.journal.failure is None:
            assert live.visible >= head, "a count of what nobody may see"
            self._history.acknowledge(control, Durability.FSYNC)
            if appended is not None:
                self._history.acknowledge(*appended)

    async def _rush(self, name: str) -> None:
        """Several use one name at once that was not there a moment ago."""
        await self._try(self._drop(name))
        config = self._config()
        acts = self._random.choices(
            (
                lambda: self._put(name, config),
                lambda: self._put(name),
                lambda: self._send(name, Wish(self._records(), config=config)),
                lambda: self._drop(name),
                lambda: self._look(name),
            ),
            (3, 1, 3, 2, 2),
            k=self._random.choice((2, 3, 5)),
        )
        await asyncio.gather(*(self._later(act) for act in acts))

    async def _later(self, act: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self._random.choice((0, 0, 0.0005, 0.002)))
        await self._try(act())

    async def _route(self, source: str) -> None:
        random = self._random
        dest = random.choice([name for name in NAMES if name != source])
        rule = Rule(
            keep_tag=random.random() < 0.8,
            match=random.choice((None, None, TagPrefix("x"))),
            allow_cycle=random.random() < 0.7,
            exactly_once=random.random() < 0.3,
        )
        after = random.choice((None, None, 0))
        wish = Wish(config=LogConfig())
        WISH.set(wish)
        name = f"{source}->{dest}" if random.random() < 0.7 else "r"
        await self._engine.routers.put(name, RouterPlan(source, dest, rule, after=after), "topics")
        if wish.index:
            self._history.acknowledge(wish.index, wish.durability)

    async def _unroute(self, name: str) -> None:
        wish = Wish()
        WISH.set(wish)
        routers = [*self._engine.routers.routes.names("", "")]
        if routers and await self._engine.routers.delete(self._random.choice(routers)):
            self._history.acknowledge(wish.index, wish.durability)

    # --- readers ---------------------------------------------------------------------------------

    async def _read(self, name: str) -> None:
        after = self._random.randrange(60)
        live = self._engine.live(name)
        page = await self._engine.reader.read(live, after, records_max=7, bytes_max=300)
        self._shadow.check_page(live.log.id, after, page)

    async def _follow(self, follower: Follower) -> None:
        while True:
            try:
                live = self._engine.live(follower.name)
                page = await self._engine.reader.read_or_wait(
                    live,
                    follower.after,
                    wait_ms=self._random.choice((1, 500, 30_000)),
                    epoch=follower.log,
                    records_max=5,
                    bytes_max=200,
                )
            except StoreError:
                await asyncio.sleep(0.05)
                continue
            except Refused as refused:
                if refused.code not in (Code.LOG_NOT_FOUND, Code.STORAGE_UNAVAILABLE):
                    raise
                await asyncio.sleep(0.05)
                continue
            self._shadow.check_page(live.log.id, follower.after, page)
            follower.log, follower.after = live.log.id, page.next
            if self._engine.draining:
                await asyncio.sleep(0.05)


def simulate(seed: int, *, rivals: bool = False, seals: bool = False) -> list[str]:
    """Live through the story of this seed; what goes wrong says which it was."""
    simulation = Simulation(seed, rivals=rivals, seals=seals)
    try:
        simulation.run()
    except BaseException as problem:
        problem.add_note(
            f"seed {seed}; the last that happened:\n" + "\n".join(simulation.story[-12:])
        )
        raise
    # In stories of crash after crash there may be little to replace.
    short = simulation.loop.now_s < 10
    assert not rivals or simulation.replacements > 10 or short, "the rival did too little"
    assert not seals or simulation.seals > 2 or short, "too little was asked for"
    return simulation.story
