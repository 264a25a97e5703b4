"""Versions of manifests: what was put is read back, wherever it lies; one of many wins; contents
are kept once and go with the last version that names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from headrace.core.contents import DIGEST_BYTES
from headrace.core.entry import Entry, Refer
from headrace.core.errors import Code, Refused
from headrace.core.limits import TREE_ROWS_MAX
from headrace.core.read import Slice
from headrace.core.sized_cache import SizedCache
from headrace.engine.contents import ContentsMissing
from headrace.engine.engine import Engine
from headrace.engine.start import stop
from headrace.search.values import format_date
from headrace.surfaces.flags.version_rows import encode_row
from headrace.surfaces.flags.versions import (
    TREE_PATH_BYTES,
    ContentMismatch,
    ManifestVersions,
    Retention,
)
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.manifests import ABOUT, digest, download, namespace, tree_of, upload
from support.virtual import VirtualClock, VirtualLoop


def run(loop: VirtualLoop, script: Callable[[Engine, ManifestVersions], Awaitable[None]]) -> None:
    async def whole() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        await script(started.engine, ManifestVersions(started.engine, Retention()))
        await stop(started)

    with small():
        loop.run_until_complete(whole())


def test_a_version_is_read_back(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        one = {"flags/a.toml": b"a", "flags/b.toml": b"b"}
        row = await upload(versions, live, one)
        assert (row.version, row.base, row.tree) == (1, 1, None)
        assert [(file.path, file.op) for file in row.files] == [
            ("flags/a.toml", "added"),
            ("flags/b.toml", "added"),
        ]
        assert await download(engine, versions, live, 1) == one
        assert await versions.row(live, 1) == row
        assert await versions.oldest(live) == 1

    run(loop, script)


def test_rows_say_what_each_version_changed(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        kept = {"flags/d.toml": b"d", "namespace.toml": b""}
        history = [
            {"flags/a.toml": b"a", "flags/b.toml": b"b", **kept},
            {"flags/a.toml": b"A", "flags/c.toml": b"b", **kept},
            {"flags/a.toml": b"A", "flags/c.toml": b"b", **kept},
        ]
        for files in history:
            await upload(versions, live, files)
        row = await versions.row(live, 2)
        a, big_a, b = (digest(content).hex() for content in (b"a", b"A", b"b"))
        assert [(f.path, f.op, f.sha256, f.previous_sha256) for f in row.files] == [
            ("flags/a.toml", "modified", big_a, a),
            ("flags/b.toml", "removed", None, b),
            ("flags/c.toml", "added", b, None),
        ]
        assert (await versions.row(live, 3)).files == ()  # the same files are a version, too
        for version, files in enumerate(history, 1):
            assert await download(engine, versions, live, version) == files
        heads = await versions.rows(live, None, 2)
        assert [head.version for head in heads] == [3, 2]
        assert [head.version for head in await versions.rows(live, 2, 10)] == [1]

    run(loop, script)


def test_of_many_behind_one_version_one_wins(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        for base in range(3):
            uploads = [
                upload(versions, live, {"flags/a.toml": b"%d-%d" % (base, each)}, base)
                for each in range(5)
            ]
            answers = await asyncio.gather(*uploads, return_exceptions=True)
            rows = [answer for answer in answers if not isinstance(answer, BaseException)]
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            assert [row.version for row in rows] == [base + 1]
            assert [each.code for each in refused] == [Code.CONFLICT] * 4
            assert {each.detail["current_version"] for each in refused} == {base + 1}
        # Whoever does not ask overwrites, and so does not depend on others.
        uploads = [upload(versions, live, {"flags/a.toml": b"%d" % each}) for each in range(5)]
        assert [row.version for row in await asyncio.gather(*uploads)] == [4, 5, 6, 7, 8]

    run(loop, script)


def test_a_content_is_kept_once_whoever_names_it(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        one, two = await namespace(engine, "flags:acme:one"), await namespace(engine, "flags:b:two")
        files = {"flags/a.toml": b"same", "flags/b.toml": b"same"}
        await upload(versions, one, files)
        assert not versions.missing(tree_of(files))
        await upload(versions, two, files)
        assert len(engine.contents) == 1
        held = engine.contents.held
        assert held is not None
        assert held.references(digest(b"same")) == 4
        await versions.delete(one)
        assert await download(engine, versions, two, 1) == files
        await versions.delete(two)
        assert len(engine.contents) == 0
        assert engine.state.by_name["__flags/contents"].count == 0
        assert "flags:acme:one" not in engine.state.by_name

    run(loop, script)


def test_a_content_that_is_neither_there_nor_brought_is_asked_for(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        tail = engine.journal.tail
        with pytest.raises(ContentsMissing) as missing:
            await versions.put(
                live, {"a": digest(b"a"), "b": digest(b"b")}, {digest(b"b"): b"b"}, ABOUT
            )
        assert missing.value.digests == {digest(b"a")}
        assert engine.journal.tail == tail
        assert live.log.head == 0

    run(loop, script)


def test_contents_that_are_not_their_digest_are_no_version(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        with pytest.raises(ContentMismatch):
            await versions.put(live, {"a": digest(b"a")}, {digest(b"a"): b"b"}, ABOUT)
        assert (live.log.head, len(engine.contents)) == (0, 0)

    run(loop, script)


def test_a_content_that_goes_while_an_upload_wants_it_is_asked_for(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        one, two = await namespace(engine, "flags:acme:one"), await namespace(engine, "flags:b:two")
        files = {"flags/a.toml": b"shared", "flags/b.toml": b"shared"}
        await upload(versions, one, files)
        assert not versions.missing(tree_of(files))
        await versions.delete(one)  # the last who named it
        with pytest.raises(ContentsMissing) as missing:
            await versions.put(two, tree_of(files), {}, ABOUT)
        assert missing.value.digests == {digest(b"shared")}
        await versions.put(two, tree_of(files), {digest(b"shared"): b"shared"}, ABOUT)
        assert await download(engine, versions, two, 1) == files

    run(loop, script)


def test_what_is_put_while_its_namespace_goes_is_there_before_or_not_at_all(
    loop: VirtualLoop,
) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        for first in ("put", "delete"):
            live = await namespace(engine)
            await upload(versions, live, {"flags/a.toml": b"1"})
            acts = {
                "put": lambda live=live: upload(versions, live, {"flags/a.toml": b"2"}),
                "delete": lambda live=live: versions.delete(live),
            }
            order = [first, *(name for name in acts if name != first)]
            answers = dict(
                zip(
                    order,
                    await asyncio.gather(*(acts[a]() for a in order), return_exceptions=True),
                    strict=True,
                )
            )
            assert answers["delete"] is None
            if first == "put":
                assert answers["put"].version == 2
            else:
                assert answers["put"].code is Code.LOG_NOT_FOUND
            assert len(engine.contents) == 0
            for late in (
                lambda live=live: versions.delete(live),
                lambda live=live: upload(versions, live, {}, 7),  # no word of its last version
            ):
                with pytest.raises(Refused) as refused:
                    await late()
                assert refused.value.code is Code.LOG_NOT_FOUND
        live = await namespace(engine)
        row = await upload(versions, live, {"flags/a.toml": b"1"}, 0)
        assert row.version == 1  # a namespace of the same name begins anew

    run(loop, script)


def test_uploads_are_held_back_like_other_writes(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        engine.admission.room.clear()
        with pytest.raises(Refused) as refused:
            await upload(versions, live, {"flags/a.toml": b"1"})
        assert (refused.value.code, live.log.head) == (Code.THROTTLED, 0)
        engine.admission.room.set()
        assert (await upload(versions, live, {"flags/a.toml": b"1"})).version == 1

    run(loop, script)


def test_upkeep_releases_what_grew_old_and_what_was_pushed_out(loop: VirtualLoop) -> None:
    retention = Retention(versions=2, age_ms=10_000)

    async def whole() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine, versions = started.engine, ManifestVersions(started.engine, retention)
        upkeep = asyncio.create_task(versions.run())
        live = await namespace(engine)
        for number in range(5):
            await upload(versions, live, {"flags/a.toml": b"%d" % number})
        await asyncio.sleep(1)
        assert engine.contents.held_from(live) == 1  # all of them are young
        assert await versions.oldest(live) == 1
        await asyncio.sleep(11)
        assert await versions.oldest(live) == 4  # who asks is told at once
        await asyncio.sleep(600)
        assert engine.contents.held_from(live) == 4
        gone = {digest(b"0"), digest(b"2")}
        assert engine.contents.missing(gone) == gone
        await upload(versions, live, {"flags/a.toml": b"5"})
        await asyncio.sleep(0.01)
        assert engine.contents.held_from(live) == 5  # behind an upload nobody waits for a round
        upkeep.cancel()
        await stop(started)

    with small():
        loop.run(whole())


def test_a_clock_that_jumps(loop: VirtualLoop) -> None:
    """Versions are told in the order of their times, and what was released does not come back."""

    async def whole() -> None:
        clock = VirtualClock(loop)
        started = await boot(HostileDisk(), clock)
        engine = started.engine
        versions = ManifestVersions(engine, Retention(versions=1, age_ms=10_000))
        live = await namespace(engine)
        told = []
        for number, skew_ms in enumerate((0, 60_000, 0)):
            clock.skew_ms = skew_ms
            told.append(await upload(versions, live, {"flags/a.toml": b"%d" % number}))
            if number == 1:
                assert not await versions.prune(live)
                assert engine.contents.held_from(live) == 2
        times = [row.uploaded_at for row in told]
        assert times[1] == times[2] > times[0]
        assert times[2] == format_date(live.log.last_ts_ms)
        versions = ManifestVersions(engine, Retention(versions=1, age_ms=10_000))  # a new start
        assert await versions.oldest(live) == 2
        with pytest.raises(Refused) as refused:
            await versions.tree(live, 1)
        assert refused.value.code is Code.GONE
        assert await download(engine, versions, live, 2) == {"flags/a.toml": b"1"}
        await stop(started)

    with small():
        loop.run(whole())


def test_a_namespace_of_the_same_name_outlives_who_deletes_the_one_before(
    loop: VirtualLoop,
) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        old = await namespace(engine)
        await upload(versions, old, {"flags/a.toml": b"old"})
        await versions.delete(old)
        new = await namespace(engine)
        await upload(versions, new, {"flags/a.toml": b"new"})
        with pytest.raises(Refused) as refused:
            await versions.delete(old)
        assert refused.value.code is Code.LOG_NOT_FOUND
        assert await download(engine, versions, new, 1) == {"flags/a.toml": b"new"}

    run(loop, script)


def test_upkeep_goes_on_where_it_was_held_up(loop: VirtualLoop) -> None:
    """By a namespace that goes meanwhile not at all, by a full disk until the next upload."""

    async def whole() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine = started.engine
        versions = ManifestVersions(engine, Retention(versions=1, age_ms=0))
        lives = [await namespace(engine, f"flags:acme:{number}") for number in range(4)]

        async def upload_all() -> None:
            for live in lives:
                for number in range(2):
                    said = b"%d of %d" % (number, live.log.id)
                    await upload(versions, live, {"flags/a.toml": said})

        def held() -> list[int]:
            return [engine.contents.held_from(live) for live in lives]

        await upload_all()
        async with versions._lock(lives[0]):  # both wait, in this order
            going = asyncio.create_task(versions.delete(lives[0]))
            await asyncio.sleep(1)
            upkeep = asyncio.create_task(versions.run())
            await asyncio.sleep(1)
        await going
        await asyncio.sleep(1)
        assert held() == [0, 2, 2, 2]
        del lives[0]
        with mock.patch.object(
            engine.contents, "release", side_effect=Refused(Code.STORAGE_UNAVAILABLE, "no room")
        ):
            await upload_all()
            await asyncio.sleep(1)
        await upload(versions, lives[0], {})
        await asyncio.sleep(1)
        assert held() == [5, 4, 4]
        upkeep.cancel()
        await stop(started)

    with small():
        loop.run(whole())


def test_upkeep_outlives_a_disk_without_room(loop: VirtualLoop) -> None:
    async def whole() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine = started.engine
        versions = ManifestVersions(engine, Retention(versions=1, age_ms=0))
        upkeep = asyncio.create_task(versions.run())
        live = await namespace(engine)
        with mock.patch.object(
            engine.contents, "release", side_effect=Refused(Code.STORAGE_UNAVAILABLE, "no room")
        ):
            for number in range(3):
                await upload(versions, live, {"flags/a.toml": b"%d" % number})
            await asyncio.sleep(1)
            assert engine.contents.held_from(live) == 1
        await asyncio.sleep(600)
        assert engine.contents.held_from(live) == 3
        assert not upkeep.done()
        upkeep.cancel()
        await stop(started)

    with small():
        loop.run(whole())


def test_upkeep_says_once_that_it_cannot_go_on_and_nothing_when_read_only(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def whole() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine = started.engine
        versions = ManifestVersions(engine, Retention(versions=1, age_ms=0))
        lives = [await namespace(engine, f"flags:acme:{number}") for number in range(5)]
        for live in lives:
            for number in range(3):
                await upload(versions, live, {"flags/a.toml": b"%d" % number})
        refused = Refused(Code.STORAGE_UNAVAILABLE, "no room")
        with mock.patch.object(engine.contents, "release", side_effect=refused):
            upkeep = asyncio.create_task(versions.run())
            await asyncio.sleep(1)
        assert [record.message for record in caplog.records] == ["contents are not released yet"]
        engine.journal._fail(OSError("no disk"))
        caplog.clear()
        await asyncio.sleep(601)
        assert caplog.records == []
        assert {engine.contents.held_from(live) for live in lives} == {1}
        assert not upkeep.done()
        upkeep.cancel()

    with small():
        loop.run(whole())


def test_a_clock_that_goes_back_brings_nothing_back(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        versions = ManifestVersions(engine, Retention(versions=1, age_ms=1000))
        live = await namespace(engine)
        await upload(versions, live, {"flags/a.toml": b"1"})
        await upload(versions, live, {"flags/a.toml": b"2"})
        await asyncio.sleep(5)
        assert not await versions.prune(live)
        assert engine.contents.held_from(live) == 2
        with mock.patch.object(engine.clock, "now_ms", return_value=engine.clock.now_ms() - 5000):
            assert await versions.oldest(live) == 2
            with pytest.raises(Refused) as refused:
                await versions.tree(live, 1)
        assert refused.value.code is Code.GONE

    run(loop, script)


def test_what_is_young_is_looked_for_once_until_it_is_not(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        versions = ManifestVersions(engine, Retention(versions=2, age_ms=10_000))
        live = await namespace(engine)
        seek = engine.reader.seek
        with mock.patch.object(engine.reader, "seek", side_effect=seek) as sought:
            for number in range(6):
                await upload(versions, live, {"flags/a.toml": b"%d" % number})
                await asyncio.sleep(1)
                assert await versions.oldest(live) == 1
            assert sought.call_count == 1
            await asyncio.sleep(6.5)  # the first three are too old
            assert [await versions.oldest(live) for _ in range(5)] == [4] * 5
            assert sought.call_count == 2
            await upload(versions, live, {"flags/a.toml": b"new"})
            assert await versions.oldest(live) == 4
            assert sought.call_count == 2
            assert not await versions.prune(live)
            await asyncio.sleep(60)
            assert await versions.oldest(live) == 6
            assert not await versions.prune(live)
            sought.reset_mock()
            assert await versions.oldest(live) == 6
            assert sought.call_count == 0  # nothing before it is held

    run(loop, script)


def test_trees_take_a_bounded_amount_of_memory(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        with mock.patch.object(versions, "_trees", SizedCache(TREE_PATH_BYTES * 50, kept_min=1)):
            lives = [await namespace(engine, f"flags:acme:{number}") for number in range(9)]
            files = {f"flags/{number}.toml": b"%d" % number for number in range(20)}
            for live in lives:
                for number in range(3):
                    await upload(versions, live, {**files, "flags/a.toml": b"%d" % number})
            held = versions._trees._held
            assert sum(len(tree.paths) for tree, _ in held.values()) <= 50
            for live in lives:
                found = await download(engine, versions, live, 2)
                assert found == {**files, "flags/a.toml": b"1"}
            # One that alone is too large is kept while it is the last that was used.
            large = {f"flags/{number}.toml": b"" for number in range(60)}
            await upload(versions, lives[0], large)
            assert len(held) == 1

    run(loop, script)


def test_trees_without_files_take_memory_too(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        room = TREE_PATH_BYTES * 50
        with mock.patch.object(versions, "_trees", SizedCache(room, kept_min=1)):
            live = await namespace(engine)
            for _ in range(200):
                await upload(versions, live, {})
            assert len(versions._trees._held) <= 50

    run(loop, script)


def test_no_tree_takes_more_rows_than_it_may(loop: VirtualLoop) -> None:
    """Around the row that stores a whole tree, by somebody who knows nothing yet."""

    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        files = {f"flags/{number}.toml": b"%d" % number for number in range(2 * TREE_ROWS_MAX)}
        history = []
        for number in range(TREE_ROWS_MAX + 2):
            files |= {f"flags/{number}.toml": b"changed"}
            history.append(dict(files))
            await upload(versions, live, files)
        whole = TREE_ROWS_MAX + 1
        rows = {version: await versions.row(live, version) for version in range(1, whole + 2)}
        assert [version for version, row in rows.items() if row.tree is not None] == [whole]
        assert {row.base for version, row in rows.items() if version < whole} == {1}
        assert {rows[whole].base, rows[whole + 1].base} == {whole}
        for version in (whole - 1, whole, whole + 1):
            cold = ManifestVersions(engine, Retention())
            assert await download(engine, cold, live, version) == history[version - 1]

    run(loop, script)


def test_ten_thousand_files(loop: VirtualLoop) -> None:
    """A row that is larger than records of other surfaces may be, read by everybody."""
    files = {f"flags/{'x' * 40}{number}.toml": b"%d" % number for number in range(10_000)}

    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        await upload(versions, live, files)
        await upload(versions, live, {path: content + b"!" for path, content in files.items()})
        row = await versions.row(live, 2)
        assert (len(row.files), row.base) == (10_000, 2)  # stored whole: that takes less
        page = await engine.reader.read(live, 0, records_max=10, bytes_max=1000)
        assert [
            (len(piece.picks), piece.block.measure(0, 1) > 1 << 20) for piece in page.slices
        ] == [(1, True)]
        heads = await versions.rows(live, None, 10)
        assert [head.version for head in heads] == [2, 1]
        again = ManifestVersions(engine, Retention())
        assert await download(engine, again, live, 1) == files

    run(loop, script)


def test_a_list_reads_no_more_rows_at_once_than_it_may_look_at(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        live = await namespace(engine)
        for number in range(20):
            await upload(versions, live, {f"flags/{n}.toml": b"%d" % number for n in range(40)})
        row_bytes = len(encode_row(await versions.row(live, 20)))
        read_bytes: list[int] = []
        fetch = engine.fetcher.fetch

        async def counted(*args: Any) -> list[Slice]:
            found = await fetch(*args)
            read_bytes.append(
                sum(each.block.measure(at, at + 1) for each in found for at in each.picks)
            )
            return found

        with (
            mock.patch("headrace.surfaces.flags.versions.LISTED_ROWS_BYTES_MAX", 3 * row_bytes),
            mock.patch.object(engine.fetcher, "fetch", counted),
        ):
            listed = await versions.rows(live, None, 100)
            assert [head.version for head in listed] == [20, 19, 18]
            assert max(read_bytes) < 5 * row_bytes
            more = await versions.rows(live, 3, 100)
            assert [head.version for head in more] == [2, 1]

    run(loop, script)


def test_a_namespace_with_a_long_history_is_deleted_in_steps(loop: VirtualLoop) -> None:
    async def script(engine: Engine, versions: ManifestVersions) -> None:
        other, live = await namespace(engine, "flags:acme:other"), await namespace(engine)
        kept = {"flags/0.toml": b"3"}
        await upload(versions, other, kept)
        for number in range(9):
            await upload(versions, live, {f"flags/{n}.toml": b"%d" % number for n in range(20)})
        released: list[int] = []
        enqueue = engine.journal.enqueue

        def counted(entries: Sequence[Entry], **how: Any) -> int:
            released.extend(
                len(entry.released) // DIGEST_BYTES for entry in entries if isinstance(entry, Refer)
            )
            return enqueue(entries, **how)

        with (
            mock.patch("headrace.surfaces.flags.versions.DROPPED_REFERENCES_MAX", 50),
            mock.patch("headrace.surfaces.flags.versions.RELEASED_ROWS_MAX", 2),
            mock.patch.object(engine.journal, "enqueue", counted),
        ):
            await versions.delete(live)
        assert live.log.name not in engine.state.by_name
        assert max(released) <= 50
        assert len(engine.contents) == 1
        assert await download(engine, versions, other, 1) == kept

    run(loop, script)
