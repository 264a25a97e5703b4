"""Replay finds what a look at each notification finds, wherever they are, and reads no others."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.match import TagEq
from headrace.engine.search import sieve
from headrace.search.config import parse_search
from headrace.surfaces.notifications.handlers import IntHandler, StringHandler
from headrace.surfaces.notifications.identifiers import parse_notified, parse_wanted
from headrace.surfaces.notifications.indexing import format_search, make_query
from headrace.surfaces.notifications.schema import EventType, IdentifierField
from support import notices
from support.engine_harness import small
from support.fake_indexer import reading
from support.notices import STORM
from support.notify_world import NotifyWorld
from support.virtual import VirtualClock, VirtualLoop

Sent = dict[str, Any]
steps = st.lists(
    st.sampled_from(["seal", "index", "index some", "delete"])
    | st.lists(notices.notified, min_size=1, max_size=5),
    max_size=8,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps,
    st.lists(notices.wanted, min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 6),
    st.integers(0, 99),
)
def test_replay_finds_what_a_look_at_each_finds(
    steps: list[str | list[Sent]], asked: list[Sent], records_max: int, after: int, seed: int
) -> None:
    random, loop = Random(seed), VirtualLoop()

    async def play() -> None:
        world = NotifyWorld(await reading(VirtualClock(loop)))
        live: dict[int, Sent] = {}
        first = {"region": "west", "severity": 1, "anomaly": 1, "station": "s"}
        first["polygon"] = notices.ring(0, 0, 1, 1, 0)
        live[await world.append(first)] = first
        await world.plan()
        for step in steps:
            numbers = [one.number for one in world.scene.fake_indexer.manifest.segments]
            match step:
                case "seal":
                    await world.scene.seal()
                case "index":
                    await world.index()
                case "index some" if numbers:
                    await world.index(random.choice(numbers))
                case "delete" if live:
                    gone = random.choice(list(live))
                    subject = parse_notified(STORM, STORM.name, live[gone]).subject
                    await world.scene.engine.deleter.delete("notify:storm", None, TagEq(subject))
                    live = {
                        seq: sent
                        for seq, sent in live.items()
                        if parse_notified(STORM, STORM.name, sent).subject != subject
                    }
                case list():
                    for sent in step:
                        live[await world.append(sent)] = sent
        for one in asked:
            naive = [seq for seq, sent in live.items() if notices.matches(one, sent)]
            found = await world.replay(one, after, records_max=records_max)
            assert found == [seq for seq in naive if seq > after]
            assert await world.replay(one, 0, 5) == [seq for seq in naive if seq <= 5]

    with small(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "CANDIDATES_KEPT", random.choice([1, 2, 1000]))
        loop.run(play())
    loop.close()


def test_what_identifier_and_box_exclude_is_not_read() -> None:
    """Five places with twenty notifications each, in segments of their own."""
    loop = VirtualLoop()
    asked: list[tuple[Sent, int | None]] = [
        ({"polygon": notices.ring(20, 20, 5, 5, 0)}, 2),
        ({"point": "40.5,40.5"}, 4),
        ({"station": "s3"}, 3),
        ({"severity": {"gt": 3}}, 4),
        ({"anomaly": {"between": [0.5, 1.5]}}, 1),
        ({"severity": {"in": [1, 2]}, "station": "s2"}, 2),
        ({"severity": 2, "polygon": notices.ring(0, 0, 5, 5, 0)}, None),
        ({"point": "-5,-5"}, None),
    ]

    async def play() -> None:
        world = NotifyWorld(await reading(VirtualClock(loop)))
        for place in range(5):
            for _ in range(20):
                await world.append(
                    {
                        "region": "north",
                        "severity": place,
                        "anomaly": place + 0.0,
                        "station": f"s{place}",
                        "polygon": notices.ring(10.0 * place, 10.0 * place, 5, 5, 0),
                    }
                )
            await world.scene.seal()
        await world.plan()
        await world.index()
        # One more, with no companion, which nobody wants.
        await world.append(
            {
                "region": "south",
                "severity": -1,
                "anomaly": -9,
                "station": "t",
                "polygon": notices.ring(-80, -80, 1, 1, 0),
            }
        )
        segments, live = world.scene.engine.segments, world.scene.live
        for one, place in asked:
            segments._tables.clear()
            segments._files.clear()
            before = world.segment_reads()
            found = await world.replay(one)
            assert found == ([] if place is None else list(range(20 * place + 1, 20 * place + 21)))
            held = [n for n, low, high in live.log.extents if set(found) & {*range(low, high + 1)}]
            # The end of the file of each segment that has some of them, and its one row group.
            assert world.segment_reads() - before == 2 * len(held)
            assert len(held) <= segments.count / 4

    with small():
        loop.run(play())
    loop.close()


def test_a_field_whose_name_is_taken_is_known_by_its_position() -> None:
    names = ("has", "a/b~c", "published", "identifier.7", "n" * 80, "plain")
    fields = {name: IdentifierField(name, IntHandler(), required=False) for name in names}
    fields["plain"] = IdentifierField("plain", StringHandler(), required=False)
    odd = EventType(name="odd", base="odd", key_order=names, fields=fields)
    raw = format_search(odd)
    assert raw is not None
    search = parse_search(msgspec.json.decode(raw))
    paths = [field.path() for field in search.fields.values()][: len(names)]
    assert paths == [("identifier", name) for name in names]
    wanted = parse_wanted(odd, "odd", {"a/b~c": 4, "plain": "x"})
    assert make_query(wanted, search) is not None
    assert make_query(parse_wanted(STORM, "storm", {"region": "north"}), search) is None
    assert make_query(parse_wanted(odd, "odd", {}), search) is None


def test_a_schema_that_is_too_large_is_not_indexed() -> None:
    names = tuple(f"{at:04}" + "n" * 100 for at in range(500))
    fields = {name: IdentifierField(name, IntHandler(), required=False) for name in names}
    assert format_search(EventType(name="x", base="x", key_order=names, fields=fields)) is None
