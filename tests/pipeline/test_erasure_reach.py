"""What erasure says is still there is there, and nothing else: the whole data directory is looked
through for the bytes of deleted records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from headrace.core.config import LogConfig
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.engine import Engine
from headrace.formats import layout
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation
from headrace.storage.checks.findings import Problem
from headrace.storage.disk import RealDisk
from headrace.storage.verification import Verification
from headrace.surfaces.flags.versions import ManifestVersions, Retention
from support.directories import boot
from support.manifests import download, namespace, upload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "the-secret-of-4711"


def serve(root: Path, act: Callable[[Engine], Awaitable[object]]) -> None:
    """A short life of a server, which ends without a word."""

    async def live() -> None:
        started = await boot(root)
        upkeep = asyncio.create_task(started.upkeep.run())
        await act(started.engine)
        upkeep.cancel()
        await started.engine.journal.close()

    asyncio.run(live())


async def write(engine: Engine) -> None:
    datas = [b'"kept"', b'"%s"' % SECRET.encode(), b'"kept, too"']
    drafts = draft(datas, tags=[None, SECRET, None])
    await engine.appender.append("a", drafts, owner="topics", create=LogConfig())


async def delete(engine: Engine) -> None:
    await engine.deleter.delete("a", None, TagEq(SECRET))


def holders(root: Path) -> set[str]:
    """The folders of the data directory with files that hold the secret."""
    found = set()
    for path in root.rglob("*"):
        if path.is_file() and _holds(path):
            found.add(path.relative_to(root).parts[0])
    return found


def _holds(path: Path) -> bool:
    if SECRET.encode() in path.read_bytes():
        return True
    return path.suffix == ".parquet" and SECRET in str(pq.read_table(path).to_pydict())


def said(report: Report) -> set[str]:
    """Where a report says that dead records may be."""
    places = {"journal file": layout.JOURNAL, "object": layout.OBJECTS}
    return {place for word, place in places.items() if any(word in note for note in report.notes)}


def test_what_still_holds_deleted_records_is_told(spark: SparkSession, tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)

    async def delete_unsealed(engine: Engine) -> None:
        await write(engine)
        await delete(engine)

    async def seal(engine: Engine) -> None:
        await engine.seal()

    async def delete_sealed(engine: Engine) -> None:
        await write(engine)
        await engine.seal()
        await delete(engine)
        await engine.seal()  # nothing waits, but what is dead is marked

    async def retire(engine: Engine) -> None:
        await engine.seal(retire=True)

    serve(tmp_path, delete_unsealed)
    report = erase(spark, place, now=True)
    assert said(report) == holders(tmp_path) == {layout.JOURNAL}
    serve(tmp_path, seal)
    report = erase(spark, place, now=True)
    assert said(report) == holders(tmp_path) == {layout.JOURNAL}
    serve(tmp_path, delete_sealed)
    assert holders(tmp_path) == {layout.JOURNAL, layout.OBJECTS}
    report = erase(spark, place)
    assert said(report) == holders(tmp_path) == {layout.JOURNAL, layout.OBJECTS}
    report = erase(spark, place, now=True)
    assert report.rows == [], "rewritten the last time; only what that left is removed"
    assert said(report) == holders(tmp_path) == {layout.JOURNAL}
    serve(tmp_path, retire)
    report = erase(spark, place, now=True)
    assert (report.notes, holders(tmp_path)) == ([], set())
    serve(tmp_path, delete_sealed)
    compact(spark, place, Sizes(run_min=2))
    serve(tmp_path, retire)
    assert holders(tmp_path) == {layout.OBJECTS}, "what compaction left behind"
    report = erase(spark, place)
    assert said(report) == {layout.OBJECTS}
    report = erase(spark, place, now=True)
    assert (report.notes, holders(tmp_path)) == ([], set())


def test_contents_of_a_deleted_namespace_leave_the_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They are of a log that no surface shows, and are erased as any other; what others name stays
    and is read from rewritten segments.
    """
    place = StoreLocation(tmp_path)
    shared = {"flags/a.toml": b"kept by others"}
    secret = {**shared, "flags/b.toml": SECRET.encode()}

    async def put(engine: Engine) -> None:
        versions = ManifestVersions(engine, Retention())
        await upload(versions, await namespace(engine, "flags:acme:one"), secret)
        await engine.seal()
        for number in range(3):
            files = {**shared, "flags/c.toml": b"%d" % number}
            await upload(versions, await namespace(engine, "flags:acme:two"), files)
            await engine.seal()

    async def drop(engine: Engine) -> None:
        versions = ManifestVersions(engine, Retention())
        await versions.delete(await namespace(engine, "flags:acme:one"))
        await engine.seal(retire=True)

    async def look(engine: Engine) -> None:
        versions = ManifestVersions(engine, Retention())
        live = await namespace(engine, "flags:acme:two")
        for number in range(3):
            found = await download(engine, versions, live, number + 1)
            assert found == {**shared, "flags/c.toml": b"%d" % number}

    serve(tmp_path, put)
    serve(tmp_path, drop)
    assert holders(tmp_path) == {layout.OBJECTS}
    erase(spark, place, now=True)
    assert holders(tmp_path) == set()
    compact(spark, place, Sizes(run_min=2))
    serve(tmp_path, look)
    found = Verification(RealDisk(tmp_path)).run()
    assert [finding for finding in found if isinstance(finding, Problem)] == []
