"""Manifests ready for use: loaded once for all who ask, files held once for all versions, bounded;
and uploads, which parse what is new and nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import pytest

from headrace.core.errors import Code, Refused
from headrace.engine.contents import ContentsMissing
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.start import stop
from headrace.flags.archive import compress_tar, write_tar
from headrace.flags.closure import hash_row
from headrace.flags.evaluation import evaluate
from headrace.flags.model import LintProblem, LintReport
from headrace.flags.parsing import parse_file
from headrace.processes.manifest_messages import CheckArchive, FetchFiles, FileSummary, ParseFiles
from headrace.surfaces.flags import manifests as module
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.manifests import ManifestFile, Manifests
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from headrace.surfaces.flags.uploads import check_report
from headrace.surfaces.flags.versions import Retention
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.inline_checker import InlineChecker
from support.manifests import FLAG_FILE, digest, namespace
from support.virtual import VirtualClock, VirtualLoop

FLAG = b"""
schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
on = true
off = false
[flag.environments._]
variant = "off"
[[flag.environments._.rules]]
segment = "employees"
variant = "on"
"""
SEGMENT = b"""
schema_version = "0.1"
[segment.predicate]
attribute = "user.email"
op = "ends_with"
value = "@example.com"
"""
NAMESPACE = b"""
schema_version = "0.1"
[namespace]
slug = "billing"
"""
FILES = {
    "flags/a.toml": FLAG,
    "flags/b.toml": FLAG + b"# b",
    "namespace.toml": NAMESPACE,
    "segments/employees.toml": SEGMENT,
}


class World:
    """An engine, what the surface has of manifests over it, and what was asked of the process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.checker = InlineChecker()
        self.metrics = ManifestMetrics(self.checker.counts)
        self.store = ManifestStore(engine, Retention(), self.checker, self.metrics, StreamMetrics())

    def restarted(self) -> World:
        """The same engine for a surface that knows nothing yet."""
        return World(self.engine)

    async def upload(
        self, live: OpenLog, files: dict[str, bytes], if_version: int | None = None
    ) -> int:
        row, _ = await self.store.uploads.store(live, archive_of(files), "tok_1", if_version)
        return row.version

    @property
    def parsed(self) -> int:
        return int(self.metrics.files_parsed.value)


def archive_of(files: dict[str, bytes]) -> CheckArchive:
    head = b"--x\r\nContent-Disposition: form-data; name=archive\r\n\r\n"
    body = head + compress_tar(write_tar(files)) + b"\r\n--x--"
    return CheckArchive("multipart/form-data; boundary=x", body, 1 << 20, 1 << 20)


def run(loop: VirtualLoop, script: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        await script(World(started.engine))
        await stop(started)

    with small():
        loop.run_until_complete(whole())


def test_what_was_uploaded_is_at_hand(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        assert world.store.manifests.find(live) is None
        assert await world.upload(live, FILES) == 1
        manifest = world.store.manifests.find(live)
        assert manifest is not None
        assert manifest is await world.store.manifests.load(live)
        assert manifest.version == 1
        assert manifest.digests == {path: digest(content) for path, content in FILES.items()}
        assert manifest.rows == {path: hash_row(path, digest(FILES[path])) for path in FILES}
        assert manifest.segment_graph.flags == {"a": ("employees",), "b": ("employees",)}
        assert manifest.segment_graph.segments == {"employees": ()}
        definitions = manifest.definitions
        assert (set(definitions.flags), len(definitions.segments)) == ({"a", "b"}, 1)
        assert definitions.namespace is not None
        assert definitions.namespace.slug == "billing"
        context = {"user": {"email": "ann@example.com"}}
        assert evaluate(definitions, "a", context).rule_matched == "rule:0"
        assert world.metrics.loads.value == 0

    run(loop, script)


def test_one_changed_file_is_all_that_is_parsed_and_fetched(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        before = world.store.manifests.find(live)
        assert (world.parsed, world.metrics.files_checked.value) == (4, 4)
        world.checker.requests.clear()
        changed = FILES | {"flags/a.toml": FLAG + b"# changed"}
        assert await world.upload(live, changed) == 2
        assert (world.parsed, world.metrics.files_checked.value) == (5, 8)
        [fetch] = [each for each in world.checker.requests if isinstance(each, FetchFiles)]
        assert fetch == FetchFiles([digest(changed["flags/a.toml"])], ["flags/a.toml"])
        after = world.store.manifests.find(live)
        assert before is not None
        assert after is not None
        for path in ("flags/b.toml", "namespace.toml", "segments/employees.toml"):
            assert before.rows[path] is after.rows[path]  # of the one file that both share

    run(loop, script)


def test_nothing_is_fetched_of_what_is_known(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        first, second = await namespace(world.engine), await namespace(world.engine, "flags:b:c")
        await world.upload(first, FILES)
        world.checker.requests.clear()
        assert await world.upload(first, FILES) == 2
        assert await world.upload(second, FILES) == 1
        assert not [each for each in world.checker.requests if isinstance(each, FetchFiles)]
        assert world.parsed == 4

    run(loop, script)


def test_a_restarted_server_loads_from_what_is_stored(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        known = world.store.manifests.find(live)
        world = world.restarted()
        loaded = await world.store.manifests.load(live)
        assert known is not None
        assert (loaded.digests, loaded.rows) == (known.digests, known.rows)
        assert loaded.segment_graph == known.segment_graph
        assert evaluate(loaded.definitions, "b", {}).variant == "off"
        assert (world.metrics.loads.value, world.parsed) == (1, 4)
        assert await world.store.manifests.load(live) is loaded
        assert world.metrics.loads.value == 1

    run(loop, script)


def test_all_who_ask_at_once_get_the_same(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        manifests = world.restarted().store.manifests
        asked = [asyncio.ensure_future(manifests.load(live)) for _ in range(5)]
        first, *others = await asyncio.gather(*asked)
        assert all(each is first for each in others)
        assert manifests._metrics.loads.value == 1

    run(loop, script)


def test_who_gives_up_takes_nobody_along(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        manifests = world.restarted().store.manifests
        first, second, third = (asyncio.ensure_future(manifests.load(live)) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        assert (await third).version == 1
        assert first.cancelled()
        assert second.cancelled()
        assert not manifests._loading

    run(loop, script)


def test_all_hear_of_a_failure_and_the_next_one_tries_again(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        world = world.restarted()
        manifests = world.store.manifests
        world.checker.ask = _failing  # type: ignore[assignment]
        asked = [asyncio.ensure_future(manifests.load(live)) for _ in range(3)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [getattr(each, "code", None) for each in results] == [Code.NOT_READY] * 3
        del world.checker.ask
        assert (await manifests.load(live)).version == 1

    run(loop, script)


async def _failing(request: object, kind: object) -> None:
    raise Refused(Code.NOT_READY, "not now")


def test_versions_that_are_not_there_are_refused(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        for version in (0, 2):
            with pytest.raises(Refused) as refused:
                await world.store.manifests.load(live, version)
            assert refused.value.code is Code.NOT_FOUND
        with pytest.raises(Refused) as refused:
            await world.store.versions.read({"flags/a.toml": b"?" * 32})
        assert refused.value.code is Code.GONE

    run(loop, script)


@pytest.mark.parametrize("value", [b"1", b"[]", b"{}", b"[[[[]]]]", b'"a text"'])
def test_what_a_file_takes_of_memory_is_not_estimated_far_too_low(value: bytes) -> None:
    """Whatever somebody uploads: what is kept is bounded by these estimates."""
    content = b"""
schema_version = "0.1"
[flag]
type = "json"
[flag.variants]
on = [%b]
[flag.environments._]
variant = "on"
""" % b",".join([value] * 10_000)
    path = "flags/a.toml"
    definition = msgspec.msgpack.encode(parse_file(path, content).definition)
    file = ManifestFile(path, digest(content), FileSummary(path, (), definition))
    tracemalloc.start()
    try:
        assert file.definition is not None
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2 * file.size_bytes


def test_those_used_last_are_kept_and_the_current_one_always(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        known = world.store.manifests.find(live)
        assert known is not None
        manifests = Manifests(
            world.store.versions,
            world.checker,
            world.metrics,
            bytes_max=2 * known.size_bytes + 1000,
        )
        for _ in range(3):
            await world.upload(live, FILES)
        for version in (1, 2, 1, 3):
            await manifests.load(live, version)
        assert manifests.find(live, 2) is None
        assert manifests.find(live, 1) is not None
        assert 0 < manifests.size_bytes < 3 * known.size_bytes
        manifests._loaded._bytes_max = 1
        assert (await manifests.load(live, 4)).version == 4
        assert manifests.find(live, 1) is None
        assert manifests.find(live, 4) is not None

    run(loop, script)


def test_files_that_nobody_holds_are_let_go(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        manifests = world.store.manifests
        await world.upload(live, FILES)
        await world.upload(live, FILES | {"flags/a.toml": FLAG + b"# changed"})
        assert len(manifests._files) == 5
        manifests._loaded._bytes_max = 1
        await world.upload(live, {"namespace.toml": NAMESPACE})
        gc.collect()
        assert set(manifests._files) == {("namespace.toml", digest(NAMESPACE))}

    run(loop, script)


def test_a_large_manifest_is_loaded_in_portions(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MANIFEST_BATCH_FILES", 3)
    monkeypatch.setattr(module, "MANIFEST_BATCH_BYTES", 2 * len(FLAG) + 20)

    async def script(world: World) -> None:
        live = await namespace(world.engine)
        files = FILES | {f"flags/f{number}.toml": FLAG for number in range(5)}
        await world.upload(live, files)
        world = world.restarted()
        loaded = await world.store.manifests.load(live)
        assert set(loaded.rows) == set(files)
        portions = [each.files for each in world.checker.requests if type(each) is ParseFiles]
        assert sum(map(len, portions)) == 9
        assert max(map(len, portions)) <= 3
        assert all(sum(map(len, each.values())) <= 2 * len(FLAG) + 20 for each in portions)
        assert len(portions) > 3

    run(loop, script)


def test_files_are_loaded_in_the_order_in_which_they_lie(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are called: what lies together is read together."""
    monkeypatch.setattr(module, "MANIFEST_BATCH_FILES", 5)

    async def script(world: World) -> None:
        live, contents = await namespace(world.engine), world.engine.contents
        files: dict[str, bytes] = {}
        for number in range(4):
            for letter in "abcdefghij":
                said = FLAG_FILE.format(said=f"{letter} {number}")
                files[f"flags/{letter}{number}.toml"] = said.encode()
            await world.upload(live, files)
        places: list[int] = []
        read = contents.read

        async def noted(digests: Iterable[bytes]) -> dict[bytes, bytes]:
            digests = list(digests)
            places.extend(sorted(map(contents.place_of, digests)))
            return await read(digests)

        monkeypatch.setattr(contents, "read", noted)
        await world.restarted().store.manifests.load(live)
        assert len(places) == len(files)
        assert places == sorted(places)

    run(loop, script)


def test_what_weighs_on_an_evaluation(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES | {"segments/lonely.toml": SEGMENT})
        manifest = await world.store.manifests.load(live)
        files = await world.store.manifests.known_files(manifest.digests)
        weight = files["flags/a.toml"].weight + files["segments/employees.toml"].weight
        assert manifest.weight_of("a") == manifest.weight_of("a") == weight
        assert manifest.weight == sum(file.weight for file in files.values())

    run(loop, script)


# --- uploads --------------------------------------------------------------------------------------


def test_contents_that_go_meanwhile_are_brought_after_all(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(world: World) -> None:
        other, live = await namespace(world.engine, "flags:a:b"), await namespace(world.engine)
        await world.upload(other, FILES)
        versions = world.store.versions
        put, tries = versions.put, 0

        async def put_late(*args: object) -> object:
            nonlocal tries
            tries += 1
            if tries == 1:
                await versions.delete(other)
            return await put(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(versions, "put", put_late)
        assert await world.upload(live, FILES) == 1
        assert tries == 2
        assert await world.store.versions.read(await versions.tree(live, 1)) == FILES
        assert world.parsed == 4

    run(loop, script)


def test_nobody_tries_for_ever(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        tries = []

        async def put(*args: object) -> object:
            tries.append(args)
            raise ContentsMissing({b"x"})

        monkeypatch.setattr(world.store.versions, "put", put)
        with pytest.raises(Refused) as refused:
            await world.upload(live, FILES)
        assert (refused.value.code, len(tries)) == (Code.NOT_READY, 3)

    run(loop, script)


def test_an_upload_that_takes_several_turns_is_one_upload(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        archive = msgspec.structs.replace(archive_of(FILES), parse_s=-1.0)
        row, checked = await world.store.uploads.store(live, archive, "tok_1", None)
        assert (row.version, checked.flag_count) == (1, 2)
        assert (world.parsed, world.metrics.files_checked.value) == (4, 4)
        assert await world.store.versions.read(await world.store.versions.tree(live, 1)) == FILES

    run(loop, script)


def test_of_many_who_say_the_same_version_one_wins(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        await world.upload(live, FILES)
        uploads = [
            world.upload(live, FILES | {"flags/a.toml": FLAG + b"# %d" % number}, 1)
            for number in range(5)
        ]
        results = await asyncio.gather(*uploads, return_exceptions=True)
        assert results.count(2) == 1
        refused = [each for each in results if isinstance(each, Refused)]
        assert len(refused) == 4
        assert {each.detail["current_version"] for each in refused} == {2}
        assert live.visible == 2

    run(loop, script)


def test_a_manifest_with_errors_changes_nothing(loop: VirtualLoop) -> None:
    async def script(world: World) -> None:
        live = await namespace(world.engine)
        with pytest.raises(Refused) as refused:
            await world.upload(live, {"flags/a.toml": FLAG})
        assert refused.value.detail["lint"].errors[0].code == "E005"
        assert (live.visible, len(world.engine.contents)) == (0, 0)
        checked = await world.store.uploads.lint(live, archive_of({"flags/a.toml": FLAG}))
        assert [problem.code for problem in checked.report.errors] == ["E005"]
        assert (live.visible, len(world.engine.contents)) == (0, 0)

    run(loop, script)


def test_reports() -> None:
    warning, error = LintProblem("W004", "", "a"), LintProblem("E005", "", "a")
    check_report(LintReport((), (warning,)))
    for count, said in ((1, "1 error"), (2, "2 errors")):
        with pytest.raises(Refused, match=f"has {said}$"):
            check_report(LintReport((error,) * count, (warning,)))
    with pytest.raises(Refused, match=r"schema version 9\.0 is not known here"):
        check_report(LintReport((error,), (), "9.0"))
