"""What a client accepts: asked before anybody is known."""

from __future__ import annotations

import pytest

from headrace.core.limits import ACCEPT_LENGTH_MAX
from headrace.web.accept import prefers
from headrace.web.event_streams import EVENT_STREAM


def accepts_events(accept: str) -> bool:
    return prefers(accept, EVENT_STREAM) is not None


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", "text/*, a/b;q=0.1"])
def test_who_takes_events_gets_them(accept: str) -> None:
    assert accepts_events(accept)


@pytest.mark.parametrize(
    "accept", ["a/b", "text/html", "text/event-stream;q=0, */*", ",", "a", "*/*;q=x", "text/*;q=0"]
)
def test_who_takes_none_does_not(accept: str) -> None:
    assert not accepts_events(accept)


def test_what_is_long_is_not_looked_at() -> None:
    assert not accepts_events("*/*," * (ACCEPT_LENGTH_MAX // 4) + "*/*")


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        ("*/*", "text/plain"),
        ("application/json", "application/json"),
        ("text/plain;q=0.5, application/json", "application/json"),
        ("application/*;q=0.9, text/*;q=0.8", "application/json"),
        ("TEXT/PLAIN", "text/plain"),
    ],
)
def test_the_best_is_what_the_closest_range_says(accept: str, best: str) -> None:
    assert prefers(accept, "text/plain", "application/json") == best
