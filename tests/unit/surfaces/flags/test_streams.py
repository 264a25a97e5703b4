"""Streams of changes in virtual time: what is told, to whom, and that the chain of hashes holds."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import DELTA_BYTES_MAX
from headrace.engine.flow import time_slices
from headrace.engine.open_log import OpenLog
from headrace.flags.closure import SegmentGraph, closure_paths
from headrace.flags.parsing import parse_file
from headrace.flags.subscription import parse_flag_list
from headrace.surfaces.flags import deliveries
from headrace.surfaces.flags.deliveries import Deliveries
from headrace.surfaces.flags.events import encode_delta
from headrace.surfaces.flags.manifests import LoadedManifest
from headrace.surfaces.flags.permissions import TokenType
from headrace.surfaces.flags.versions import Retention
from support.flag_streams import (
    ADMIN,
    FlagsSite,
    Mirror,
    digest,
    events,
    flag,
    run,
    segment,
    settled,
    told,
)

BASE = {
    "namespace.toml": b'schema_version = "0.1"\n[namespace]\nslug = "billing"\n',
    "flags/a.toml": flag("s"),
    "flags/b.toml": flag(),
    "segments/s.toml": segment("t"),
    "segments/t.toml": segment(),
    "segments/u.toml": segment(),
}
EMPTY_HASH = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
DAY_S = 86_400
KEYED = {"HEADRACE_ADMIN_TOKEN": ADMIN}


def closure_of(files: dict[str, bytes], flags: str) -> dict[str, bytes]:
    """What a client of these flags is to hold, worked out anew."""
    parsed = {path: parse_file(path, content) for path, content in files.items()}
    paths = closure_paths(
        SegmentGraph.of(parsed), "namespace.toml" in files, parse_flag_list(flags)
    )
    return {path: files[path] for path in paths}


# --- versions -------------------------------------------------------------------------------------


def test_the_first_event_is_a_snapshot_and_the_next_a_delta() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        (first,) = events(line)
        assert (first.name, first.id) == ("version", "billing:1")
        assert list(first.data) == [
            "protocol", "namespace", "version", "prev_version", "prev_closure_hash",
            "closure_hash", "delivery", "snapshot_url", "snapshot_size_bytes",
        ]  # fmt: skip
        assert (first.data["prev_version"], first.data["prev_closure_hash"]) == (None, None)
        mirror = Mirror(server, line)
        assert await mirror.catch_up() == closure_of(BASE, "a")
        changed = BASE | {"flags/a.toml": flag("u")}
        await server.put(changed)
        assert await mirror.catch_up() == closure_of(changed, "a")
        assert mirror.kinds == ["snapshot", "inline"]
        second = events(line)[1]
        assert list(second.data) == [
            "protocol", "namespace", "version", "prev_version", "prev_closure_hash",
            "closure_hash", "delivery", "files",
        ]  # fmt: skip
        assert (second.data["version"], second.data["prev_version"]) == (2, 1)
        assert second.data["files"][0]["sha256"] == digest(flag("u"))
        assert [(each["path"], each["op"], set(each)) for each in second.data["files"]] == [
            ("flags/a.toml", "modified", {"path", "op", "sha256", "content_b64"}),
            ("segments/s.toml", "leave", {"path", "op"}),
            ("segments/t.toml", "leave", {"path", "op"}),
            ("segments/u.toml", "enter", {"path", "op", "sha256", "content_b64"}),
        ]

    run(story)


def test_files_that_come_and_go_are_told_from_those_that_are_reached_or_not() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a,new")
        changed = dict(BASE) | {"flags/new.toml": flag("fresh"), "segments/fresh.toml": segment()}
        changed["flags/a.toml"] = flag("u")
        del changed["segments/s.toml"], changed["segments/t.toml"]
        await server.put(changed)
        await settled(line)
        files = events(line)[-1].data["files"]
        assert {each["path"]: each["op"] for each in files} == {
            "flags/a.toml": "modified",
            "flags/new.toml": "added",
            "segments/fresh.toml": "added",
            "segments/s.toml": "removed",
            "segments/t.toml": "removed",
            "segments/u.toml": "enter",
        }
        paths = [each["path"] for each in files]
        assert paths == sorted(paths)

    run(story)


def test_each_namespace_has_its_own_first_snapshot_once_it_has_a_manifest() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE, "billing")
        await server.make("growth")
        line = await server.follow("acme/growth:*", "acme/billing:b")
        assert told(line) == ["version billing:1 snapshot"]
        await server.put({}, "growth")
        await settled(line)
        assert told(line)[1:] == ["version growth:1 snapshot"]
        assert events(line)[1].data["closure_hash"] == EMPTY_HASH
        await server.put({"flags/x.toml": flag()}, "growth")
        mirror = Mirror(server, line, "growth")
        assert await mirror.catch_up() == {"flags/x.toml": flag()}
        assert mirror.kinds == ["snapshot", "inline"]

    run(story)


def test_a_version_that_changes_nothing_for_a_subscription_is_not_told() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        lines = {flags: await server.follow(f"acme/billing:{flags}") for flags in ("a", "b", "*")}
        await server.put(BASE | {"flags/b.toml": flag(note="2")})
        await server.put(BASE | {"flags/b.toml": flag(note="2")})
        await server.put(BASE | {"flags/b.toml": flag(note="2"), "segments/t.toml": segment("u")})
        await settled(lines["a"])
        versions = {
            flags: [(event.data["version"], event.data["prev_version"]) for event in events(line)]
            for flags, line in lines.items()
        }
        assert versions["a"] == [(1, None), (4, 1)]
        assert versions["b"] == [(1, None), (2, 1)]
        assert versions["*"] == [(1, None), (2, 1), (4, 2)]
        for line in lines.values():
            await Mirror(server, line).catch_up()

    run(story)


@pytest.mark.parametrize(("changed", "kind"), [(32, "inline"), (33, "snapshot")])
def test_many_changed_files_are_a_snapshot(changed: int, kind: str) -> None:
    async def story(server: FlagsSite) -> None:
        files = {f"flags/f{n}.toml": flag() for n in range(40)}
        await server.put(files)
        line = await server.follow("acme/billing:*")
        files |= {f"flags/f{n}.toml": flag(note="changed") for n in range(changed)}
        await server.put(files)
        mirror = Mirror(server, line)
        assert await mirror.catch_up() == files
        assert mirror.kinds == ["snapshot", kind]
        if kind == "snapshot":  # it says what it follows, other than the first
            assert events(line)[1].data["prev_version"] == 1

    run(story)


@pytest.mark.parametrize(("beyond", "kind"), [(0, "inline"), (1, "snapshot")])
def test_a_large_change_is_a_snapshot(beyond: int, kind: str) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put({"flags/a.toml": flag(note="x" * 3)})
        line = await server.follow("acme/billing:*")
        await server.put({"flags/a.toml": flag(note="x" * 6)})
        await settled(line)
        text = line.heard.rpartition(b"data: ")[2].partition(b"\n")[0]
        # Three bytes of a file are four of the event; each path has one byte of its own.
        files_bytes = (DELTA_BYTES_MAX - len(text)) // 4 * 3
        rest = (DELTA_BYTES_MAX - len(text)) % 4
        content = flag(note="x" * (6 + files_bytes))
        name = "flags/a.toml"
        await server.put({name: content})
        await settled(line)
        said = len(line.heard.rpartition(b"data: ")[2].partition(b"\n")[0])
        assert said == DELTA_BYTES_MAX - rest
        assert told(line)[-1].endswith("inline")
        with mock.patch("headrace.surfaces.flags.deliveries.DELTA_BYTES_MAX", said - beyond):
            await server.put({name: content.replace(b"xxx", b"yyy")})
            mirror = Mirror(server, line)
            await mirror.catch_up()
        assert mirror.kinds == ["snapshot", "inline", "inline", kind]

    run(story)


def test_the_size_of_a_snapshot_is_that_of_its_tar() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        (first,) = events(await server.follow("acme/billing:*"))
        reply = await server.fetch(first.data["snapshot_url"])
        assert len(gzip.decompress(reply.body)) == first.data["snapshot_size_bytes"]

    run(story)


# --- bursts and slow readers ----------------------------------------------------------------------


def test_a_burst_is_told_as_less_and_the_chain_holds() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:*")
        mirror = Mirror(server, line)
        await mirror.catch_up()
        burst = [BASE | {"flags/a.toml": flag("s", note=str(n))} for n in range(30)]
        await asyncio.gather(*[server.put(files) for files in burst])
        assert await mirror.catch_up() == closure_of(burst[-1], "*")
        assert mirror.version == 31
        assert set(mirror.kinds) == {"snapshot", "inline"}

    run(story)


def test_a_blocked_reader_gets_one_delta_of_all_that_came_meanwhile() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line, other = await server.follow("acme/billing:*"), await server.follow("acme/billing:*")
        mirror = Mirror(server, line)
        await mirror.catch_up()
        line.choke()
        for n in range(5):
            changed = BASE | {"flags/a.toml": flag("u", note=str(n)), f"flags/n{n}.toml": flag()}
            await server.put(changed)
        await settled(other)
        assert len(told(line)) == 1
        assert len(told(other)) == 6
        line.drain()
        assert await mirror.catch_up() == closure_of(changed, "*")
        assert mirror.kinds == ["snapshot", "inline"]
        assert events(line)[1].data["prev_version"] == 1
        assert events(line)[1].data["version"] == 6
        await server.put(BASE)
        assert await mirror.catch_up() == BASE

    run(story)


def test_a_reader_that_is_blocked_while_a_change_is_worked_out_is_told_when_it_has_drained() -> (
    None
):
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:*")
        mirror = Mirror(server, line)
        await mirror.catch_up()
        contents = server.engine.contents
        read, changed = contents.read, BASE | {"flags/a.toml": flag()}

        async def choke(digests: set[bytes]) -> dict[bytes, bytes]:
            line.choke()
            return await read(digests)

        with mock.patch.object(contents, "read", choke):
            await server.put(changed)
            await settled(line)
        assert len(told(line)) == 1
        line.drain()
        assert await mirror.catch_up() == changed
        assert mirror.kinds == ["snapshot", "inline"]

    run(story)


def make_manifest(pick: random.Random) -> dict[str, bytes]:
    """A few flags and segments that name others, and perhaps a file for the namespace."""
    segments = [f"s{n}" for n in range(5) if pick.random() < 0.7]
    files = {
        f"segments/{each}.toml": segment(
            *[low for low in segments[:at] if pick.random() < 0.4], note=str(pick.randrange(9))
        )
        for at, each in enumerate(segments)
    }
    for name in "abc":
        if pick.random() < 0.8:
            used = [each for each in segments if pick.random() < 0.3]
            files[f"flags/{name}.toml"] = flag(*used, note=str(pick.randrange(2)))
    if pick.random() < 0.5:
        files["namespace.toml"] = BASE["namespace.toml"]
    return files


def live_through(seed: int, steps: int = 150) -> set[str]:
    """Random manifests, alone and in bursts; readers that block, go and come; a namespace that is
    made again; versions that are pruned: every event passes every check, and nobody is left behind.
    Returns what kinds of events there were.
    """
    pick, kinds = random.Random(seed), set[str]()
    wanted = ["a", "b,c", "*", "a,nothing", "c"]

    async def story(server: FlagsSite) -> None:
        async def put(count: int) -> None:
            nonlocal newest
            burst = [make_manifest(pick) for _ in range(count)]
            versions = await asyncio.gather(*map(server.put, burst))
            newest = burst[versions.index(max(versions))]

        newest: dict[str, bytes] = {}
        await put(1)
        lines = [await server.follow(f"acme/billing:{flags}") for flags in wanted]
        mirrors = [Mirror(server, line) for line in lines]
        for mirror in mirrors:
            await mirror.catch_up()  # what a link leads to may be something else by and by
        for _ in range(steps):
            at = pick.randrange(len(lines))
            match pick.randrange(10):
                case 0 | 1:
                    lines[at].choke()
                case 2 | 3:
                    lines[at].drain()
                case 4:
                    await server.drop()
                    await put(1)
                case 5:
                    lines[at].close()
                    lines[at] = await server.follow(f"acme/billing:{wanted[at]}")
                    kinds.update(mirrors[at].kinds)
                    mirrors[at] = Mirror(server, lines[at])
                case 6:
                    await put(3)
                case _:
                    await put(1)
            for mirror in mirrors:
                await mirror.catch_up()
        for line in lines:
            line.drain()
        for flags, mirror in zip(wanted, mirrors, strict=True):
            assert await mirror.catch_up() == closure_of(newest, flags), flags
            kinds.update(mirror.kinds)

    run(story, retention=Retention(4, 0))
    return kinds


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_a_client_holds_the_closure_of_the_newest_version(seed: int) -> None:
    assert live_through(seed) == {"snapshot", "inline", "version_too_old", "unknown_since"}


@pytest.mark.soak
def test_whatever_happens_for_long(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        live_through(seed)


def test_closures_and_deltas_are_worked_out_once_for_all_who_want_the_same() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        wanted = ["a", "b", "*", "a,b", "c"]
        lines = [await server.follow(f"acme/billing:{wanted[n % 5]}") for n in range(40)]
        metrics = server.app._flags.stream_metrics
        assert metrics.closures_computed == len(wanted)
        with mock.patch(
            "headrace.surfaces.flags.deliveries.encode_delta",
            wraps=encode_delta,
        ) as encode:
            await server.put(BASE | {"segments/t.toml": segment(note="2")})
            await settled(lines[0])
        assert metrics.closures_computed == 2 * len(wanted)
        assert encode.call_count == 3  # those that reach the segment
        assert sum(len(told(line)) for line in lines) == 40 + 8 * 3

    run(story)


# --- resyncs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent_inline", [True, False])
def test_what_was_delivered_is_pruned_before_the_next_change(sent_inline: bool) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        current = dict(BASE)
        if sent_inline:
            current["flags/a.toml"] = flag("t")
            await server.put(current)
        mirror = Mirror(server, line)
        await mirror.catch_up()
        for n in range(5):
            current["flags/b.toml"] = flag(note=str(n))
            await server.put(current)
        await mirror.catch_up()
        assert mirror.kinds == (["snapshot", "inline"] if sent_inline else ["snapshot"])
        current["flags/a.toml"] = flag("u")
        version = await server.put(current)
        assert await mirror.catch_up() == closure_of(current, "a")
        last = events(line)[-1]
        if sent_inline:
            assert last.name == "resync"
            assert last.id == f"billing:{version}"
            assert list(last.data) == [
                "protocol", "namespace", "current_version", "reason", "snapshot_url"
            ]  # fmt: skip
            assert mirror.kinds[-1] == "version_too_old"
        else:
            assert mirror.kinds[-1] == "snapshot"
            assert last.data["prev_version"] == 1
        current["flags/a.toml"] = flag()
        await server.put(current)
        assert await mirror.catch_up() == closure_of(current, "a")
        assert mirror.kinds[-1] == "inline"

    run(story, retention=Retention(3, 0))


def test_what_was_delivered_may_grow_too_old_while_the_change_is_worked_out() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        mirror = Mirror(server, line)
        await server.put(BASE | {"flags/a.toml": flag("t")})
        await mirror.catch_up()
        manifests = server.app._flags.store().manifests
        load = manifests.load

        async def refuse_old(live: OpenLog, version: int | None = None) -> LoadedManifest:
            if version == 2:
                raise Refused(Code.GONE, "its time is up")
            return await load(live, version)

        with mock.patch.object(manifests, "load", refuse_old):
            await server.put(BASE)
            assert await mirror.catch_up() == closure_of(BASE, "a")
        assert mirror.kinds == ["snapshot", "inline", "version_too_old"]

    run(story)


def test_a_version_that_goes_before_it_is_told_is_followed_by_the_newest() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:*")
        mirror = Mirror(server, line)
        await mirror.catch_up()
        contents = server.engine.contents
        read, newest = contents.read, BASE | {"flags/b.toml": flag(note="3")}

        async def come_too_late(digests: set[bytes]) -> dict[bytes, bytes]:
            contents.read = read  # type: ignore[method-assign]
            await server.put(newest)
            return {}

        contents.read = come_too_late  # type: ignore[method-assign,assignment]
        await server.put(BASE | {"flags/a.toml": flag(note="2")})
        assert await mirror.catch_up() == newest
        assert (mirror.version, mirror.kinds) == (3, ["snapshot", "inline"])

    run(story)


def test_a_namespace_that_is_made_again_has_nothing_of_the_old_one() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        await server.put(BASE | {"flags/c.toml": flag()})
        line = await server.follow("acme/billing:*")
        mirror = Mirror(server, line)
        await mirror.catch_up()
        await server.drop()
        await settled(line)
        assert not line.closing
        await server.make()
        await settled(line)
        assert told(line) == ["version billing:2 snapshot"]
        await server.put(BASE)
        assert await mirror.catch_up() == BASE
        assert mirror.kinds == ["snapshot", "unknown_since"]
        await server.put(BASE | {"flags/a.toml": flag()})
        await mirror.catch_up()
        assert mirror.kinds[-1] == "inline"
        assert events(line)[-1].data["prev_version"] == 1

    run(story)


def test_nothing_is_told_of_a_namespace_that_went_while_its_change_was_worked_out() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:*")
        mirror = Mirror(server, line)
        await mirror.catch_up()
        contents = server.engine.contents
        read = contents.read

        async def come_too_late(digests: set[bytes]) -> dict[bytes, bytes]:
            contents.read = read  # type: ignore[method-assign]
            found = await read(digests)
            await server.drop()
            await server.make()
            return found

        contents.read = come_too_late  # type: ignore[method-assign,assignment]
        await server.put(BASE | {"flags/a.toml": flag()})
        await settled(line)
        assert told(line) == ["version billing:1 snapshot"]
        await server.put(BASE)
        assert await mirror.catch_up() == BASE
        assert mirror.kinds == ["snapshot", "unknown_since"]

    run(story)


def test_who_waited_for_a_namespace_and_went_is_not_looked_for() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:*")
        await server.drop()
        await settled(line)
        hub = server.app.gate.hub
        assert "flags:acme:billing" in hub._prefixes
        line.close()
        await settled(line)
        assert not hub._prefixes

    run(story)


def test_one_that_had_no_manifest_begins_with_a_snapshot_when_it_is_made_again() -> None:
    async def story(server: FlagsSite) -> None:
        await server.make()
        line = await server.follow("acme/billing:*")
        await server.drop()
        await server.put(BASE)
        await settled(line)
        assert told(line) == ["version billing:1 snapshot"]
        assert events(line)[0].data["prev_version"] is None

    run(story)


def test_a_name_that_only_begins_like_it_is_another_namespace() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:*")
        await server.drop()
        await server.put(BASE, "billing-2")
        await settled(line)
        assert told(line) == ["version billing:1 snapshot"]

    run(story)


# --- time and endings -----------------------------------------------------------------------------


def test_a_comment_comes_after_half_a_minute_without_bytes() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        await asyncio.sleep(29)
        assert line.heard.count(b":keepalive\n\n") == 0
        await asyncio.sleep(2)
        assert line.heard.count(b":keepalive\n\n") == 1
        for n in range(10):  # nothing of this is for this subscription: bytes are not sent
            await server.put(BASE | {"flags/b.toml": flag(note=str(n))})
            await asyncio.sleep(9)
        assert line.heard.count(b":keepalive\n\n") >= 3
        before = line.heard.count(b":keepalive\n\n")
        for n in range(10):
            await server.put(BASE | {"flags/a.toml": flag(note=str(n))})
            await asyncio.sleep(9)
        assert line.heard.count(b":keepalive\n\n") <= before + 1

    run(story)


def test_a_stream_that_was_told_of_nothing_for_a_day_is_closed_without_a_word() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        await asyncio.sleep(DAY_S - 60)
        await server.put(BASE | {"flags/a.toml": flag()})
        await asyncio.sleep(DAY_S - 60)
        assert not line.closing
        await asyncio.sleep(180)
        assert line.closing
        assert line.heard.endswith(b":keepalive\n\n\r\n0\r\n\r\n")
        assert len(told(line)) == 2

    run(story)


def test_a_stop_ends_streams_without_a_word() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        heard = line.heard
        server.engine.drain()
        line.protocol.shutdown()
        await settled(line)
        assert line.heard == heard + b"0\r\n\r\n"
        assert line.closing

    run(story)


def test_a_version_that_cannot_be_read_ends_the_streams_that_wait_for_it() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        manifests = server.app._flags.store().manifests
        with mock.patch.object(manifests, "load", side_effect=OSError("broken")):
            await server.put(BASE | {"flags/a.toml": flag()})
            await settled(line)
        assert line.closing
        assert len(told(line)) == 1
        again = await server.follow("acme/billing:a")
        assert told(again) == ["version billing:2 snapshot"]

    run(story)


def test_revoking_a_token_ends_its_streams_and_no_others() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        mine, other = [await server.issue(TokenType.NAMESPACE_READ, "billing") for _ in range(2)]
        lines = [
            await server.follow("billing:a", authorization=each.authorization)
            for each in (mine, mine, other)
        ]
        url = events(lines[0])[0].data["snapshot_url"]
        assert (await server.fetch(url)).status == 200
        await server.engine.tokens.revoke(mine.id)
        await settled(lines[0])
        assert [line.closing for line in lines] == [True, True, False]
        reply = await server.fetch(url)
        assert (reply.status, reply.code) == (401, "closure_token_invalid")
        await server.put(BASE | {"flags/a.toml": flag()})
        await settled(lines[2])
        assert [len(told(line)) for line in lines] == [1, 1, 2]

    run(story, **KEYED)


def test_a_stream_whose_credential_ended_is_closed_instead_of_told() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        token = await server.issue(TokenType.NAMESPACE_WRITE, "billing")
        line = await server.follow("billing:a", authorization=token.authorization)
        with mock.patch.object(server.engine.tokens, "_on_revoked", []):
            await server.engine.tokens.revoke(token.id)
        await server.put(BASE | {"flags/a.toml": flag()})
        await settled(line)
        assert len(told(line)) == 1
        assert line.closing

    run(story, **KEYED)


def test_a_stream_ends_with_the_time_of_its_token() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        token = await server.issue(
            TokenType.TENANT_ADMIN, expires_at_ms=server.engine.clock.now_ms() + 100_000
        )
        line = await server.follow("billing:a", authorization=token.authorization)
        await asyncio.sleep(90)
        assert not line.closing
        await asyncio.sleep(20)
        assert line.closing

    run(story, **KEYED)


def test_metrics_tell_of_streams_events_and_churn() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(BASE)
        line = await server.follow("acme/billing:a")
        await server.put(BASE | {"flags/a.toml": flag("u")})
        await Mirror(server, line).catch_up()
        values = {
            f"{sample.name}{labels}": value
            for sample in server.app._flags.stream_metrics.samples()
            for _, labels, value in sample.points()
        }
        assert values == {
            "flags_streams_open": 1,
            "flags_streams_total": 1,
            'flags_events_total{event="version",kind="snapshot"}': 1,
            'flags_events_total{event="version",kind="inline"}': 1,
            "flags_closures_total": 2,
            'flags_closure_churn_total{op="modified"}': 1,
            'flags_closure_churn_total{op="leave"}': 2,
            'flags_closure_churn_total{op="enter"}': 1,
            'flags_tarballs_total{outcome="made"}': 1,
        }
        line.close()
        await settled(line)
        assert server.app._flags.stream_metrics._open.value == 0

    run(story)


def test_namespaces_that_change_at_once_share_the_loop_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one round of it a few connections are written to, however many wait."""
    monkeypatch.setattr(deliveries, "_PORTION", 4)
    monkeypatch.setattr(time_slices, "perf_counter", itertools.count().__next__)
    slugs = ("billing", "growth", "sales")
    rounds, sent = 0, list[int]()
    send = Deliveries._send

    def noted(*args: Any) -> None:
        sent.append(rounds)
        send(*args)

    monkeypatch.setattr(Deliveries, "_send", noted)

    async def count() -> None:
        nonlocal rounds
        while len(sent) < 60 and rounds < 10_000:  # (meanwhile no time passes)
            rounds += 1
            await asyncio.sleep(0)

    async def story(site: FlagsSite) -> None:
        for slug in slugs:
            await site.put({"flags/a.toml": flag()}, slug)
        lines = [await site.follow(*(f"acme/{slug}:*" for slug in slugs)) for _ in range(20)]
        sent.clear()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for slug in slugs:
                tasks.create_task(site.put({"flags/a.toml": flag(note="2")}, slug))
            tasks.create_task(count())
        for line in lines:
            await settled(line)
        assert max(Counter(sent).values()) <= 4
        for line in lines:
            assert Counter(event.data["namespace"] for event in events(line)) == dict.fromkeys(
                slugs, 2
            )

    run(story, FLAGS_MAX_CONNECTIONS_PER_TOKEN="0")
