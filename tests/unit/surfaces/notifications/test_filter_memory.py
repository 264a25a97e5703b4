"""What filters take of memory has a bound, and is given back."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import FILTER_BYTES_FREE
from headrace.surfaces.notifications.constraints import Between, OneOf
from headrace.surfaces.notifications.filter_memory import FilterMemory, weigh
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.shapes import WantedPolygon, parse_polygon
from support.notify_server import NotifyServer, run, settled

SCHEMA = """
notification_schema:
  plain:
    topic: {base: plain, key_order: [n]}
    identifier: {n: {type: IntHandler, required: false}}
"""


def listing(count: int) -> NotificationFilter:
    return NotificationFilter(("plain", None), ((1, OneOf(tuple(range(count)))),))


def test_a_filter_weighs_what_it_lists() -> None:
    assert weigh(NotificationFilter(("plain", "a"), ((1, Between(1, 10**9)),))) == 0
    square = WantedPolygon(parse_polygon("polygon", "0,0,0,1,1,1,0,0"))
    assert weigh(listing(10)) * 100 == weigh(listing(1000))
    assert weigh(NotificationFilter(("plain",), (), square)) > 0


def test_large_filters_are_refused_when_there_is_no_room() -> None:
    memory = FilterMemory(bytes_max=2 * weigh(listing(1000)))
    held = [memory.take(listing(1000)) for _ in range(2)]
    with pytest.raises(Refused) as refusal:
        memory.take(listing(1000))
    assert refusal.value.code is Code.THROTTLED
    assert weigh(listing(10)) <= FILTER_BYTES_FREE
    small = memory.take(listing(10))
    for _ in range(2):
        held[0].free()
    assert memory.used_bytes == weigh(listing(1000)) + weigh(listing(10))
    memory.take(listing(990))  # dropped at once
    del held, small
    assert memory.used_bytes == 0


def test_streams_give_back_what_they_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(FilterMemory, 2 * weigh(listing(1000)))
    monkeypatch.setattr("headrace.surfaces.notifications.routes.FilterMemory", small)

    async def story(server: NotifyServer) -> None:
        body = {"event_type": "plain", "identifier": {"n": 0}}
        await settled(await server.send("POST", "/api/v1/notification", body))
        wanted = [{"n": {"in": list(range(at, at + 1000))}} for at in range(3)]
        first, second, third = [await server.watch(identifier=each) for each in wanted]
        assert (first.statuses, second.statuses, third.statuses) == ([200], [200], [429])
        assert b"TOO_MANY_REQUESTS" in third.heard
        assert (await server.watch(identifier={"n": 5})).statuses == [200]
        first.abort()
        await asyncio.sleep(1)
        assert (await server.watch(identifier=wanted[2])).statuses == [200]

    run(story, tmp_path, SCHEMA)


def test_who_has_left_is_not_kept_in_the_index(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        body = {"event_type": "plain", "identifier": {"n": 0}}
        await settled(await server.send("POST", "/api/v1/notification", body))
        lines = [await server.watch(identifier={"n": at}) for at in range(40)]
        (channel,) = server.app.gate.hub._channels.values()
        idle = len(channel._idle._index)
        assert idle > 20
        for line in lines[:20]:
            line.abort()
        await asyncio.sleep(1)
        assert len(channel._idle._index) <= 20
        assert not channel._idle._lingering

    run(story, tmp_path, SCHEMA)
