"""Versions of manifests: what was put is read back, wherever it lies; one of many wins; contents
are kept once and go with the last version that names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.core.errors import Code, Refused
from headrace.engine.contents import ContentsMissing
from headrace.engine.engine import Engine
from headrace.engine.start import stop
from headrace.surfaces.flags.versions import ManifestVersions, Retention
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
