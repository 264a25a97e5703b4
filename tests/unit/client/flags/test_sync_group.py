"""A group in a thread of its own: the same driver, for who has no event loop. Without sockets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from queue import Queue
from typing import Any

import pytest

from headrace.client.flags import (
    FlagChange,
    FlagGroup,
    FlagsNotReady,
    FlagState,
    FlagStateChange,
    RefreshCheck,
    RefreshError,
    RefreshPolicy,
    mirror,
)
from support.flag_history import (
    Files,
    etag,
    flag_file,
    inline_event,
    pack,
    segment_file,
    snapshot_event,
)
from support.memory_server import MemoryServer, Wire

WAIT_S = 30.0
"""Far longer than anything here takes."""
ONE: Files = {"flags/a.toml": flag_file(("s",), 1), "segments/s.toml": segment_file((), 1)}
TWO: Files = {**ONE, "flags/a.toml": flag_file(("s",), 2)}
POLICY = RefreshPolicy(pause_s=0.001, pause_s_max=0.001)


def answer_closure(wire: Wire) -> None:
    wire.reply(200, pack(ONE), {"etag": etag(1, ONE)})


def begin(wire: Wire) -> None:
    wire.begin_stream()
    wire.event("version", snapshot_event(1, ONE))


def group_of(server: MemoryServer, **options: Any) -> FlagGroup:
    chosen = {"namespaces": {"billing": "*"}, "policy": POLICY} | options
    return FlagGroup("http://flags.test", connect=server.connect, **chosen)


def say(server: MemoryServer, group: FlagGroup, data: Mapping[str, Any]) -> None:
    """Say something on the stream; the loop of the group has it."""
    group._loop.call_soon_threadsafe(server.stream.event, "version", data)


def test_a_program_without_a_loop() -> None:
    server = MemoryServer(answer_closure, answer_stream=begin)
    changes: Queue[FlagChange] = Queue()
    states: Queue[FlagStateChange] = Queue()
    threads: set[str] = set()
    with group_of(server) as group:
        billing = group.namespace("billing")
        billing.wait_ready(WAIT_S)
        group.wait_ready(WAIT_S)
        assert billing.eval("a", {"plan": 1}, default=0) == 1
        billing.on_change(changes.put)
        billing.on_change(lambda change: threads.add(threading.current_thread().name))
        billing.on_state(states.put)
        say(server, group, inline_event(2, ONE, TWO))
        change = changes.get(timeout=WAIT_S)
        assert (change.version, change.previous_version, change.flags) == (2, 1, {"a"})
        found = billing.evaluate("a", {"plan": 1})
        assert (found.value, found.version) == (2, 2)
        group._loop.call_soon_threadsafe(server.stream.close)
        assert states.get(timeout=WAIT_S).previous is FlagState.FRESH
    assert billing.state in (FlagState.STALE, FlagState.ERROR)
    assert billing.version in (1, 2)
    assert threads == {"headrace-flags-listen_0"}
    assert not group._thread.is_alive()
    group.close()


def test_a_listener_that_fails_is_logged_and_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = MemoryServer(answer_closure, answer_stream=begin)
    heard = threading.Event()

    def fail(change: FlagChange) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR), group_of(server) as group:
        billing = group.namespace("billing")
        billing.wait_ready(WAIT_S)
        billing.on_change(fail)
        billing.on_change(lambda change: heard.set())
        say(server, group, inline_event(2, ONE, TWO))
        assert heard.wait(WAIT_S)
        assert billing.version == 2
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        ZeroDivisionError
    ]


def test_a_slow_listener_gets_several_changes_as_one() -> None:
    server = MemoryServer(answer_closure, answer_stream=begin)
    entered, go_on = threading.Event(), threading.Event()
    heard: Queue[FlagChange] = Queue()

    def listen(change: FlagChange) -> None:
        heard.put(change)
        entered.set()
        assert go_on.wait(WAIT_S)

    def version(number: int) -> Files:
        return {**ONE, "flags/a.toml": flag_file(("s",), number)}

    with group_of(server) as group:
        billing = group.namespace("billing")
        billing.wait_ready(WAIT_S)
        billing.on_change(listen)
        applied = threading.Event()
        say(server, group, inline_event(2, ONE, version(2)))
        assert entered.wait(WAIT_S)
        for number in range(3, 10):
            say(server, group, inline_event(number, version(number - 1), version(number)))
        tell = billing.tell

        def note(shown: Any) -> None:
            tell(shown)
            if billing.version == 9:
                applied.set()

        billing.tell = note  # type: ignore[method-assign]
        if billing.version != 9:
            assert applied.wait(WAIT_S)
        go_on.set()
        first, second = heard.get(timeout=WAIT_S), heard.get(timeout=WAIT_S)
        assert (first.version, first.previous_version) == (2, 1)
        assert second.previous_version == 2
        last = second
        while last.version != 9:
            last = heard.get(timeout=WAIT_S)
        assert heard.empty()


def test_who_waits_in_vain_is_told_why() -> None:
    server = MemoryServer(answer_closure, refuses_connections=True)
    group = group_of(server)
    with pytest.raises(FlagsNotReady, match="nothing was announced"):
        group.wait_ready(0)
    with group:
        billing = group.namespace("billing")
        failed = threading.Event()
        mirror = group._group.session.mirrors["billing"]
        show = mirror._show_state

        def note(now: float) -> None:
            show(now)
            failed.set()

        mirror._show_state = note  # type: ignore[method-assign]
        assert failed.wait(WAIT_S)
        with pytest.raises(FlagsNotReady, match="nobody listens"):
            billing.wait_ready(0)
        assert billing.eval("a", default="?") == "?"
        with pytest.raises(KeyError):
            group.namespace("growth")


def test_closing_does_not_wait_for_a_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def verify(*about: object) -> RefreshError:
        begun.set()
        assert go_on.wait(WAIT_S)
        return RefreshError(RefreshCheck.SNAPSHOT, "late")

    monkeypatch.setattr(mirror, "tree_of_snapshot", verify)
    group = group_of(MemoryServer(answer_closure, answer_stream=begin))
    group.start()
    try:
        assert begun.wait(WAIT_S)
        group.close()
        assert not group._thread.is_alive()
    finally:
        go_on.set()


def test_who_waits_is_told_when_the_group_ends() -> None:
    group = group_of(MemoryServer(answer_closure))  # says nothing
    told: Queue[FlagsNotReady] = Queue()

    def wait() -> None:
        try:
            group.wait_ready()
        except FlagsNotReady as error:
            told.put(error)

    with group:
        waiting = threading.Thread(target=wait)
        waiting.start()
    assert told.get(timeout=WAIT_S).namespace == "billing"
    waiting.join(WAIT_S)


def test_a_group_that_was_never_started_can_be_closed() -> None:
    group = group_of(MemoryServer(answer_closure))
    group.close()
    assert group.namespace("billing").state is FlagState.NOT_READY
