"""What a client accepts: asked before anybody is known."""

from __future__ import annotations

import pytest
from falcon.testing import create_asgi_req
from falcon.util import mediatypes

from headrace.core.limits import ACCEPT_LENGTH_MAX
from headrace.web.calls import prefers
from headrace.web.streams import EVENT_STREAM


def accepts_events(**headers: str) -> bool:
    return prefers(create_asgi_req(headers=headers), EVENT_STREAM) is not None


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", "text/*, a/b;q=0.1"])
def test_who_takes_events_gets_them(accept: str) -> None:
    assert accepts_events()
    assert accepts_events(accept=accept)


@pytest.mark.parametrize("accept", ["a/b", "text/html", "text/event-stream;q=0, */*", ",", "a"])
def test_who_takes_none_does_not(accept: str) -> None:
    assert not accepts_events(accept=accept)


def test_what_is_long_is_neither_parsed_nor_kept() -> None:
    before = mediatypes._parse_media_ranges.cache_info()
    assert not accepts_events(accept="*/*," * (ACCEPT_LENGTH_MAX // 4) + "*/*")
    assert mediatypes._parse_media_ranges.cache_info() == before
