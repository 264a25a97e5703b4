"""A job that a signal ends says so, whatever else is raised on the way out."""

from __future__ import annotations

import signal

import pytest

from headrace.pipeline.terminal import CAUSES_MAX, Stopped, find_stop


def raise_while_stopping(*, says_why: bool) -> None:
    try:
        raise Stopped(signal.SIGINT)
    except Stopped as stopped:
        try:
            raise OSError("the line is in the middle of an answer")
        except OSError as error:
            if says_why:
                raise RuntimeError("lost") from stopped
            raise RuntimeError("lost") from error


@pytest.mark.parametrize("says_why", [False, True])
def test_a_signal_is_found_behind_what_took_its_place(says_why: bool) -> None:
    with pytest.raises(RuntimeError) as lost:
        raise_while_stopping(says_why=says_why)
    found = find_stop(lost.value)
    assert found is not None
    assert (found.signal, found.status) == (signal.SIGINT, 130)


def test_a_failure_is_no_signal() -> None:
    assert find_stop(RuntimeError("lost")) is None
    ring = RuntimeError("round and round")
    ring.__context__ = other = RuntimeError("and round")
    other.__context__ = ring
    assert CAUSES_MAX > 2
    assert find_stop(ring) is None
