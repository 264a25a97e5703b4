"""Contents in operation: read in few steps wherever they lie, refused where there is no room for
them, and nothing changed by what was refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from errno import ENOSPC
from hashlib import sha256
from typing import Any
from unittest import mock

import pytest

from headrace.core.cap import Cap
from headrace.core.config import LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.owners import FLAGS_CONTENTS
from headrace.core.record import Drafts, draft
from headrace.engine import contents as module
from headrace.engine.caps import Caps
from headrace.engine.contents import ContentsMissing
from headrace.engine.open_log import OpenLog
from headrace.engine.start import Started, stop
from headrace.engine.upkeep import cycle
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.formats.snapshot import encode_part
from headrace.storage import snapshots
from headrace.storage.disk import Disk
from headrace.storage.segments import Segments
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.inline_ports import Inline
from support.manifests import digest, namespace
from support.virtual import VirtualClock, VirtualLoop

ROW = draft([b"{}"])
FORGETFUL = Caps(tail_bytes=0)
Script = Callable[[Started], Awaitable[None]]


def run(loop: VirtualLoop, script: Script, **how: Any) -> None:
    async def whole() -> None:
        disk = HostileDisk()
        started = await boot(disk, VirtualClock(loop), **how)
        await script(started)
        await stop(started)

    loop.run(whole())


class Counted(Inline):
    """Counts what runs off the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        return await super().run(work, *args, **kwargs)


def test_many_contents_take_one_read_of_each_row_group(loop: VirtualLoop) -> None:
    contents = {digest(b"%d" % number): b"%d" % number for number in range(500)}
    pool = Counted()

    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        digests = list(contents)
        for start in range(0, 500, 100):  # five segments
            some = digests[start : start + 100]
            await engine.contents.commit(live, ROW, some, contents, engine.clock.now_ms())
            started.upkeep.close_file()
            await started.upkeep.checkpoint()
        store = engine.state.by_name[FLAGS_CONTENTS]
        assert len(store.extents) == 5
        assert engine.open_logs[store.id].tail.start > 500, "they are in memory"
        pool.runs = 0
        with mock.patch.object(
            Segments, "_table", autospec=True, side_effect=Segments._table
        ) as read:
            assert await engine.contents.read(reversed(digests)) == contents
            assert pool.runs == 1
            assert read.call_count == 5
            some = digests[7:450:60]
            assert await engine.contents.read(some) == {each: contents[each] for each in some}
            assert pool.runs == 2
        assert await engine.contents.read([digest(b"not there")]) == {}
        assert await engine.contents.read([]) == {}
        assert pool.runs == 2

    run(loop, script, pool=pool, caps=FORGETFUL, pace=UpkeepPace(seal_bytes=1 << 20))


def test_contents_in_memory_are_copied_in_slices(loop: VirtualLoop) -> None:
    """Others have a turn between them, and what leaves memory meanwhile is found all the same."""
    contents = {digest(b"%d" % number): b"%d" % number for number in range(1000)}

    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        await engine.contents.commit(live, ROW, list(contents), contents, engine.clock.now_ms())
        started.upkeep.close_file()
        await started.upkeep.checkpoint()
        store = engine.open_logs[engine.state.by_name[FLAGS_CONTENTS].id]
        assert store.tail.start == 1, "they are in segments alone"
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                if turns == 5:
                    engine.free(store, 1000)
                await asyncio.sleep(0)

        with mock.patch(
            "headrace.engine.flow.time_slices.perf_counter", itertools.count().__next__
        ):
            beside = asyncio.create_task(others())
            assert await engine.contents.read(contents) == contents
        beside.cancel()
        assert turns > 10
        assert store.tail.start > 1000, "they are still in memory"

    run(loop, script, caps=Caps(tail_bytes=1 << 20), pace=UpkeepPace(seal_bytes=1 << 20))


def test_what_was_joined_before_is_not_put_together_again(loop: VirtualLoop) -> None:
    contents = {digest(b"%d" % number): b"%d" % number for number in range(1000)}
    tree, other = {digest(b"tree"): b"tree"}, {digest(b"other"): b"other"}

    async def script(started: Started) -> None:
        engine = started.engine
        live, store = await namespace(engine), engine.contents
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        with (
            mock.patch("headrace.engine.contents._JOINED_STEP_BYTES", 100),
            mock.patch("headrace.engine.flow.time_slices.perf_counter", itertools.count().__next__),
        ):
            beside = asyncio.create_task(others())
            joined = await store.join(contents | other)
        beside.cancel()
        assert turns > 10
        put_together = mock.patch.object(module, "_joined", wraps=module._joined)
        # One of them came with another version meanwhile, and goes with it.
        await store.commit(live, ROW, list(other), other, 0)
        with put_together as made:
            await store.commit(live, ROW, list(contents), contents | other, 0, joined)
            assert [len(call.args[0]) for call in made.mock_calls] == [1000]
        again = await namespace(engine, "flags:acme:again")
        changed = {digest(data): data for data in (b"!" + each for each in contents.values())}
        joined = await store.join(changed)
        with put_together as made:
            await store.commit(again, ROW, [*changed, *tree], changed | tree, 0, joined)
            assert [len(call.args[0]) for call in made.mock_calls] == [1]
        whole = contents | other | changed | tree
        assert await store.read(whole) == whole
        assert len(store) == len(whole)

    run(loop, script, caps=Caps(tail_bytes=1 << 20))


def test_a_snapshot_of_many_contents_is_not_copied(loop: VirtualLoop) -> None:
    contents = {digest(b"%d" % number): b"%d" % number for number in range(100)}
    made: list[bytes] = []
    written: list[bytes] = []

    def encode(part: Any) -> bytes:
        made.append(encode_part(part))
        return made[-1]

    write_it = snapshots.write

    def write(disk: Disk, position: int, parts: Iterable[bytes]) -> None:
        written.extend(parts)
        write_it(disk, position, written)

    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        await engine.contents.commit(live, ROW, list(contents), contents, 0)
        with (
            mock.patch.object(cycle, "_PIECE_BYTES", 3000),
            mock.patch.object(cycle, "encode_part", encode),
            mock.patch.object(snapshots, "write", write),
        ):
            await started.upkeep.snapshot()
        largest = max(made, key=len)
        assert len(largest) > 3000
        assert any(part is largest for part in written)
        assert b"".join(written) == b"".join(made)

    run(loop, script)


def test_before_anything_was_stored(loop: VirtualLoop) -> None:
    async def script(started: Started) -> None:
        contents = started.engine.contents
        assert await contents.read([digest(b"a")]) == {}
        assert contents.missing([digest(b"a")])
        assert contents.missing([digest(b"a")]) == {digest(b"a")}
        assert len(contents) == 0
        live = await namespace(started.engine)
        assert contents.held_from(live) == 0
        await contents.drop(live, [])
        assert FLAGS_CONTENTS not in started.engine.state.by_name

    run(loop, script)


@pytest.mark.parametrize(
    ("patched", "code"),
    [
        (mock.patch("headrace.core.contents._CAP", Cap("max_contents", 2)), Code.THROTTLED),
        (mock.patch("headrace.formats.frame.FRAME_BYTES_MAX", 400), Code.BODY_TOO_LARGE),
    ],
)
def test_what_is_refused_changes_nothing(loop: VirtualLoop, patched: Any, code: Code) -> None:
    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        tail, state = engine.journal.tail, len(engine.state.logs)
        new = {digest(text): text * 100 for text in (b"a", b"b", b"c")}
        with patched, pytest.raises(Refused) as refused:
            engine.contents.commit(live, ROW, list(new), new, 0)
        assert refused.value.code is code
        assert (engine.journal.tail, len(engine.state.logs), live.log.head) == (tail, state, 0)
        await engine.contents.commit(live, ROW, list(new), new, 0)
        assert await engine.contents.read(new) == new

    run(loop, script)


def test_the_cap_of_all_records_counts_row_and_contents(loop: VirtualLoop) -> None:
    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)

        def put(size: int) -> asyncio.Future[None]:
            content = b"x" * size
            return engine.contents.commit(
                live, ROW, [digest(content)], {digest(content): content}, 0
            )

        # The row counts for 18, a content for 16 and itself.
        with pytest.raises(Refused) as refused:
            put(1000 - 18 - 16 + 1)
        assert refused.value.detail["limit"] == "max_total_bytes"
        await put(1000 - 18 - 16)
        assert engine.state.size_bytes == 1000

    run(loop, script, caps=Caps(total_bytes=1000))


def test_a_server_that_is_read_only_reads_on(loop: VirtualLoop) -> None:
    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        new = {digest(b"a"): b"a"}
        await engine.contents.commit(live, ROW, list(new), new, 0)
        engine.journal._fail(OSError("no disk"))
        assert await engine.contents.read(new) == new
        with pytest.raises(Refused) as refused:
            engine.contents.commit(live, ROW, list(new), {}, 0)
        assert refused.value.code is Code.READ_ONLY
        for act in (
            lambda: engine.contents.release(live, [digest(b"a")], 2),
            lambda: engine.contents.commit(live, ROW, [digest(b"b")], {digest(b"b"): b"b"}, 0),
        ):
            with pytest.raises(Refused) as refused:
                act()
            assert refused.value.code is Code.READ_ONLY
        with pytest.raises(Refused) as refused:
            await engine.contents.drop(live, [digest(b"a")])
        assert refused.value.code is Code.READ_ONLY
        assert await engine.contents.read(new) == new
        assert engine.contents.held_from(live) == 1

    run(loop, script)


def test_nothing_is_begun_that_cannot_be_written(loop: VirtualLoop) -> None:
    """A disk without room, a namespace that is gone, a server about to stop: nothing changes."""

    async def script(started: Started) -> None:
        engine = started.engine
        live, gone = await namespace(engine), await namespace(engine, "flags:acme:gone")
        old, new = {digest(b"a"): b"a"}, {digest(b"b"): b"b"}
        await engine.contents.commit(live, ROW, list(old), old, 0)
        store = engine.open_logs[engine.state.by_name[FLAGS_CONTENTS].id]
        assert (store.visible, live.visible) == (1, 1)
        await engine.contents.drop(gone, [])

        def commit(into: OpenLog) -> None:
            engine.contents.commit(into, ROW, list(new), new, 0)

        def release(by: OpenLog) -> None:
            engine.contents.release(by, list(old), 2)

        def refusal(work: Callable[[OpenLog], None], live: OpenLog = live) -> Code:
            tail = engine.journal.tail
            with pytest.raises(Refused) as refused:
                work(live)
            assert engine.journal.tail == tail
            return refused.value.code

        assert refusal(commit, gone) is Code.LOG_NOT_FOUND
        assert refusal(release, gone) is Code.LOG_NOT_FOUND
        with mock.patch.object(engine.journal, "stall", OSError(ENOSPC, "no room")):
            assert refusal(commit) is Code.STORAGE_UNAVAILABLE
            assert refusal(release) is Code.STORAGE_UNAVAILABLE
        with mock.patch.object(engine, "draining", new=True):
            assert refusal(commit) is Code.SHUTTING_DOWN
        assert (live.log.head, len(engine.contents)) == (1, 1)

    run(loop, script)


def test_what_is_neither_there_nor_brought_is_told(loop: VirtualLoop) -> None:
    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        with pytest.raises(ContentsMissing) as missing:
            engine.contents.commit(live, ROW, [digest(b"a"), digest(b"b")], {digest(b"a"): b"a"}, 0)
        assert missing.value.digests == {digest(b"b")}
        assert len(engine.contents) == 0

    run(loop, script)


def test_fifty_megabytes_are_one_frame(loop: VirtualLoop) -> None:
    """As much as an archive may hold: all of it comes with the version, or nothing."""
    size = 5 << 20
    new = {sha256(bytes([n]) * size).digest(): bytes([n]) * size for n in range(10)}

    async def script(started: Started) -> None:
        engine = started.engine
        live = await namespace(engine)
        frames = engine.journal.stats.frames
        await engine.contents.commit(live, ROW, list(new), new, 0)
        assert engine.journal.stats.frames == frames + 1
        assert await engine.contents.read(new) == new

    run(loop, script, pace=UpkeepPace(seal_bytes=1 << 30))


def test_only_flags_name_contents(loop: VirtualLoop) -> None:
    async def script(started: Started) -> None:
        engine = started.engine
        log, _ = await engine.logs.put("topic", "topics", LogConfig())
        with pytest.raises(Refused) as refused:
            engine.contents.commit(engine.open_logs[log.id], Drafts(b"", b""), [], {}, 0)
        assert refused.value.code is Code.LOG_INCOMPATIBLE

    run(loop, script)
