"""Appends of one turn of the loop to one log go to the journal together, and nobody can tell."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Discard, LogConfig
from headrace.core.entry import Register
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    APPEND_TOGETHER_BYTES_MAX,
    APPENDS_TOGETHER_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
)
from headrace.core.record import Drafts, concat, draft, payloads
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import Write
from headrace.engine.caps import Caps
from headrace.engine.logs.append_batch import AppendBatch
from headrace.engine.start import Started
from headrace.engine.streams.lifecycle import StreamWritten
from headrace.schemas.registry import encode_registry, first_registry
from support.engine_harness import boot, view
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

FSYNC = LogConfig(durability=LogConfig().durability.FSYNC)
CONFIGS = [LogConfig(durability=each) for each in type(FSYNC.durability)]


async def put(server: Started, config: LogConfig = FSYNC, name: str = "a") -> None:
    await server.engine.logs.put(name, "topics", config, "")


async def append_at_once(server: Started, *batches: list[bytes], name: str = "a") -> list[Any]:
    """What each of these appends is answered; all come in the same turn of the loop."""
    appends = (
        server.engine.appender.append(name, draft(batch), owner="topics", create=None)
        for batch in batches
    )
    return await asyncio.gather(*appends, return_exceptions=True)


@pytest.mark.parametrize("config", CONFIGS)
def test_each_writer_hears_of_its_own_records(loop: VirtualLoop, config: LogConfig) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server, config)
        frames = server.engine.journal.stats.frames
        done = await append_at_once(server, [b"1"], [b"2", b"3"], [b"4"], [b"5"], [b"6", b"7"])
        assert [(each.first, each.last) for each in done] == [
            (1, 1),
            (2, 3),
            (4, 4),
            (5, 5),
            (6, 7),
        ]
        assert all(each.last <= each.head <= 7 and not each.created for each in done)
        records = (await view(server.engine, "a")).records
        assert [records[seq].data for seq in sorted(records)] == [b"%d" % n for n in range(1, 8)]
        if config.synced:  # (others promise seqs ahead, too)
            assert server.engine.journal.stats.frames == frames + 2

    loop.run(story())


def test_logs_are_told_apart(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        for name in "ab":
            await put(server, name=name)
        both = await asyncio.gather(
            append_at_once(server, [b"1"], [b"2"], [b"3"], name="a"),
            append_at_once(server, [b"1"], [b"2"], name="b"),
        )
        assert [[each.first for each in done] for done in both] == [[1, 2, 3], [1, 2]]

    loop.run(story())


def test_what_does_not_fit_is_refused_by_itself(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server, LogConfig(cap_records=4, discard=Discard.REJECT))
        done = await append_at_once(server, [b"1"], [b"2", b"3", b"4", b"5"], [b"6"], [b"7", b"8"])
        assert [(each.first, each.last) for each in (done[0], done[2], done[3])] == [
            (1, 1), (2, 2), (3, 4),
        ]  # fmt: skip
        assert isinstance(done[1], Refused)
        assert done[1].code is Code.LOG_FULL

    loop.run(story())


def test_the_limit_of_the_server_counts_for_all_of_them(loop: VirtualLoop) -> None:
    async def story() -> None:
        room = 3 * (RECORD_OVERHEAD_BYTES + 1)
        server = await boot(HostileDisk(), VirtualClock(loop), caps=Caps(total_bytes=room))
        await put(server)
        done = await append_at_once(server, [b"1"], [b"2"], [b"3"], [b"4"], [b"5"])
        assert [each.first for each in done[:3]] == [1, 2, 3]
        assert all(isinstance(each, Refused) for each in done[3:])
        assert server.engine.live("a").log.head == 3

    loop.run(story())


def test_a_log_that_goes_meanwhile_takes_its_writers_with_it(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server)
        appends = [
            server.engine.appender.append("a", draft([b"1"]), owner="topics", create=None)
            for _ in range(3)
        ]
        dropping = server.engine.logs.drop("a", if_empty=False, owner="topics")
        first, *others, dropped = await asyncio.gather(*appends, dropping, return_exceptions=True)
        assert first.first == 1  # it went straight in
        assert [each.code for each in others] == [Code.LOG_NOT_FOUND] * 2
        assert dropped is not None

    loop.run(story())


def test_who_gives_up_takes_nobody_along(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: 1.0)
        await put(server)
        writers = [
            asyncio.ensure_future(
                server.engine.appender.append(
                    "a", draft([b"%d" % number]), owner="topics", create=None
                )
            )
            for number in range(4)
        ]
        await asyncio.sleep(0.5)
        writers[2].cancel()
        done = await asyncio.gather(*writers, return_exceptions=True)
        assert isinstance(done[2], asyncio.CancelledError)
        assert [each.first for each in done if not isinstance(each, BaseException)] == [1, 2, 4]

    loop.run(story())


def test_large_appends_go_by_themselves(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server)
        large = b'"%b"' % (b"x" * APPEND_TOGETHER_BYTES_MAX)
        done = await append_at_once(server, [b"1"], [b"2"], [large], [b"3"])
        assert [each.first for each in done] == [1, 2, 3, 4]  # (it came behind the second)

    loop.run(story())


def test_what_goes_by_itself_comes_behind_what_waits(loop: VirtualLoop) -> None:
    """Publishes of one WebSocket come in one turn, and have an order."""

    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server)

        def append(number: int, key: str | None = None) -> Any:
            return server.engine.appender.append(
                "a", draft([b"%d" % number]), owner="topics", create=None, key=key
            )

        done = await asyncio.gather(append(1), append(2), append(3), append(4, "x"), append(5))
        assert [each.first for each in done] == [1, 2, 3, 4, 5]
        records = (await view(server.engine, "a")).records
        assert [records[seq].data for seq in sorted(records)] == [b"%d" % n for n in range(1, 6)]

    loop.run(story())


def test_a_server_that_is_about_to_stop_takes_nothing_that_waited(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server)
        writing = asyncio.ensure_future(append_at_once(server, [b"1"], [b"2"], [b"3"]))
        await asyncio.sleep(0)
        loop.call_soon(server.engine.drain)  # in the turn in which the writers come
        first, *others = await writing
        assert first.first == 1
        assert [each.code for each in others] == [Code.SHUTTING_DOWN] * 2
        assert server.engine.live("a").log.head == 1

    loop.run(story())


def test_who_gave_up_is_left_out_where_each_goes_by_itself(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server, LogConfig(cap_records=3, discard=Discard.REJECT))
        live = server.engine.live("a")
        batch = AppendBatch(live)
        writers = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for number, writer in enumerate(writers):
            batch.add(draft([b"%d" % number]), writer)
        writers[1].cancel()
        assert [part.drafts for part in batch.split()] == [[batch.drafts[0]], [batch.drafts[2]]]

    loop.run(story())


def test_no_more_goes_together_than_a_frame_should_hold(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        await put(server)
        frames = server.engine.journal.stats.frames
        one = b'"%b"' % (b"x" * (APPEND_TOGETHER_BYTES_MAX - 2))
        count = 2 * APPENDS_TOGETHER_BYTES_MAX // APPEND_TOGETHER_BYTES_MAX
        done = await append_at_once(server, *([one] for _ in range(count + 1)))
        assert [each.first for each in done] == list(range(1, count + 2))
        assert server.engine.journal.stats.frames == frames + 3

    loop.run(story())


def test_a_failed_disk_is_told_to_all(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk = HostileDisk()
        server = await boot(disk, VirtualClock(loop), delay_s=lambda: 1.0)
        await put(server)
        writing = asyncio.ensure_future(append_at_once(server, [b"1"], [b"2"], [b"3"]))
        await asyncio.sleep(0.5)
        disk.faults[disk.calls] = errno.EIO
        done = await writing
        assert [each.code for each in done] == [Code.READ_ONLY] * 3

    loop.run(story())


@pytest.mark.parametrize("survival", Survival)
def test_what_was_acknowledged_together_survives_together(
    loop: VirtualLoop, survival: Survival
) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        server = await boot(disk, clock)
        await put(server)
        await append_at_once(server, [b"1"], [b"2", b"3"], [b"4"])
        lost = disk.copy().lose_power(survival, Random(0))
        after = await boot(lost, clock)
        assert sorted((await view(after.engine, "a")).records) == [1, 2, 3, 4]

    loop.run(story())


def test_plain_writes_to_a_stream_go_together(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        server = await boot(disk, clock)
        streams = server.engine.streams
        await streams.create("s", Spec(content_type="application/json"), None)
        frames = server.engine.journal.stats.frames
        write, plain = streams.write, Write("application/json")
        done = await asyncio.gather(*(write("s", draft([b"%d" % n]), plain) for n in range(5)))
        assert [each.last for each in done] == [1, 2, 3, 4, 5]
        assert server.engine.journal.stats.frames == frames + 2
        after = await boot(disk.copy().lose_power(Survival.NOTHING, Random(0)), clock)
        records = (await view(after.engine, "s")).records
        assert [records[seq].data for seq in sorted(records)] == [b"%d" % n for n in range(5)]

    loop.run(story())


def test_a_stream_that_is_closed_meanwhile_takes_no_more(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        streams = server.engine.streams
        await streams.create("s", Spec(content_type="application/json"), None)
        plain = Write("application/json")
        done = await asyncio.gather(
            *(streams.write("s", draft([b"%d" % n]), plain) for n in range(3)),
            streams.write("s", None, Write(None, close=True)),
            streams.write("s", draft([b"3"]), plain),
            streams.write("s", draft([b"4"]), plain),
            return_exceptions=True,
        )
        assert [each.last for each in done if isinstance(each, StreamWritten)] == [1, 2, 3, 3]
        late = [each for each in done if isinstance(each, Refused)]
        assert [each.code for each in late] == [Code.CLOSED] * 2
        assert (await view(server.engine, "s")).head == 3

    loop.run(story())


def test_writes_to_a_stream_that_is_made_anew_meanwhile_are_not_in_the_new_one(
    loop: VirtualLoop,
) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        streams, spec = server.engine.streams, Spec(content_type="application/json")
        await streams.create("s", spec, None)
        plain = Write("application/json")
        first, *others, _, made = await asyncio.gather(
            *(streams.write("s", draft([b"1"]), plain) for _ in range(3)),
            streams.delete("s"),
            streams.create("s", spec, None),
            return_exceptions=True,
        )
        assert isinstance(first, StreamWritten)
        assert [getattr(each, "code", None) for each in others] == [Code.LOG_NOT_FOUND] * 2
        assert isinstance(made, tuple)
        assert server.engine.state.by_name["s"].head == 0

    loop.run(story())


def test_a_schema_that_comes_meanwhile_counts_for_what_waits(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        engine = server.engine
        live, _ = await engine.streams.create("s", Spec(content_type="application/json"), None)
        registry = encode_registry(first_registry(b'{"type":"object"}', None))

        async def install() -> None:
            engine.commit([Register(live.log.id, registry)], sync=True)

        plain = Write("application/json")
        writes = [engine.streams.write("s", draft([each]), plain) for each in (b"1", b"2", b"{}")]
        first, second, third, _ = await asyncio.gather(*writes, install(), return_exceptions=True)
        assert isinstance(first, StreamWritten)
        assert isinstance(second, Refused)
        assert isinstance(third, StreamWritten)
        assert (first.last, third.last) == (1, 2)

    loop.run(story())


def test_whoever_observes_a_stream_hears_of_writes_that_went_together(loop: VirtualLoop) -> None:
    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        streams = server.engine.streams
        heads: list[int] = []
        await streams.create("s", Spec(content_type="application/json"), None)
        streams.observe_shown(lambda live: heads.append(live.visible))
        plain = Write("application/json")
        await asyncio.gather(*(streams.write("s", draft([b"1"]), plain) for _ in range(4)))
        assert heads == [1, 4]

    loop.run(story())


@pytest.mark.parametrize(
    ("was", "body", "became"),
    [("text/plain", b"not JSON", "application/json"), ("application/json", b"1", "text/plain")],
)
def test_what_was_parsed_for_another_stream_of_that_name_is_refused(
    loop: VirtualLoop, was: str, body: bytes, became: str
) -> None:
    """It waited for its turn to write, and the stream was made anew meanwhile."""

    async def story() -> None:
        server = await boot(HostileDisk(), VirtualClock(loop))
        streams, drafts = server.engine.streams, draft([body])
        drafts.media = None if was == "application/json" else was
        await streams.create("s", Spec(content_type=became), None)
        done = await asyncio.gather(
            *(streams.write("s", drafts, Write(was)) for _ in range(3)), return_exceptions=True
        )
        assert [getattr(each, "code", None) for each in done] == [Code.CONFLICT] * 3
        assert server.engine.state.by_name["s"].head == 0

    loop.run(story())


texts = st.none() | st.text(max_size=3)


@given(
    st.lists(
        st.lists(st.tuples(st.binary(max_size=3), texts, texts), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_drafts_one_behind_the_other_are_one(
    parts: list[list[tuple[bytes, str | None, str | None]]],
) -> None:
    def make(records: list[tuple[bytes, str | None, str | None]]) -> Drafts:
        datas, tags, keys = ([record[at] for record in records] for at in range(3))
        return draft(
            datas,  # type: ignore[arg-type]
            tags=tags if any(tag is not None for tag in tags) else None,  # type: ignore[arg-type]
            keys=keys if any(key is not None for key in keys) else None,  # type: ignore[arg-type]
        )

    whole = make([record for part in parts for record in part])
    joined = concat([*map(make, parts)])
    assert payloads(joined) == payloads(whole)
    assert (joined.tags, joined.keys, joined.metas) == (whole.tags, whole.keys, None)
