"""The stream of a group: which connection counts, and when the next one is wanted."""

from __future__ import annotations

from typing import TypeVar

import pytest

from headrace.client.flags.actions import (
    FetchWanted,
    StateChanged,
    StreamCancelled,
    StreamRefusal,
    StreamWanted,
)
from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.options import make_session, parse_namespaces
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.session import GroupSession
from support.flag_history import flag_file, format_event, snapshot_event

POLICY = RefreshPolicy(pause_s=1, pause_s_max=8)
SERVER = ServerAddress.parse("http://flags.test")
ONE = format_event("version", snapshot_event(1, {"flags/a.toml": flag_file()}))
T = TypeVar("T")


def session_of(**namespaces: str) -> GroupSession:
    chosen = parse_namespaces(namespaces or {"billing": "*"})
    session = GroupSession(SERVER, chosen, POLICY, lambda: 1.0, {})
    session.start(0.0)
    return session


def take(session: GroupSession, kind: type[T]) -> T:
    """The only thing that is to be done, which must be of this kind."""
    (action,) = session.take_actions()
    assert isinstance(action, kind), action
    return action


def test_of_a_connection_that_was_given_up_nothing_is_heard() -> None:
    session = session_of()
    old = take(session, StreamWanted).number
    session.tick(10.0)
    assert take(session, StreamCancelled).number == old
    session.stream_began(old, 10.0)
    session.stream_received(old, ONE, 10.0)
    session.stream_refused(old, StreamRefusal(401), 10.0)
    session.stream_ended(old, "late", 10.0)
    assert session.take_actions() == []
    assert session.wake_at == 11.0
    session.tick(11.0)
    new = take(session, StreamWanted).number
    session.stream_began(old, 11.0)
    session.stream_began(new, 11.0)
    session.stream_received(old, ONE, 11.0)
    session.stream_ended(old, "late", 11.0)
    assert session.take_actions() == []
    session.stream_received(new, ONE, 11.0)
    assert take(session, FetchWanted).namespace == "billing"


def test_pauses_grow_until_a_stream_lasted() -> None:
    session = session_of()
    now = 0.0
    for pause in (1, 2, 4, 8, 8):
        number = take(session, StreamWanted).number
        session.stream_began(number, now)
        session.stream_ended(number, "cut", now)
        assert session.wake_at == now + pause
        now += pause
        session.tick(now)
    number = take(session, StreamWanted).number
    session.stream_began(number, now)
    now += POLICY.stable_s
    session.stream_ended(number, "cut", now)
    assert session.wake_at == now + 1


def test_a_group_that_ended_wants_nothing() -> None:
    session = session_of()
    number = take(session, StreamWanted).number
    session.stop()
    session.stream_began(number, 0.0)
    session.stream_ended(number, "cut", 0.0)
    session.tick(1000.0)
    assert session.take_actions() == []


def test_the_last_namespace_is_not_left_out() -> None:
    session = session_of()
    details = {"reason": "unknown_namespace", "namespace": "billing"}
    refusal = StreamRefusal(400, "invalid_subscription", "no billing", details)
    session.stream_refused(take(session, StreamWanted).number, refusal, 0.0)
    assert session.take_actions() == []
    assert session.mirrors["billing"].error is not None
    session.tick(8.0)
    assert take(session, StreamWanted).target.endswith("ns=billing:*")


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"reason": "unknown_namespace"},
        {"reason": "unknown_namespace", "namespace": ["growth"]},
        {"reason": "unknown_namespace", "namespace": "other"},
        {"reason": "malformed", "namespace": "growth"},
    ],
)
def test_only_a_namespace_that_is_named_is_left_out(details: dict[str, object]) -> None:
    session = session_of(billing="*", growth="a")
    number = take(session, StreamWanted).number
    session.stream_refused(number, StreamRefusal(400, details=details), 0.0)
    assert session.take_actions() == []


def test_a_namespace_is_asked_for_again_only_between_streams() -> None:
    session = session_of(billing="*", growth="a")
    details = {"reason": "unknown_namespace", "namespace": "growth"}
    number = take(session, StreamWanted).number
    session.stream_refused(number, StreamRefusal(400, details=details), 0.0)
    number = take(session, StreamWanted).number
    session.stream_began(number, 0.0)
    session.stream_ended(number, "cut", POLICY.readmit_s - 2)
    session.tick(POLICY.readmit_s - 1)
    number = take(session, StreamWanted).number
    session.tick(POLICY.readmit_s)  # due, but the stream without it is about to open
    assert session.take_actions() == []
    session.stream_began(number, POLICY.readmit_s)
    session.stream_received(number, ONE, POLICY.readmit_s)
    assert take(session, FetchWanted)
    at = POLICY.readmit_s - 1 + POLICY.connect_s
    session.tick(at)
    cancelled, wanted = session.take_actions()
    assert isinstance(cancelled, StreamCancelled)
    assert isinstance(wanted, StreamWanted)
    assert "ns=growth:a" in wanted.target


def test_a_silent_stream_is_given_up() -> None:
    session = session_of()
    number = take(session, StreamWanted).number
    session.stream_began(number, 0.0)
    session.stream_received(number, b":", 70.0)
    session.tick(140.0)
    assert session.take_actions() == []
    session.tick(145.0)
    assert take(session, StreamCancelled).number == number


def test_states_are_told_for_each_namespace() -> None:
    session = session_of(billing="*", growth="a")
    assert not any(isinstance(action, StateChanged) for action in session.take_actions())
    assert set(session.mirrors) == {"billing", "growth"}


# --- what users say ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "namespaces",
    [
        {},
        {"Billing": "*"},
        {"billing": ""},
        {"billing": []},
        {"billing": ["a", "*"]},
        {"billing": "a,,b"},
        {"a/b/c": "*"},
        {"/billing": "*"},
        {"acme/billing": "*", "growth": "*"},
        {"acme/billing": "*", "other/growth": "*"},
        {f"n{number}": "*" for number in range(33)},
        {"billing": [f"f{number}" for number in range(65)]},
        {f"n{at}": [f"{'k' * 60}{each}" for each in range(64)] for at in range(3)},
    ],
)
def test_what_no_server_would_take_is_refused(namespaces: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make_session(SERVER, None, namespaces, None)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nx: y", "é"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        make_session(SERVER, token, {"billing": "*"}, None)


def test_flags_are_named_once_and_in_order() -> None:
    (found,) = parse_namespaces({"acme/billing": ["b", "a", "b"]})
    assert (found.tenant, found.slug, found.flags.canonical) == ("acme", "billing", "a,b")
