"""What a commit has decided arrives: whatever others change meanwhile comes before or behind it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest

from headrace.core.config import Discard, LogConfig
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import TRANSACTION_ONCE_MS
from headrace.core.record import Drafts, draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.core.transaction import Chunk
from headrace.engine.engine import Engine
from headrace.engine.logs.transactions import BatchCommitted
from headrace.engine.ports import Load
from headrace.profiles.catalogue import parse_profile
from headrace.schemas.evolution import parse_update
from support.engine_harness import CAPS, Unhurried, boot, view
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

Step = Callable[[Engine], Awaitable[object]]
Outcome = object
"""What somebody got: a value, or a Refused."""

ROWS = [b'{"a":"%d"}' % n for n in range(4)]
FULL = LogConfig(cap_records=5, discard=Discard.REJECT)


def schema(name: str) -> dict[str, object]:
    return {"type": "object", "properties": {name: {}}, "required": [name]}


RENAME = {
    "apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2,
    "ops": [{"op": "rename", "from": "/a", "to": "/b"}],
}  # fmt: skip


async def evolve(engine: Engine, **update: object) -> None:
    live = engine.streams.own("s")
    await engine.ingest.install_schema(live, parse_update(msgspec.json.encode(update)))


async def change_schema(engine: Engine) -> None:
    await evolve(engine, schema=schema("b"), lens=RENAME)


async def install_first_schema(engine: Engine) -> None:
    await evolve(engine, schema=schema("b"))


async def take_keys(engine: Engine) -> None:
    await evolve(engine, routingKey={"jsonPointer": "/missing", "required": True})


async def adopt(engine: Engine) -> None:
    profile = parse_profile({"kind": "state-protocol"})
    await engine.ingest.install_profile(engine.streams.own("s"), profile)


async def close(engine: Engine) -> None:
    await engine.streams.write("s", None, Write(close=True))


async def close_with_a_record(engine: Engine) -> None:
    await engine.streams.write("s", draft([b'{"a":"last"}']), Write(JSON, close=True))


async def fill(engine: Engine) -> None:
    await engine.appender.append("s", draft([b"9"] * 3), owner="topics", create=None)


async def lower_the_cap(engine: Engine) -> None:
    config = LogConfig(cap_records=1, discard=Discard.REJECT)
    await engine.logs.put("s", "topics", config)


async def drop_if_empty(engine: Engine) -> None:
    assert await engine.logs.drop("s", if_empty=True) is not None


async def make_stream(engine: Engine) -> None:
    await engine.streams.create("s", Spec(content_type=JSON), None)


async def make_shaped(engine: Engine) -> None:
    await make_stream(engine)
    await evolve(engine, schema=schema("a"))


async def make_full_topic(engine: Engine) -> None:
    await engine.logs.put("s", "topics", FULL)


async def make_topic(engine: Engine) -> None:
    await engine.logs.put("s", "topics", LogConfig())


async def stage(engine: Engine, transaction: str = "t", batch: int = 0) -> list[str]:
    chunks = (("s", ROWS[:2]), ("other", [b"1"]), ("s", ROWS[2:]))
    for number, (log, rows) in enumerate(chunks):
        await engine.transactions.stage(
            transaction, batch, f"0-0-{number}", Chunk(log, draft(rows))
        )
    return ["0-0-0", "0-0-1", "0-0-2"]


async def commit(engine: Engine, names: list[str], batch: int = 0) -> BatchCommitted:
    return await engine.transactions.commit("t", batch, names, owner="topics", create=None)


async def outcome(work: Awaitable[object]) -> Outcome:
    try:
        return await work
    except Refused as refused:
        return refused


async def rows(engine: Engine, name: str = "s") -> list[bytes]:
    if name not in engine.state.by_name:
        return []
    return [record.data for record in (await view(engine, name)).records.values()]


class Told(NamedTuple):
    committed: Outcome
    changed: Outcome
    held: list[bytes]
    """What the log had in the end."""
    engine: Engine

    @property
    def batch_is_in(self) -> bool:
        return not isinstance(self.committed, Refused)

    @property
    def is_changed(self) -> bool:
        return not isinstance(self.changed, Refused)


def meet(loop: VirtualLoop, make: Step, change: Step) -> list[Told]:
    """A commit, and a change that comes at every moment of it; each on a server of its own."""
    told: list[Told] = []

    async def story(rounds: int) -> bool:
        engine = (await boot(HostileDisk(), VirtualClock(loop), pool=Unhurried())).engine
        await make(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = await stage(engine)
        committing = asyncio.create_task(outcome(commit(engine, names)))
        for _ in range(rounds):
            await asyncio.sleep(0)
        is_over = committing.done()
        changed = await outcome(change(engine))
        committed = await committing
        told.append(Told(committed, changed, await rows(engine), engine))
        assert len(await rows(engine, "other")) == told[-1].batch_is_in
        return is_over

    while not loop.run(story(len(told))):
        pass
    assert told[-1].batch_is_in, "nothing came between, and it was refused"
    assert len(told) > 20
    return told


@pytest.mark.parametrize("change", [close, close_with_a_record])
def test_a_close_comes_before_a_batch_or_behind_it(loop: VirtualLoop, change: Step) -> None:
    told = meet(loop, make_stream, change)
    for each in told:
        assert each.is_changed, each.changed
        held = [row for row in each.held if row != b'{"a":"last"}']
        assert held == (ROWS if each.batch_is_in else [])
        if change is close_with_a_record:
            assert each.held[-1] == b'{"a":"last"}'
    assert not told[0].batch_is_in


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (make_shaped, change_schema),
        (make_shaped, take_keys),
        (make_stream, install_first_schema),
        (make_stream, adopt),
    ],
)
def test_records_belong_to_the_schema_they_were_committed_under(
    loop: VirtualLoop, make: Step, change: Step
) -> None:
    told = meet(loop, make, change)
    for each in told:
        assert each.held == (ROWS if each.batch_is_in else [])
        assert each.batch_is_in or each.is_changed
    if change is change_schema:  # its lens is proven first, in the pool: the batch overtakes it
        assert all(each.is_changed for each in told)
    else:
        assert not told[0].batch_is_in


def test_older_records_are_promoted(loop: VirtualLoop) -> None:
    async def promoted(engine: Engine) -> list[bytes]:
        live = engine.streams.find("s")
        page = await engine.reader.read(live, 0, records_max=9, bytes_max=1 << 20)
        page = engine.ingest.promoted(live.log, page)
        return [piece.block.data_at(at) for piece in page.slices for at in piece.picks]

    for each in meet(loop, make_shaped, change_schema):
        found = loop.run(promoted(each.engine))
        assert found == [row.replace(b"a", b"b") for row in each.held]


@pytest.mark.parametrize("change", [fill, lower_the_cap])
def test_a_topic_that_rejects_says_so_before_the_decision(loop: VirtualLoop, change: Step) -> None:
    told = meet(loop, make_full_topic, change)
    for each in told:
        batch = [row for row in each.held if row in ROWS]
        if each.batch_is_in:
            assert batch == ROWS
            continue
        assert isinstance(each.committed, Refused)
        assert each.committed.code is Code.LOG_FULL
        assert not batch
        assert each.engine.transactions.last("t") is None, "decided, and refused"
    assert not told[0].batch_is_in


def test_a_log_with_a_batch_on_its_way_is_not_empty(loop: VirtualLoop) -> None:
    for each in meet(loop, make_topic, drop_if_empty):
        assert each.batch_is_in is not each.is_changed
        assert each.held == (ROWS if each.batch_is_in else [])


def test_two_batches_do_not_take_the_same_room(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop), pool=Unhurried())).engine
        await make_full_topic(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = {each: await stage(engine, each) for each in ("t", "u")}
        commits = [
            engine.transactions.commit(each, 0, chunks, owner="topics", create=None)
            for each, chunks in names.items()
        ]
        done = await asyncio.gather(*map(outcome, commits))
        refused = [each for each in done if isinstance(each, Refused)]
        assert [each.code for each in refused] == [Code.LOG_FULL]
        assert await rows(engine) == ROWS

    loop.run(story())


def test_a_server_that_is_full_says_so_before_the_decision(loop: VirtualLoop) -> None:
    async def story() -> None:
        caps = msgspec.structs.replace(CAPS, total_bytes=150)
        engine = (await boot(HostileDisk(), VirtualClock(loop), caps=caps)).engine
        await make_stream(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = await stage(engine)
        await engine.appender.append("other", draft([b"1" * 40]), owner="topics", create=None)
        with pytest.raises(Refused, match="max_total_bytes is reached"):
            await commit(engine, names)
        assert engine.transactions.last("t") is None
        assert not await rows(engine)

    loop.run(story())


# --- through a crash ------------------------------------------------------------------------------


def left_by(loop: VirtualLoop, make: Step) -> HostileDisk:
    """The disk of a server that was killed when it had decided a batch and brought none of it."""
    disk = HostileDisk()
    copies: list[HostileDisk] = []

    async def story() -> None:
        engine = (await boot(disk, VirtualClock(loop))).engine
        await make(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = await stage(engine)
        disk.before = lambda number, kind, path: copies.append(disk.copy())
        await commit(engine, names)

    loop.run(story())
    killed = (copy.kill() for copy in copies)
    return next(disk for disk in killed if "t.0.commit" in disk.list("staged"))


def after(
    loop: VirtualLoop, make: Step, tell: Callable[[Engine], Coroutine[Any, Any, None]]
) -> None:
    async def story() -> None:
        engine = (await boot(disk, VirtualClock(loop))).engine
        assert not await rows(engine)
        await tell(engine)

    disk = left_by(loop, make)
    loop.run(story())


@pytest.mark.parametrize(
    ("make", "change"),
    [(make_stream, close), (make_shaped, change_schema), (make_full_topic, lower_the_cap)],
)
def test_a_decided_batch_comes_before_what_is_asked_after_a_restart(
    loop: VirtualLoop, make: Step, change: Step
) -> None:
    async def tell(engine: Engine) -> None:
        changing = asyncio.ensure_future(change(engine))
        for _ in range(20):
            await asyncio.sleep(0)
        await engine.transactions.resume()
        await changing
        assert await rows(engine) == ROWS

    after(loop, make, tell)


def test_who_waits_for_a_batch_that_does_not_come_is_told(loop: VirtualLoop) -> None:
    async def tell(engine: Engine) -> None:
        with pytest.raises(Refused) as refused:
            await close(engine)
        assert refused.value.code is Code.THROTTLED
        await engine.transactions.resume()
        await close(engine)
        assert await rows(engine) == ROWS

    after(loop, make_stream, tell)


def test_a_log_that_is_deleted_takes_its_batch_with_it(loop: VirtualLoop) -> None:
    async def tell(engine: Engine) -> None:
        await engine.streams.delete("s")
        await make_stream(engine)
        await engine.transactions.resume()
        assert not await rows(engine)
        assert await rows(engine, "other") == [b"1"]
        assert engine.transactions.last("t") == 0

    after(loop, make_stream, tell)


def test_a_decision_in_doubt_is_taken_back_before_its_chunks_go(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await make_stream(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = await stage(engine)
        fail_the_decision(disk)
        with pytest.raises(OSError, match="Input/output"):
            await commit(engine, names)
        await engine.transactions.abort("t", 0)
        lost = (disk.copy().lose_power(Survival.PAGES, Random(seed)) for seed in range(20))
        for left in (*lost, disk.kill()):
            engine = (await boot(left, clock)).engine
            assert engine.transactions.last("t") is None
            assert not (await commit(engine, await stage(engine))).repeated
            assert await rows(engine) == ROWS

    loop.run(story())


def test_a_close_waits_until_a_decision_in_doubt_is_taken_back(loop: VirtualLoop) -> None:
    """Else a start would find it decided, and its stream closed."""

    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await make_stream(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = await stage(engine)
        fail_the_decision(disk)
        with pytest.raises(OSError, match="Input/output"):
            await commit(engine, names)
        closing = asyncio.create_task(close(engine))
        await asyncio.sleep(1)
        assert not closing.done()
        await engine.transactions.resume()
        await closing
        engine = (await boot(disk.kill(), clock)).engine
        assert engine.transactions.last("t") is None
        assert await rows(engine) == []

    loop.run(story())


def fail_the_decision(disk: HostileDisk) -> None:
    """Its file is written, but perhaps it will not be found."""
    wrong: list[int] = []

    def note(number: int, kind: str, path: str) -> None:
        if kind == "sync_folder" and path == "staged" and not wrong:
            wrong.append(number)
            disk.faults[number] = errno.EIO

    disk.before = note


# --- given up -------------------------------------------------------------------------------------


async def damage(engine: Engine, disk: HostileDisk) -> None:
    """A batch is decided; its second chunk cannot be read any more when it is to be brought."""
    names = await stage(engine, batch=1)
    damaged = "staged/t.1.0-0-1.local.chunk"

    def note(number: int, kind: str, path: str) -> None:
        if path == "staged" and kind == "sync_folder":
            disk.before = lambda number, kind, path: None
            disk.write(damaged, (b"not what it was",))

    disk.before = note
    with pytest.raises(Corrupt):
        await commit(engine, names, batch=1)


def test_a_batch_that_cannot_arrive_is_given_up(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await make_stream(engine)
        await engine.logs.put("other", "topics", LogConfig())
        assert not (await commit(engine, await stage(engine, batch=0))).repeated
        await damage(engine, disk)
        with pytest.raises(Refused, match="still on their way"):
            await close(engine)

        found: list[HostileDisk] = []
        disk.before = lambda number, kind, path: found.append(disk.copy())
        given = await engine.transactions.give_up("t")
        assert (given.batch, given.chunks, given.missing) == (1, 3, 3)
        assert engine.transactions.last("t") is None
        await close(engine)
        assert await rows(engine) == [*ROWS, *ROWS[:2]]
        for left in found:
            for each in (left.kill(), left.lose_power(Survival.EVERYTHING, Random(1))):
                again = (await boot(each, clock)).engine
                await again.transactions.resume()
                assert again.transactions.last("t") in (None, 1)
                await again.transactions.give_up("t")
                await close(again)
        assert disk.list("staged") == []

    loop.run(story())


# --- notes ----------------------------------------------------------------------------------------


def test_the_note_of_a_batch_on_its_way_is_not_forgotten(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await make_topic(engine)
        await engine.logs.put("other", "topics", LogConfig())
        names = await stage(engine)
        transactions = engine.transactions
        read = transactions._staging.read

        def fail(path: str) -> Chunk:
            if transactions.last("t") is not None and path.endswith("0-0-1.local.chunk"):
                raise OSError(errno.EIO, "cannot be read")
            return read(path)

        unreadable = mock.patch.object(transactions._staging, "read", fail)
        with unreadable, pytest.raises(OSError, match="cannot be read"):
            await commit(engine, names)
        assert await rows(engine) == ROWS[:2]
        for other in range(5):
            name = f"u{other}"
            await transactions.stage(name, 0, "0-0-0", Chunk("s", draft([b"0"])))
            await transactions.commit(name, 0, ["0-0-0"], owner="topics", create=None)
        await transactions.resume()
        found = [row for row in await rows(engine) if row != b"0"]
        assert found == ROWS
        arrived = engine.state.by_name["s"].arrived
        assert arrived is not None
        assert len(arrived) == 3

    with mock.patch("headrace.core.transaction.ARRIVALS_MAX", 3):
        loop.run(story())


class Slow:
    """A pool in which some work waits until it is let go; all else is done at once."""

    busy = 0.0
    load = Load(1, 0, 0)

    def __init__(self, slow: str) -> None:
        self._slow = slow
        self.go_on = asyncio.Event()

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if work.__name__ == self._slow:
            self._slow = ""
            await self.go_on.wait()
        return work(*args, **kwargs)


@pytest.mark.parametrize("slow", ["encode_staged", "put"])
def test_a_chunk_that_comes_behind_its_batch_does_not_come_twice(
    loop: VirtualLoop, slow: str
) -> None:
    """A client that was not answered stages it again; its note in the log is pushed out."""

    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await make_topic(engine)
        await engine.transactions.stage("t", 0, "0-0-0", Chunk("s", draft(ROWS)))
        disk, pool = disk.kill(), Slow(slow)
        engine = (await boot(disk, clock, pool=pool)).engine
        transactions = engine.transactions
        again = transactions.stage("t", 0, "0-0-0", Chunk("s", draft(ROWS)))
        staging = asyncio.create_task(again)
        await asyncio.sleep(0)
        await commit(engine, ["0-0-0"])
        for other in range(3):
            name = f"u{other}"
            await transactions.stage(name, 0, "0-0-0", Chunk("s", draft([b"0"])))
            await transactions.commit(name, 0, ["0-0-0"], owner="topics", create=None)
        found: list[HostileDisk] = []
        disk.before = lambda number, kind, path: found.append(disk.copy().kill())
        pool.go_on.set()
        assert not await staging
        for left in [*found, disk.kill()]:
            engine = (await boot(left, clock)).engine
            await engine.transactions.resume()
            assert [row for row in await rows(engine) if row != b"0"] == ROWS
            assert "t" not in {name.partition(".")[0] for name in chunks_of(left)}

    with mock.patch("headrace.core.transaction.ARRIVALS_MAX", 3):
        loop.run(story())


def test_a_chunk_is_staged_when_it_is_durable(loop: VirtualLoop) -> None:
    async def story() -> None:
        pool = Slow("put")
        transactions = (
            await boot(HostileDisk(), VirtualClock(loop), pool=pool)
        ).engine.transactions
        chunk = Chunk("s", draft(ROWS))
        staging = asyncio.create_task(transactions.stage("t", 0, "0-0-0", chunk))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="is being staged"):
            await transactions.stage("t", 0, "0-0-0", chunk)
        pool.go_on.set()
        assert await staging
        assert await transactions.stage("t", 0, "0-0-0", chunk)

    loop.run(story())


def test_a_chunk_that_is_dropped_while_it_is_staged_leaves_nothing(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, pool = HostileDisk(), Slow("put")
        transactions = (await boot(disk, VirtualClock(loop), pool=pool)).engine.transactions
        chunk = Chunk("s", draft(ROWS))
        staging = asyncio.create_task(transactions.stage("t", 0, "0-0-0", chunk))
        await asyncio.sleep(0)
        assert await transactions.abort("t", 0) == 1
        pool.go_on.set()
        with pytest.raises(Refused, match="was dropped"):
            await staging
        assert chunks_of(disk) == []

    loop.run(story())


def chunks_of(disk: HostileDisk) -> list[str]:
    return [name for name in disk.list("staged") if name.endswith(".chunk")]


def test_a_name_that_was_forgotten_can_be_used_again(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        engine = (await boot(HostileDisk(), clock)).engine
        await make_topic(engine)
        transactions = engine.transactions
        for data in (b"1", b"2"):
            await transactions.stage("t", 0, "0-0-0", Chunk("s", draft([data])))
            done = await transactions.commit(
                "t", 0, ["0-0-0"], owner="topics", create=None, once=True
            )
            assert not done.repeated
            clock.skew_ms += TRANSACTION_ONCE_MS + 1
            await transactions.sweep()
        assert await rows(engine) == [b"1", b"2"]

    loop.run(story())


# --- what is not taken ----------------------------------------------------------------------------


def picture() -> Drafts:
    made = draft([b"\x89PNG"])
    made.media = "image/png"
    return made


@pytest.mark.parametrize("media", [None, JSON, "text/plain"])
def test_bytes_come_only_into_a_stream_of_such_bytes(loop: VirtualLoop, media: str | None) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        if media is None:
            await make_topic(engine)
        else:
            await engine.streams.create("s", Spec(content_type=media), None)
        await engine.transactions.stage("t", 0, "0-0-0", Chunk("s", picture(), is_json=False))
        with pytest.raises(Refused) as refused:
            await commit(engine, ["0-0-0"])
        assert refused.value.code is Code.LOG_INCOMPATIBLE

    loop.run(story())


def test_a_stream_that_is_committed_to_lives_on(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await engine.streams.create("s", Spec(content_type=JSON, ttl_ms=10_000), None)
        for batch in range(4):
            await asyncio.sleep(7)
            await engine.transactions.stage("t", batch, "0-0-0", Chunk("s", draft([b"1"])))
            await commit(engine, ["0-0-0"], batch)
            engine.streams.expiry.sweep()
        assert engine.streams.find("s").visible == 4

    loop.run(story())


def test_a_chunk_is_what_was_looked_at(loop: VirtualLoop) -> None:
    """A chunk of before a restart is staged again, with other records, while it is committed."""

    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await make_shaped(engine)
        await engine.transactions.stage("t", 0, "0-0-0", Chunk("s", draft(ROWS)))
        is_over, rounds = False, 0
        while not is_over:
            engine = (await boot(disk.kill(), clock, pool=Unhurried())).engine
            committing = asyncio.create_task(outcome(commit(engine, ["0-0-0"])))
            for _ in range(rounds):
                await asyncio.sleep(0)
            is_over, rounds = committing.done(), rounds + 1
            other = Chunk("s", draft([b'{"z":"not valid"}']))
            staged = await outcome(engine.transactions.stage("t", 0, "0-0-0", other))
            committed = await committing
            assert await rows(engine) == ([] if isinstance(committed, Refused) else ROWS)
            assert staged is not True or isinstance(committed, Refused)

    loop.run(story())
