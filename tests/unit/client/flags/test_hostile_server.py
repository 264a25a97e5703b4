"""A whole client against servers that are wrong, broken, slow or hostile, in virtual time.

Whatever they do, what is served is a tree that was verified: every test says which those are.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest

from headrace.client.flags import (
    AsyncFlagGroup,
    AsyncFlagNamespace,
    FlagChange,
    FlagsNotReady,
    FlagState,
    FlagStateChange,
    RefreshCheck,
    RefreshPolicy,
)
from headrace.core.limits import FLAGS_CLIENT_EVENT_BYTES_MAX
from headrace.flags.archive import write_tar
from support.flag_history import (
    Files,
    closure_hash,
    closure_path,
    etag,
    flag_file,
    inline_event,
    namespace_file,
    pack,
    resync_event,
    segment_file,
    snapshot_event,
)
from support.memory_server import MemoryServer, Wire, format_head, pass_time, run, settle

POLICY = RefreshPolicy(
    pause_s=1, pause_s_max=16, error_after_s=10, snapshot_bytes_max=1 << 20, tree_bytes_max=2 << 20
)
ONE: Files = {
    "namespace.toml": namespace_file(),
    "flags/a.toml": flag_file(("s",), 1),
    "segments/s.toml": segment_file((), 1),
}
TWO: Files = {**ONE, "flags/a.toml": flag_file(("s",), 2)}
THREE: Files = {"namespace.toml": namespace_file(), "flags/b.toml": flag_file((), 3)}
BROKEN: Files = {**ONE, "flags/a.toml": flag_file(("s",), 9, valid=False)}
UNRESOLVED: Files = {**ONE, "flags/a.toml": flag_file(("nobody",), 9)}
VERSIONS = {1: ONE, 2: TWO, 3: THREE}


def answer_rightly(wire: Wire) -> None:
    """The closure of a version, as a right server sends it."""
    files = VERSIONS[int(wire.request.query["version"][0])]
    wire.reply(200, pack(files), {"etag": etag(1, files)})


class Story:
    """A client, its server, and everything that was ever served."""

    def __init__(self, server: MemoryServer, group: AsyncFlagGroup) -> None:
        self.server = server
        self.group = group
        self.billing: AsyncFlagNamespace = group.namespace("billing")
        self.changes: list[FlagChange] = []
        self.states: list[FlagState] = []
        self.billing.on_change(self._changed)
        self.billing.on_state(self._stated)

    def _changed(self, change: FlagChange) -> None:
        self.changes.append(change)
        assert self.billing.files in VERSIONS.values()

    def _stated(self, change: FlagStateChange) -> None:
        self.states.append(change.state)

    def event(self, name: str, data: Mapping[str, Any]) -> None:
        self.server.stream.event(name, data)

    async def version(self, data: Mapping[str, Any]) -> None:
        self.event("version", data)
        await settle()

    def begin_with(self, version: int, files: Files) -> None:
        """Streams that are opened from now on begin as a right server lets them begin."""

        def answer(wire: Wire) -> None:
            wire.begin_stream()
            wire.event("version", snapshot_event(version, files))

        self.server.answer_stream = answer

    def serves(self, version: int) -> None:
        """Exactly this version, whatever else was said."""
        files = VERSIONS[version]
        assert (self.billing.version, self.billing.files) == (version, files)
        assert self.billing.closure_hash == closure_hash(files)
        key = "b" if version == 3 else "a"
        found = self.billing.evaluate(key, {"plan": 1}, default="?")
        assert (found.value, found.version) == (-3 if version == 3 else version, version)

    @property
    def check(self) -> RefreshCheck | None:
        error = self.billing.last_refresh_error()
        return None if error is None else error.check


@asynccontextmanager
async def following(
    server: MemoryServer | None = None, *, begun: bool = True, **options: Any
) -> AsyncIterator[Story]:
    """A client that follows a server, with version 1 in service."""
    server = server or MemoryServer(answer_rightly)
    options = {"namespaces": {"billing": "*"}, "token": "secret", "policy": POLICY} | options
    async with AsyncFlagGroup("http://flags.test", connect=server.connect, **options) as group:
        story = Story(server, group)
        await settle()
        if begun:
            await story.version(snapshot_event(1, ONE))
            await group.wait_ready(0)
            story.serves(1)
            assert story.billing.state is FlagState.FRESH
        yield story


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


# --- a right server ----------------------------------------------------------------------------


def test_a_right_server() -> None:
    async def story() -> None:
        async with following() as one:
            request = one.server.stream.request
            assert request.target == "/api/v1/events?ns=billing:*"
            assert request.headers["authorization"] == "Bearer secret"
            assert request.headers["host"] == "flags.test"
            assert "last-event-id" not in request.headers
            await one.version(inline_event(2, ONE, TWO))
            one.serves(2)
            await one.version(inline_event(3, TWO, THREE))
            one.serves(3)
            assert one.billing.flags == ["b"]
            assert [(each.version, set(each.flags)) for each in one.changes] == [
                (1, {"a"}), (2, {"a"}), (3, {"a", "b"}),
            ]  # fmt: skip
            assert one.states == [FlagState.FRESH]
            assert len(one.server.fetches) == 1
        assert one.billing.state is FlagState.STALE  # nobody keeps it up to date any more
        one.serves(3)
        assert one.server.stream.is_gone

    run(story())


def test_what_is_evaluated_says_where_it_comes_from() -> None:
    async def story() -> None:
        async with following(begun=False) as one:
            found = one.billing.evaluate("a", default=7)
            assert (found.value, found.variant, found.version) == (7, None, None)
            assert (found.reason, found.is_stale) == ("not_ready", True)
            await one.version(snapshot_event(1, ONE))
            found = one.billing.evaluate("a", {"plan": 1})
            assert (found.value, found.variant, found.rule_matched) == (1, "on", "rule:0")
            assert (found.version, found.reason, found.is_stale) == (1, "resolved", False)
            found = one.billing.evaluate("z", default=False)
            assert (found.value, found.reason, found.version) == (False, "flag_not_found", 1)
            assert one.billing.eval("a") == -1
            assert one.billing.eval("z") is None

    run(story())


def test_a_change_of_a_segment_is_a_change_of_the_flags_that_reach_it() -> None:
    async def story() -> None:
        files = {**ONE, "segments/s.toml": segment_file(("t",), 1), "flags/c.toml": flag_file()}
        files["segments/t.toml"] = segment_file((), 5)
        VERSIONS[8], VERSIONS[9] = files, {**files, "segments/t.toml": segment_file((), 6)}
        async with following() as one:
            await one.version(snapshot_event(8, VERSIONS[8]))
            await one.version(inline_event(9, VERSIONS[8], VERSIONS[9]))
            assert [set(each.flags) for each in one.changes] == [{"a"}, {"a", "c"}, {"a"}]

    try:
        run(story())
    finally:
        VERSIONS.pop(8, None)
        VERSIONS.pop(9, None)


# --- the four checks ---------------------------------------------------------------------------


def spoiled(**changes: Any) -> dict[str, Any]:
    """A delta from 1 to 2 whose only file is not what it should be."""
    event = inline_event(2, ONE, TWO)
    return event | {"files": [event["files"][0] | changes]}


WRONG_CONTENT = base64.b64encode(flag_file(("s",), 8)).decode()
WRONG_DELTAS = [
    (RefreshCheck.PRE_APPLY, inline_event(2, ONE, TWO, prev_closure_hash=closure_hash(TWO))),
    (RefreshCheck.PER_FILE, spoiled(sha256="0" * 64)),
    (RefreshCheck.PER_FILE, spoiled(content_b64=WRONG_CONTENT)),
    (RefreshCheck.PER_FILE, spoiled(content_b64="?")),
    (RefreshCheck.PER_FILE, spoiled(path="flags/../../a.toml", op="added")),
    (RefreshCheck.PER_FILE, spoiled(path="flags/other.toml")),
    (RefreshCheck.PER_FILE, spoiled(op="removed")),
    (RefreshCheck.POST_APPLY, spoiled(
        content_b64=WRONG_CONTENT, sha256=sha256(flag_file(("s",), 8)).hexdigest()
    )),
]  # fmt: skip


@pytest.mark.parametrize(("check", "delta"), WRONG_DELTAS)
def test_a_delta_with_a_wrong_hash_is_replaced_by_a_snapshot(
    check: RefreshCheck, delta: dict[str, Any]
) -> None:
    async def story() -> None:
        held: list[Wire] = []
        async with following() as one:
            one.server.answer_closure = held.append
            await one.version(delta)
            one.serves(1)
            assert one.check is check
            assert one.billing.state is FlagState.STALE
            answer_rightly(held.pop())
            await settle()
            one.serves(2)
            assert one.billing.state is FlagState.FRESH
            assert one.check is None
            await one.version(inline_event(3, TWO, THREE))
            one.serves(3)

    run(story())


@pytest.mark.parametrize(
    "files",
    [BROKEN, UNRESOLVED, {**ONE, "flags/BAD.toml": ONE["flags/a.toml"]}, {"flags/a.toml": b"\xff"}],
)
@pytest.mark.parametrize("inline", [False, True])
def test_a_tree_with_lint_errors_does_not_serve_though_all_hashes_are_right(
    files: Files, inline: bool
) -> None:
    def answer(wire: Wire) -> None:
        label = etag(2, files)
        if wire.request.headers.get("if-none-match") == label:
            wire.reply(304)
        else:
            wire.reply(200, pack(files), {"etag": label})

    async def story() -> None:
        async with following() as one:
            one.server.answer_closure = answer
            one.begin_with(2, files)
            await one.version(inline_event(2, ONE, files) if inline else snapshot_event(2, files))
            for _ in range(10):
                one.serves(1)
                assert one.check is RefreshCheck.LINT
                await pass_time(20)
            assert one.states[:3] == [FlagState.FRESH, FlagState.STALE, FlagState.ERROR]
            assert FlagState.FRESH not in one.states[1:]
            one.server.answer_closure = answer_rightly
            one.begin_with(3, THREE)
            await one.version(inline_event(3, files, THREE))
            await pass_time(2 * POLICY.pause_s_max)
            one.serves(3)
            assert one.billing.state is FlagState.FRESH

    run(story())


# --- bodies of snapshots -----------------------------------------------------------------------

RIGHT = pack(TWO)
BOMB = gzip.compress(bytes(8 << 20))
TAR_BOMB = gzip.compress(write_tar({"flags/a.toml": bytes(3 << 20)}))
WRONG_BODIES: dict[str, Callable[[Wire], None]] = {
    "other files": lambda wire: wire.reply(200, pack(THREE)),
    "nothing": lambda wire: wire.reply(200, b""),
    "other bytes, same length": lambda wire: wire.reply(200, bytes(len(RIGHT))),
    "one bit": lambda wire: wire.reply(200, RIGHT[:40] + bytes([RIGHT[40] ^ 4]) + RIGHT[41:]),
    "half an archive": lambda wire: wire.reply(200, RIGHT[: len(RIGHT) // 2]),
    "half a body": lambda wire: (
        wire.send(format_head(200, {"content-length": str(len(RIGHT))}) + RIGHT[:50]),
        wire.close(),
    )[1],
    "a body without an end": lambda wire: (
        wire.send(format_head(200, {}) + RIGHT), wire.close(),
    )[1],
    "a chunk that is cut": lambda wire: (
        wire.send(format_head(200, {"transfer-encoding": "chunked"}) + chunked(RIGHT)[:-9]),
        wire.close(),
    )[1],
    "a reset": lambda wire: (
        wire.send(format_head(200, {"content-length": str(len(RIGHT))}) + RIGHT[:50]),
        wire.reset(),
    )[1],
    "no head": lambda wire: wire.close(),
    "no HTTP": lambda wire: wire.send(b"SSH-2.0-x\r\n\r\n"),
    "a head without an end": lambda wire: wire.send(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000),
    "an encoding": lambda wire: wire.reply(200, gzip.compress(RIGHT), {"content-encoding": "gzip"}),
    "too large by its head": lambda wire: wire.send(
        format_head(200, {"content-length": str(1 << 40)})
    ),
    "too large by its bytes": lambda wire: wire.send(
        format_head(200, {"transfer-encoding": "chunked"}) + chunked(bytes(2 << 20))
    ),
    "a bomb": lambda wire: wire.reply(200, BOMB),
    "a bomb in tar": lambda wire: wire.reply(200, TAR_BOMB),
    "500": lambda wire: wire.reply(500, RIGHT),
    "206": lambda wire: wire.reply(206, RIGHT),
    "304 that nobody asked for": lambda wire: wire.reply(304),
    "301": lambda wire: wire.reply(301, RIGHT, {"location": "http://evil.test/x"}),
    "302": lambda wire: wire.reply(302, b"", {"location": "//evil.test/x"}),
    "307": lambda wire: wire.reply(307, b"", {"location": "/api/v1/elsewhere"}),
    "silence": lambda wire: None,
    "half a body and silence": lambda wire: wire.send(
        format_head(200, {"content-length": str(len(RIGHT))}) + RIGHT[:50]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_BODIES)
def test_a_wrong_snapshot_changes_nothing_and_is_fetched_again(name: str) -> None:
    async def story() -> None:
        async with following() as one:
            one.server.answer_closure = WRONG_BODIES[name]
            one.begin_with(2, TWO)
            await one.version(snapshot_event(2, TWO))
            await pass_time(POLICY.fetch_s)
            one.serves(1)
            assert one.check in (RefreshCheck.FETCH, RefreshCheck.SNAPSHOT)
            assert one.billing.state is not FlagState.FRESH
            targets = {wire.request.target for wire in one.server.fetches}
            assert all(target.startswith(closure_path("billing")) for target in targets)
            one.server.answer_closure = answer_rightly
            await pass_time(POLICY.fetch_s + POLICY.pause_s_max)
            one.serves(2)
            assert one.billing.state is FlagState.FRESH
            assert all(wire.is_gone for wire in one.server.fetches)

    run(story())


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_right_snapshot_that_is_too_large_is_not_taken(in_chunks: bool) -> None:
    def answer(wire: Wire) -> None:
        if in_chunks:
            head = format_head(200, {"transfer-encoding": "chunked"})
            wire.send(head + chunked(pack(ONE)))
        else:
            wire.reply(200, pack(ONE))

    async def story(bytes_max: int) -> None:
        policy = RefreshPolicy(snapshot_bytes_max=bytes_max)
        async with following(MemoryServer(answer), begun=False, policy=policy) as one:
            await one.version(snapshot_event(1, ONE))
            if bytes_max == len(pack(ONE)):
                one.serves(1)
            else:
                assert one.billing.version is None
                assert "more than" in str(one.billing.last_refresh_error())

    run(story(len(pack(ONE))))
    run(story(len(pack(ONE)) - 1))


def test_a_body_that_drips_has_a_deadline() -> None:
    async def story() -> None:
        async def drip(wire: Wire) -> None:
            wire.send(format_head(200, {"content-length": "100000"}))
            while not wire.is_gone:
                wire.send(b"x")
                await asyncio.sleep(1)

        dripping: list[asyncio.Task[None]] = []
        async with following() as one:
            one.server.answer_closure = lambda wire: dripping.append(
                asyncio.create_task(drip(wire))
            )
            await one.version(snapshot_event(2, TWO))
            await pass_time(POLICY.fetch_s + 2)
            assert one.server.fetches[-2].is_gone or one.server.fetches[-1].is_gone
            assert dripping[0].done()
            one.serves(1)
            assert "did not come" in str(one.billing.last_refresh_error())

    run(story())


def test_a_slow_snapshot_keeps_no_other_namespace_waiting() -> None:
    def answer(wire: Wire) -> None:
        if "growth" in wire.request.path:
            wire.send(format_head(200, {"content-length": "9"}))
        else:
            answer_rightly(wire)

    async def story() -> None:
        server = MemoryServer(answer)
        both = {"growth": "*", "billing": "*"}
        async with following(server, begun=False, namespaces=both) as one:
            await one.version(snapshot_event(1, ONE, namespace="growth"))
            await one.version(snapshot_event(1, ONE))
            await one.version(inline_event(2, ONE, TWO))
            one.serves(2)
            assert one.billing.state is FlagState.FRESH
            growth = one.group.namespace("growth")
            assert growth.state is FlagState.NOT_READY
            with pytest.raises(FlagsNotReady):
                await one.group.wait_ready(5)

    run(story())


def test_signed_urls_that_expire_give_way_to_the_credential() -> None:
    def answer(wire: Wire) -> None:
        if "token" in wire.request.query:
            wire.reply(401, b'{"error":{"code":"closure_token_invalid"}}')
        else:
            assert wire.request.headers["authorization"] == "Bearer secret"
            answer_rightly(wire)

    async def story() -> None:
        async with following(MemoryServer(answer)) as one:
            assert [w.request.query.get("token") for w in one.server.fetches] == [["signed"], None]

    run(story())


def test_a_credential_that_counts_no_more_for_closures_opens_a_new_stream() -> None:
    async def story() -> None:
        async with following() as one:
            one.server.answer_closure = lambda wire: wire.reply(401)
            await one.version(snapshot_event(2, TWO))
            assert one.server.stream.is_gone
            one.serves(1)
            await pass_time(1)
            assert len(one.server.streams) == 2

    run(story())


# --- events ------------------------------------------------------------------------------------

WRONG_EVENTS: dict[str, bytes] = {
    "no JSON": b"event: version\ndata: {\n\n",
    "no object": b"event: version\ndata: []\n\n",
    "a huge line": b"data: " + b"x" * FLAGS_CLIENT_EVENT_BYTES_MAX,
    "many lines": b"data: x\n" * (FLAGS_CLIENT_EVENT_BYTES_MAX // 7 + 1),
    "deep": b"event: version\ndata: " + b"[" * 100_000 + b"\n\n",
    "no files": b"event: version\ndata: %b\n\n"
    % json.dumps(inline_event(2, ONE, TWO, files=[])).encode(),
    "no hash": b"event: version\ndata: %b\n\n"
    % json.dumps(snapshot_event(2, TWO, closure_hash="")).encode(),
    "half an event": b"event: version\ndata: "
    + json.dumps(inline_event(2, ONE, TWO)).encode()[:-100]
    + b"\n\n",
}


@pytest.mark.parametrize("name", WRONG_EVENTS)
def test_an_event_that_cannot_be_read_opens_a_new_stream(name: str) -> None:
    async def story() -> None:
        async with following() as one:
            one.server.stream.send(WRONG_EVENTS[name])
            await settle()
            assert one.server.stream.is_gone
            one.serves(1)
            assert one.check is RefreshCheck.EVENT
            assert one.billing.state is FlagState.STALE
            await pass_time(1)
            assert len(one.server.streams) == 2
            request = one.server.stream.request
            assert request.query["since"] == ["billing:1"]
            assert request.headers["last-event-id"] == "billing:1"
            await one.version(snapshot_event(2, TWO))
            one.serves(2)
            assert one.billing.state is FlagState.FRESH

    run(story())


IGNORED = {
    "another namespace": ("version", snapshot_event(2, TWO, namespace="growth")),
    "another event": ("message", snapshot_event(2, TWO)),
    "a replayed snapshot": ("version", snapshot_event(1, ONE)),
    "a replayed delta": ("version", inline_event(1, THREE, TWO)),
    "an old resync": ("resync", resync_event(1, closure_hash=closure_hash(ONE))),
}


@pytest.mark.parametrize("name", IGNORED)
def test_events_that_change_nothing(name: str) -> None:
    async def story() -> None:
        async with following() as one:
            one.event(*IGNORED[name])
            await pass_time(20)
            one.serves(1)
            assert one.billing.state is FlagState.FRESH
            assert len(one.server.streams) == 1
            assert len(one.server.fetches) == 1

    run(story())


def test_an_unknown_protocol_is_refused_and_what_is_served_stays() -> None:
    async def story() -> None:
        async with following() as one:
            await one.version(snapshot_event(2, TWO, protocol="v3"))
            one.serves(1)
            assert (one.check, one.billing.state) == (RefreshCheck.PROTOCOL, FlagState.ERROR)
            assert len(one.server.fetches) == 1
            await one.version(inline_event(3, TWO, THREE))
            one.serves(3)
            assert one.billing.state is FlagState.FRESH

    run(story())


def test_a_downgrade_is_fatal_for_its_namespace_alone() -> None:
    async def story() -> None:
        both = {"growth": "*", "billing": "*"}
        async with following(begun=False, namespaces=both) as one:
            await one.version(snapshot_event(1, ONE))
            one.event("resync", resync_event(2, "protocol_downgrade"))
            await one.version(snapshot_event(2, TWO))
            one.serves(1)
            assert one.billing.state is FlagState.ERROR
            await one.version(snapshot_event(2, TWO, namespace="growth"))
            assert one.group.namespace("growth").version == 2
            one.server.stream.close()
            await pass_time(1)
            assert one.server.stream.request.query["ns"] == ["growth:*"]
            one.event("resync", resync_event(2, "protocol_downgrade", namespace="growth"))
            one.server.stream.close()
            await pass_time(1000)
            assert len(one.server.streams) == 2  # there is nobody left to follow
            one.serves(1)

    run(story())


def test_a_snapshot_elsewhere_is_asked_for_here() -> None:
    async def story() -> None:
        url = f"http://evil.test{closure_path('billing')}?version=2&token=t"
        async with following() as one:
            await one.version(snapshot_event(2, TWO, snapshot_url=url))
            one.serves(2)
            fetch = one.server.fetches[-1].request
            assert fetch.headers["host"] == "flags.test"
            assert "token" not in fetch.query

    run(story())


# --- the stream --------------------------------------------------------------------------------


def test_silence_opens_a_new_stream_and_keepalives_do_not() -> None:
    async def story() -> None:
        async with following() as one:
            for _ in range(10):
                await pass_time(30)
                one.server.stream.send(b":keepalive\n\n")
            assert len(one.server.streams) == 1
            assert one.billing.state is FlagState.FRESH
            await pass_time(POLICY.silence_s)
            assert one.server.streams[0].is_gone
            assert one.billing.state is FlagState.STALE
            assert "silent" in str(one.billing.last_refresh_error())
            await pass_time(1)
            assert len(one.server.streams) == 2

    run(story())


@pytest.mark.parametrize("end", [Wire.close, Wire.reset])
def test_stale_then_error_when_the_stream_is_lost(end: Callable[[Wire], None]) -> None:
    async def story() -> None:
        async with following() as one:
            one.server.refuses_connections = True
            end(one.server.stream)
            await settle()
            assert one.billing.state is FlagState.STALE
            assert one.billing.evaluate("a").is_stale
            await pass_time(9)
            assert one.billing.state is FlagState.STALE
            await pass_time(2)
            assert one.billing.state is FlagState.ERROR
            one.serves(1)
            one.server.refuses_connections = False
            await pass_time(16)
            await one.version(snapshot_event(1, ONE))
            assert one.states == [
                FlagState.FRESH, FlagState.STALE, FlagState.ERROR, FlagState.FRESH,
            ]  # fmt: skip
            assert len(one.server.fetches) == 1  # what is held is not sent again

    run(story())


def test_tries_to_connect_are_bounded() -> None:
    async def story() -> None:
        server = MemoryServer(answer_rightly, answer_stream=lambda wire: wire.reply(503))
        async with following(server, begun=False):
            await pass_time(3600)
            assert 3600 / POLICY.pause_s_max <= len(server.streams) <= 3600 / 8 + 8

    run(story())


def test_a_stream_that_ends_at_once_is_not_opened_ever_faster() -> None:
    def answer(wire: Wire) -> None:
        wire.begin_stream()
        wire.event("version", snapshot_event(1, ONE))
        wire.close()

    async def story() -> None:
        server = MemoryServer(answer_rightly, answer_stream=answer)
        async with following(server, begun=False):
            await pass_time(3600)
            assert len(server.streams) <= 3600 / 8 + 8

    run(story())


REFUSALS: dict[str, Callable[[Wire], None]] = {
    "401": lambda wire: wire.reply(401, b'{"error":{"code":"unauthorized","message":"who?"}}'),
    "403": lambda wire: wire.reply(403),
    "a redirect": lambda wire: wire.reply(307, b"", {"location": "http://evil.test/"}),
    "400": lambda wire: wire.reply(400, b'{"error":{"code":"invalid_subscription"}}'),
    "414": lambda wire: wire.reply(414),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_an_error_at_once_and_asked_again_slowly(name: str) -> None:
    async def story() -> None:
        async with following() as one:
            one.server.answer_stream = REFUSALS[name]
            one.server.stream.close()
            await pass_time(1)
            assert one.billing.state is FlagState.ERROR
            error = one.billing.last_refresh_error()
            assert error is not None
            assert (error.check, error.status) == (
                RefreshCheck.CONNECTION,
                307 if name == "a redirect" else int(name),
            )
            one.serves(1)
            await pass_time(600)
            assert 600 / 16 <= len(one.server.streams) <= 600 / 8 + 4
            assert len({wire.request.path for wire in one.server.streams}) == 1
            one.server.answer_stream = Wire.begin_stream
            await pass_time(16)
            await one.version(snapshot_event(2, TWO))
            one.serves(2)
            assert one.billing.state is FlagState.FRESH

    run(story())


NO_STREAMS: dict[str, Callable[[Wire], None]] = {
    "a page": lambda wire: wire.reply(200, b"<html>", {"content-type": "text/html"}),
    "packed": lambda wire: wire.send(
        format_head(200, {"content-type": "text/event-stream", "content-encoding": "gzip"})
    ),
    "silence": lambda wire: None,
    "a head without an end": lambda wire: wire.send(b"HTTP/1.1 200 OK\r\nx: y\r\n"),
    "no HTTP": lambda wire: wire.send(b"\x16\x03\x01"),
}


@pytest.mark.parametrize("name", NO_STREAMS)
def test_what_is_no_stream_is_none(name: str) -> None:
    async def story() -> None:
        async with following() as one:
            one.server.answer_stream = NO_STREAMS[name]
            one.server.stream.close()
            await pass_time(1 + POLICY.connect_s)
            assert one.server.streams[1].is_gone
            one.serves(1)
            assert one.billing.state in (FlagState.STALE, FlagState.ERROR)

    run(story())


def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    async def story() -> None:
        async with following() as one:
            one.server.answer_stream = lambda wire: wire.reply(429, b"", {"retry-after": "40"})
            one.server.stream.close()
            await pass_time(39)
            assert len(one.server.streams) == 2
            one.server.answer_stream = Wire.begin_stream
            await pass_time(3)
            assert len(one.server.streams) == 3
            one.server.stream.send(b"retry: 30000\n\n")
            one.server.stream.close()
            await pass_time(29)
            assert len(one.server.streams) == 3
            await pass_time(3)
            assert len(one.server.streams) == 4

    run(story())


def test_a_namespace_that_does_not_exist_keeps_no_other_from_being_followed() -> None:
    refusal = {
        "error": {
            "code": "invalid_subscription",
            "message": "there is no growth",
            "details": {"reason": "unknown_namespace", "namespace": "growth"},
        }
    }

    def answer(wire: Wire) -> None:
        if "growth:*" in wire.request.query["ns"]:
            wire.reply(400, json.dumps(refusal).encode())
        else:
            wire.begin_stream()

    async def story() -> None:
        server = MemoryServer(answer_rightly, answer_stream=answer)
        both = {"growth": "*", "billing": "*"}
        async with following(server, begun=False, namespaces=both) as one:
            growth = one.group.namespace("growth")
            assert [len(each.request.query["ns"]) for each in server.streams] == [2, 1]
            await one.version(snapshot_event(1, ONE))
            one.serves(1)
            assert "there is no growth" in str(growth.last_refresh_error())
            server.answer_stream = Wire.begin_stream
            await pass_time(POLICY.readmit_s)
            assert [len(each.request.query["ns"]) for each in server.streams] == [2, 1, 2]
            assert server.streams[1].is_gone
            assert one.billing.state is FlagState.FRESH
            await one.version(snapshot_event(1, ONE))
            await one.version(snapshot_event(2, TWO, namespace="growth"))
            assert (growth.version, growth.state) == (2, FlagState.FRESH)
            assert one.states == [FlagState.FRESH]

    run(story())


# --- waiting and listening ---------------------------------------------------------------------


def test_who_waits_in_vain_is_told_why() -> None:
    async def story() -> None:
        async with following(begun=False) as one:
            with pytest.raises(FlagsNotReady, match="nothing was announced"):
                await one.billing.wait_ready(5)
            one.server.stream.close()
            one.server.refuses_connections = True
            with pytest.raises(FlagsNotReady, match="nobody listens"):
                await one.group.wait_ready(5)
            assert one.billing.state is FlagState.NOT_READY

    run(story())


def test_who_waits_is_told_when_the_group_ends() -> None:
    async def story() -> None:
        async with following(begun=False) as one:
            waiting = asyncio.create_task(one.billing.wait_ready())
            await settle()
        with pytest.raises(FlagsNotReady):
            await waiting

    run(story())


def test_a_listener_can_leave_and_one_that_fails_does_no_harm() -> None:
    async def story() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: failures.append(context["exception"])
        )
        async with following() as one:
            heard: list[int] = []
            leave = one.billing.on_change(lambda change: heard.append(change.version))
            one.billing.on_change(lambda change: 1 / 0)
            await one.version(inline_event(2, ONE, TWO))
            leave()
            leave()
            await one.version(inline_event(3, TWO, THREE))
            assert heard == [2]
            assert [type(each) for each in failures] == [ZeroDivisionError] * 2
            one.serves(3)

    run(story())


def test_a_group_is_used_once() -> None:
    async def story() -> None:
        async with following() as one:
            with pytest.raises(RuntimeError, match="once"):
                await one.group.__aenter__()
            with pytest.raises(KeyError):
                one.group.namespace("growth")

    run(story())
