"""The state machine of one namespace: what comes in, what goes out, what is served meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from headrace.client.flags.actions import (
    Action,
    FetchCancelled,
    FetchWanted,
    ReconnectWanted,
    SnapshotReply,
    StateChanged,
    TreePublished,
    VerificationWanted,
)
from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.announcements import parse_announcement
from headrace.client.flags.event_parser import StreamedEvent
from headrace.client.flags.mirror import NamespaceMirror, NamespaceSubscription
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.problems import FlagState, RefreshCheck, RefreshError
from headrace.core.limits import FLAGS_CLIENT_WAITING_BYTES_MAX, FLAGS_CLIENT_WAITING_DELTAS_MAX
from headrace.flags.subscription import parse_flag_list
from support.flag_history import (
    closure_hash,
    closure_path,
    etag,
    flag_file,
    inline_event,
    pack,
    resync_event,
    snapshot_event,
)

POLICY = RefreshPolicy(pause_s=1, pause_s_max=8, fetch_s=30, error_after_s=10)
ONE = {"flags/a.toml": flag_file(value=1)}
TWO = {"flags/a.toml": flag_file(value=2)}
THREE = {"flags/a.toml": flag_file(value=3), "flags/b.toml": flag_file(value=3)}
BROKEN = {"flags/a.toml": flag_file(value=4, valid=False)}
T = TypeVar("T")


class Bench:
    """A mirror, a clock, and what it wanted done."""

    def __init__(self, flags: str = "*", name: str = "billing", bearer: bool = True) -> None:
        self.now = 100.0
        self.actions: list[Action] = []
        self.mirror = NamespaceMirror(
            NamespaceSubscription(name, parse_flag_list(flags)),
            ServerAddress.parse("http://flags.test"),
            POLICY,
            lambda: 1.0,
            self.actions.append,
            {"authorization": "Bearer secret"} if bearer else {},
        )
        self.mirror.stream_began()

    def hear(self, name: str, data: Mapping[str, Any]) -> None:
        found = parse_announcement(StreamedEvent(name, json.dumps(data)))
        assert found is not None
        self.mirror.receive(found[1], self.now)

    def version(self, data: Mapping[str, Any]) -> None:
        self.hear("version", data)

    def take(self, kind: type[T]) -> T:
        """The next action, which must be of this kind."""
        action = self.actions.pop(0)
        assert isinstance(action, kind), action
        return action

    def take_last(self, kind: type[T]) -> T:
        """The last action of this kind; the others are of no interest."""
        *_, action = (each for each in self.actions if isinstance(each, kind))
        self.actions.clear()
        return action

    def take_nothing(self) -> None:
        assert self.actions == []

    def fetched(self, fetch: FetchWanted, reply: SnapshotReply | RefreshError) -> None:
        self.mirror.fetched(fetch.number, reply, self.now)

    def verify(self) -> None:
        """Do the work that is wanted."""
        wanted = self.take(VerificationWanted)
        self.mirror.verified(wanted.number, wanted.work(), self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.mirror.tick(self.now)

    def begin(self, version: int, files: Mapping[str, bytes]) -> None:
        """The first snapshot, all the way into service."""
        self.version(snapshot_event(version, files))
        self.fetched(self.take(FetchWanted), SnapshotReply(200, pack(files)))
        self.verify()
        assert self.take(TreePublished).tree.files == files
        assert self.take(StateChanged).state is FlagState.FRESH
        self.serves(version, files)

    def serves(self, version: int, files: Mapping[str, bytes]) -> None:
        tree = self.mirror.tree
        assert tree is not None
        assert (tree.version, tree.files, tree.closure_hash) == (
            version,
            files,
            closure_hash(files),
        )

    @property
    def check(self) -> RefreshCheck | None:
        return None if self.mirror.error is None else self.mirror.error.check


# --- the ways of a right server ----------------------------------------------------------------


def test_a_snapshot_then_deltas() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    bench.serves(1, ONE)
    bench.verify()
    bench.serves(2, TWO)
    bench.version(inline_event(5, TWO, THREE))
    published = bench.take(TreePublished)
    assert published.previous is not None
    assert (published.previous.version, published.tree.version) == (1, 2)
    bench.verify()
    bench.serves(5, THREE)
    assert bench.take(TreePublished).tree.version == 5
    bench.take_nothing()
    assert bench.mirror.state is FlagState.FRESH
    assert bench.mirror.error is None
    assert bench.mirror.wake_at is None


def test_a_signed_url_is_asked_for_as_it_is_with_the_credential() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    fetch = bench.take(FetchWanted)
    assert fetch.target == f"{closure_path('billing')}?version=1&token=signed"
    assert fetch.headers == {"authorization": "Bearer secret"}
    assert fetch.bytes_max == POLICY.snapshot_bytes_max


def test_files_that_are_held_are_not_fetched_again_on_a_new_stream() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.mirror.stream_ended(RefreshError(RefreshCheck.CONNECTION, "cut"), bench.now)
    assert bench.take(StateChanged).state is FlagState.STALE
    bench.mirror.stream_began()
    bench.version(snapshot_event(1, ONE))
    assert bench.take(StateChanged).state is FlagState.FRESH
    bench.take_nothing()
    bench.mirror.stream_began()
    bench.version(snapshot_event(7, ONE))  # the same files, of a later version
    bench.serves(7, ONE)
    bench.version(inline_event(8, ONE, TWO))
    bench.take(TreePublished)
    bench.verify()
    bench.serves(8, TWO)


def test_deltas_wait_for_the_snapshot_that_they_are_against() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    fetch = bench.take(FetchWanted)
    bench.version(inline_event(2, ONE, TWO))
    bench.version(inline_event(3, TWO, THREE))
    bench.take_nothing()
    bench.fetched(fetch, SnapshotReply(200, pack(ONE)))
    bench.verify()
    bench.take(TreePublished)
    bench.take(StateChanged)
    bench.verify()
    bench.take(TreePublished)
    bench.verify()
    bench.serves(3, THREE)


def test_a_newer_snapshot_takes_the_place_of_one_under_way() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    late = bench.take(FetchWanted)
    bench.version(snapshot_event(2, TWO))
    assert bench.take(FetchCancelled).number == late.number
    fetch = bench.take(FetchWanted)
    bench.fetched(late, SnapshotReply(200, pack(ONE)))
    bench.take_nothing()
    bench.fetched(fetch, SnapshotReply(200, pack(TWO)))
    bench.verify()
    bench.serves(2, TWO)


def test_a_verification_that_nobody_wants_any_more_changes_nothing_and_is_waited_for() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    late = bench.take(VerificationWanted)
    bench.mirror.stream_began()
    for version in range(3, 100):  # a flood: no work but the one that there is
        bench.version(snapshot_event(version, THREE))
    bench.take_nothing()
    bench.mirror.verified(late.number, late.work(), bench.now)
    bench.serves(1, ONE)
    fetch = bench.take(FetchWanted)
    assert "version=99&" in fetch.target
    bench.fetched(fetch, SnapshotReply(200, pack(THREE)))
    wanted = bench.take(VerificationWanted)
    bench.mirror.verified(late.number, late.work(), bench.now)
    bench.serves(1, ONE)
    bench.mirror.verified(wanted.number, wanted.work(), bench.now)
    bench.serves(99, THREE)
    bench.mirror.verified(wanted.number, late.work(), bench.now)
    bench.serves(99, THREE)


def test_deltas_go_on_behind_a_verification_that_nobody_wants_any_more() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    late = bench.take(VerificationWanted)
    bench.mirror.stream_began()
    bench.version(snapshot_event(3, ONE))  # back to what is held
    assert bench.take(TreePublished).tree.version == 3
    assert bench.mirror.state is FlagState.FRESH
    bench.version(inline_event(4, ONE, THREE))
    bench.take_nothing()
    bench.mirror.verified(late.number, late.work(), bench.now)
    bench.serves(3, ONE)
    bench.verify()
    bench.serves(4, THREE)


def test_the_same_snapshot_announced_again_does_not_begin_anew() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    fetch = bench.take(FetchWanted)
    bench.mirror.stream_ended(RefreshError(RefreshCheck.CONNECTION, "cut"), bench.now)
    bench.mirror.stream_began()
    bench.version(snapshot_event(1, ONE, snapshot_url="http://flags.test/other"))
    bench.take_nothing()
    bench.fetched(fetch, SnapshotReply(200, pack(ONE)))
    wanted = bench.take(VerificationWanted)
    bench.mirror.stream_began()
    bench.version(snapshot_event(1, ONE))
    bench.take_nothing()
    bench.mirror.verified(wanted.number, wanted.work(), bench.now)
    bench.serves(1, ONE)


# --- the checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "check"),
    [
        (inline_event(2, TWO, THREE), RefreshCheck.PRE_APPLY),
        (inline_event(2, ONE, TWO, prev_closure_hash=closure_hash(TWO)), RefreshCheck.PRE_APPLY),
        (
            inline_event(2, ONE, TWO, files=inline_event(2, ONE, BROKEN)["files"]),
            RefreshCheck.POST_APPLY,
        ),
        (inline_event(2, ONE, TWO, closure_hash=closure_hash(THREE)), RefreshCheck.POST_APPLY),
        (
            inline_event(2, ONE, TWO, files=[
                {**inline_event(2, ONE, TWO)["files"][0], "sha256": "0" * 64}
            ]),
            RefreshCheck.PER_FILE,
        ),
        (
            inline_event(2, ONE, TWO, files=inline_event(2, ONE, TWO)["files"] * 2),
            RefreshCheck.PER_FILE,
        ),
        (
            inline_event(2, ONE, TWO, files=[{"path": "flags/z.toml", "op": "removed"}]),
            RefreshCheck.PER_FILE,
        ),
        (inline_event(2, ONE, BROKEN), RefreshCheck.LINT),
    ],
)  # fmt: skip
def test_a_delta_that_fails_a_check_ends_in_a_snapshot(
    event: dict[str, Any], check: RefreshCheck
) -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(event)
    if check is not RefreshCheck.PRE_APPLY:
        bench.verify()
    assert bench.take(StateChanged).state is FlagState.STALE
    assert bench.check is check
    bench.serves(1, ONE)
    fetch = bench.take(FetchWanted)
    assert fetch.target.startswith(f"{closure_path('billing')}?version=2&subscription=Kg")
    bench.take_nothing()
    if event["closure_hash"] == closure_hash(TWO):
        bench.fetched(fetch, SnapshotReply(200, pack(TWO)))
        bench.verify()
        bench.serves(2, TWO)
        assert bench.mirror.state is FlagState.FRESH
        assert bench.mirror.error is None


def test_a_delta_that_lint_refuses_is_asked_for_again_without_its_body() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, BROKEN))
    bench.verify()
    bench.take(StateChanged)
    fetch = bench.take(FetchWanted)
    assert fetch.headers["if-none-match"] == etag(2, BROKEN)
    bench.fetched(fetch, SnapshotReply(304))
    assert bench.check is RefreshCheck.LINT
    bench.serves(1, ONE)
    bench.version(inline_event(3, BROKEN, TWO))  # mended: it is against what was not taken
    bench.take_nothing()
    bench.pass_time(1)
    fetch = bench.take(FetchWanted)
    assert "if-none-match" not in fetch.headers
    bench.fetched(fetch, SnapshotReply(200, pack(TWO)))
    bench.verify()
    bench.serves(3, TWO)


@pytest.mark.parametrize(
    ("body", "check"),
    [
        (pack(TWO), RefreshCheck.SNAPSHOT),
        (pack({}), RefreshCheck.SNAPSHOT),
        (pack(ONE)[:-1], RefreshCheck.SNAPSHOT),
        (pack(ONE)[:20], RefreshCheck.SNAPSHOT),
        (pack(ONE) + b"!", RefreshCheck.SNAPSHOT),
        (b"", RefreshCheck.SNAPSHOT),
        (b"<html>", RefreshCheck.SNAPSHOT),
        (pack({**ONE, "flags/c.toml": ONE["flags/a.toml"]}), RefreshCheck.SNAPSHOT),
        (pack({"flags/A.toml": ONE["flags/a.toml"]}), RefreshCheck.SNAPSHOT),
    ],
)
def test_a_snapshot_that_is_not_the_announced_one_is_fetched_again_later(
    body: bytes, check: RefreshCheck
) -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    for pause in (1, 2):
        bench.fetched(bench.take(FetchWanted), SnapshotReply(200, body))
        bench.verify()
        assert bench.check is check
        assert bench.mirror.tree is None
        bench.pass_time(pause - 0.25)
        bench.take_nothing()
        bench.pass_time(0.25)
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(ONE)))
    bench.verify()
    bench.serves(1, ONE)


def test_a_snapshot_that_lint_refuses_does_not_serve_though_its_hash_is_right() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(snapshot_event(2, BROKEN))
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(BROKEN)))
    bench.verify()
    assert bench.check is RefreshCheck.LINT
    bench.serves(1, ONE)
    bench.take(StateChanged)
    bench.pass_time(1)
    fetch = bench.take(FetchWanted)
    assert fetch.headers["if-none-match"] == etag(2, BROKEN)


def test_a_snapshot_that_is_still_refused_says_why_whatever_came_between() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(snapshot_event(2, BROKEN))
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(BROKEN)))
    bench.verify()
    why = bench.mirror.error
    bench.mirror.stream_ended(RefreshError(RefreshCheck.CONNECTION, "cut"), bench.now)
    assert bench.check is RefreshCheck.CONNECTION
    bench.pass_time(1)
    bench.fetched(bench.take_last(FetchWanted), SnapshotReply(304))
    assert bench.mirror.error == why
    bench.serves(1, ONE)


def test_flags_that_nobody_asked_for_are_not_served() -> None:
    bench = Bench("a")
    bench.version(snapshot_event(1, THREE))
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(THREE)))
    bench.verify()
    assert bench.check is RefreshCheck.LINT
    assert bench.mirror.tree is None


def test_files_that_are_too_many_bytes_are_not_asked_for() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE, snapshot_size_bytes=10**12))
    bench.take_nothing()
    assert bench.check is RefreshCheck.SNAPSHOT
    bench.version(snapshot_event(2, TWO))
    assert bench.take(FetchWanted)


# --- order -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "replayed",
    [
        snapshot_event(1, TWO),
        snapshot_event(2, TWO),
        inline_event(2, ONE, TWO),
        inline_event(1, ONE, THREE),
    ],
)
def test_what_is_not_newer_is_not_heard(replayed: dict[str, Any]) -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    bench.verify()
    bench.take(TreePublished)
    bench.version(replayed)
    bench.take_nothing()
    bench.serves(2, TWO)
    assert bench.mirror.state is FlagState.FRESH


@pytest.mark.parametrize(
    "impossible",
    [
        snapshot_event(1, ONE),
        snapshot_event(2, ONE),
        inline_event(2, TWO, THREE),
        inline_event(1, TWO, ONE),
    ],
)
def test_versions_that_contradict_each_other_open_a_new_stream(impossible: dict[str, Any]) -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    bench.verify()
    bench.take(TreePublished)
    bench.version(impossible)
    assert bench.take(ReconnectWanted).error.check is RefreshCheck.EVENT
    bench.take_nothing()
    bench.serves(2, TWO)


def test_a_delta_that_was_dropped_is_found_out_with_the_next() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(3, TWO, THREE))
    bench.take(StateChanged)
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(THREE)))
    bench.verify()
    bench.serves(3, THREE)
    bench.version(inline_event(2, ONE, TWO))  # it was only late
    bench.serves(3, THREE)


def test_a_first_event_may_go_back() -> None:
    bench = Bench()
    bench.begin(5, THREE)
    bench.mirror.stream_began()
    bench.version(snapshot_event(1, ONE))  # the namespace was made again meanwhile
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(ONE)))
    bench.verify()
    bench.serves(1, ONE)


def test_a_delta_before_any_snapshot_ends_in_one() -> None:
    bench = Bench(name="acme/billing")
    bench.version(inline_event(2, ONE, TWO))
    assert bench.take(FetchWanted).target.startswith(f"{closure_path('billing')}?version=2&")
    bench.version(snapshot_event(1, ONE))
    assert bench.take(ReconnectWanted).error.check is RefreshCheck.EVENT
    bench.take_nothing()


def test_without_a_tenant_there_is_nothing_to_fetch_but_a_new_stream() -> None:
    bench = Bench()
    bench.version(inline_event(2, ONE, TWO))
    assert bench.take(ReconnectWanted).error.check is RefreshCheck.FETCH
    bench.take_nothing()


def test_too_many_deltas_at_once_end_in_a_snapshot_of_the_last() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    fetch = bench.take(FetchWanted)
    last = FLAGS_CLIENT_WAITING_DELTAS_MAX + 2
    for version in range(2, last):
        bench.version(inline_event(version, ONE, TWO))
    bench.take_nothing()
    bench.version(inline_event(last, ONE, TWO))
    assert bench.take(FetchCancelled).number == fetch.number
    assert f"version={last}&" in bench.take(FetchWanted).target


def test_deltas_that_are_too_large_together_end_in_a_snapshot_of_the_last() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    bench.take(FetchWanted)
    large = inline_event(2, ONE, {"flags/a.toml": bytes(FLAGS_CLIENT_WAITING_BYTES_MAX // 2)})
    bench.version(large)
    bench.take_nothing()
    bench.version(large | {"version": 3})
    bench.take(FetchCancelled)
    assert "version=3&" in bench.take(FetchWanted).target


# --- resync ------------------------------------------------------------------------------------


def test_a_resync_is_verified_by_what_the_reply_says_it_is() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.hear("resync", resync_event(4))
    for label in (etag(4, THREE), "", '"x"', etag(3, TWO), '"v4-sha256:zz"'):
        for files in (TWO, {}):
            bench.fetched(bench.take_last(FetchWanted), SnapshotReply(200, pack(files), label))
            bench.verify()
            assert bench.check is RefreshCheck.SNAPSHOT
            bench.serves(1, ONE)
            bench.pass_time(8)
    bench.fetched(bench.take_last(FetchWanted), SnapshotReply(200, pack(TWO), etag(4, TWO)))
    bench.verify()
    bench.serves(4, TWO)


def test_a_resync_to_what_is_held_costs_no_body() -> None:
    bench = Bench()
    bench.begin(4, ONE)
    bench.hear("resync", resync_event(4))
    fetch = bench.take(FetchWanted)
    assert fetch.headers["if-none-match"] == etag(4, ONE)
    bench.fetched(fetch, SnapshotReply(304))
    bench.serves(4, ONE)
    assert bench.mirror.state is FlagState.FRESH


def test_a_resync_may_go_back_only_where_versions_began_anew() -> None:
    bench = Bench()
    bench.begin(9, ONE)
    bench.hear("resync", resync_event(3))
    bench.take_nothing()
    bench.hear("resync", resync_event(3, "unknown_since"))
    bench.fetched(bench.take(FetchWanted), SnapshotReply(200, pack(TWO), etag(3, TWO)))
    bench.verify()
    bench.serves(3, TWO)
    bench.version(inline_event(4, TWO, THREE))
    bench.take(TreePublished)
    bench.verify()
    bench.serves(4, THREE)


def test_a_downgrade_is_the_end_of_refreshing_but_not_of_serving() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(snapshot_event(2, TWO))
    fetch = bench.take(FetchWanted)
    bench.hear("resync", resync_event(2, "protocol_downgrade"))
    assert bench.take(FetchCancelled).number == fetch.number
    assert bench.take(StateChanged).state is FlagState.ERROR
    bench.version(snapshot_event(3, THREE))
    bench.hear("resync", resync_event(4))
    bench.fetched(fetch, SnapshotReply(200, pack(TWO)))
    bench.mirror.stream_ended(RefreshError(RefreshCheck.CONNECTION, "cut"), bench.now)
    bench.pass_time(1000)
    bench.take_nothing()
    bench.serves(1, ONE)
    assert bench.check is RefreshCheck.PROTOCOL


def test_an_event_that_cannot_be_used_is_an_error_until_one_can() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.mirror.refuse(RefreshError(RefreshCheck.PROTOCOL, "v3"), bench.now)
    assert bench.take(StateChanged).state is FlagState.ERROR
    bench.serves(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    bench.verify()
    bench.serves(2, TWO)
    assert bench.mirror.state is FlagState.FRESH


# --- fetching ----------------------------------------------------------------------------------


def test_an_expired_url_is_replaced_by_the_credential_at_once() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    expired = SnapshotReply(401, code="closure_token_invalid")
    bench.fetched(bench.take(FetchWanted), expired)
    fetch = bench.take(FetchWanted)
    assert fetch.target == f"{closure_path('billing')}?version=1&subscription=Kg"
    assert fetch.headers["authorization"] == "Bearer secret"
    bench.fetched(fetch, SnapshotReply(401))
    assert bench.take(ReconnectWanted).error.status == 401
    bench.take_nothing()


@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_an_answer_that_will_not_change_wants_a_new_stream(status: int) -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    bench.fetched(bench.take(FetchWanted), SnapshotReply(status, code="closure_unavailable"))
    error = bench.take(ReconnectWanted).error
    assert (error.check, error.status, error.code) == (
        RefreshCheck.FETCH,
        status,
        "closure_unavailable",
    )


@pytest.mark.parametrize(
    "reply",
    [
        SnapshotReply(500),
        SnapshotReply(503),
        SnapshotReply(429),
        SnapshotReply(302),
        SnapshotReply(206, pack(ONE)),
        SnapshotReply(304),
        RefreshError(RefreshCheck.FETCH, "cut"),
    ],
)
def test_other_failures_are_tried_again_ever_later_and_then_on_a_new_stream(
    reply: SnapshotReply | RefreshError,
) -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(snapshot_event(2, TWO))
    for tries, pause in enumerate((1, 2, 4, 8, 8, 8), 1):
        fetch = bench.take(FetchWanted)
        bench.fetched(fetch, reply)
        bench.actions[:] = [each for each in bench.actions if not isinstance(each, StateChanged)]
        if tries % 3 == 0:
            bench.take(ReconnectWanted)
        bench.take_nothing()
        bench.pass_time(pause - 0.25)
        bench.actions[:] = [each for each in bench.actions if not isinstance(each, StateChanged)]
        bench.take_nothing()
        bench.pass_time(0.25)
    bench.serves(1, ONE)
    assert bench.mirror.state is FlagState.ERROR


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    bench.fetched(bench.take(FetchWanted), SnapshotReply(429, retry_after_s=20))
    bench.pass_time(19.75)
    bench.take_nothing()
    bench.pass_time(0.25)
    assert bench.take(FetchWanted)


def test_a_snapshot_that_takes_too_long_is_given_up() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    fetch = bench.take(FetchWanted)
    assert bench.mirror.wake_at == bench.now + 30
    bench.pass_time(30)
    assert bench.take(FetchCancelled).number == fetch.number
    assert bench.check is RefreshCheck.FETCH
    bench.fetched(fetch, SnapshotReply(200, pack(ONE)))  # too late
    bench.take_nothing()
    bench.pass_time(1)
    assert bench.take(FetchWanted).number != fetch.number


@pytest.mark.parametrize(
    "url",
    [
        f"http://evil.test{closure_path('billing')}?version=1&token=t",
        f"https://flags.test{closure_path('billing')}?version=1&token=t",
        f"http://flags.test:81{closure_path('billing')}?version=1&token=t",
    ],
)
def test_a_url_elsewhere_is_not_followed_but_asked_for_here(url: str) -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE, snapshot_url=url))
    assert bench.take(FetchWanted).target == (
        f"{closure_path('billing')}?version=1&subscription=Kg"
    )


def test_deltas_that_came_while_a_fetch_failed_are_what_is_fetched_next() -> None:
    bench = Bench()
    bench.version(snapshot_event(1, ONE))
    fetch = bench.take(FetchWanted)
    bench.version(inline_event(2, ONE, TWO))
    bench.version(inline_event(3, TWO, THREE))
    bench.fetched(fetch, SnapshotReply(500))
    bench.pass_time(1)
    fetch = bench.take(FetchWanted)
    assert "version=3&" in fetch.target
    bench.fetched(fetch, SnapshotReply(200, pack(THREE)))
    bench.verify()
    bench.serves(3, THREE)


# --- states ------------------------------------------------------------------------------------


def test_stale_before_error_when_the_stream_is_lost() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    lost = RefreshError(RefreshCheck.CONNECTION, "cut")
    bench.mirror.stream_ended(lost, bench.now)
    change = bench.take(StateChanged)
    assert (change.previous, change.state) == (FlagState.FRESH, FlagState.STALE)
    assert change.error is lost
    assert bench.mirror.wake_at == bench.now + 10
    bench.pass_time(9.75)
    bench.take_nothing()
    bench.pass_time(0.25)
    assert bench.take(StateChanged).state is FlagState.ERROR
    bench.mirror.stream_began()
    assert bench.mirror.state is FlagState.ERROR  # nobody has said yet where things stand
    bench.version(snapshot_event(1, ONE))
    assert bench.take(StateChanged).state is FlagState.FRESH
    assert bench.mirror.error is None


def test_a_refusal_that_stays_is_an_error_at_once() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    revoked = RefreshError(RefreshCheck.CONNECTION, "revoked", status=401)
    bench.mirror.stream_ended(revoked, bench.now, stays=True)
    assert bench.take(StateChanged).state is FlagState.ERROR
    bench.serves(1, ONE)


def test_a_stream_that_is_opened_anew_on_purpose_makes_nothing_stale() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.mirror.stream_paused()
    bench.take_nothing()
    assert bench.mirror.state is FlagState.FRESH


def test_what_is_verified_without_a_stream_is_served_and_stale() -> None:
    bench = Bench()
    bench.begin(1, ONE)
    bench.version(inline_event(2, ONE, TWO))
    bench.mirror.stream_ended(RefreshError(RefreshCheck.CONNECTION, "cut"), bench.now)
    wanted = bench.take(VerificationWanted)
    bench.take(StateChanged)
    bench.mirror.verified(wanted.number, wanted.work(), bench.now)
    bench.serves(2, TWO)
    assert bench.mirror.state is FlagState.STALE
