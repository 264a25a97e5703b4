"""The schema of an event type as the search configuration of its log."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.limits import READ_SCANNED_MAX
from headrace.core.owners import NOTIFICATIONS
from headrace.core.record import draft
from headrace.engine.search.search_configs import plan_of
from headrace.surfaces.notifications.configuration import NotificationsConfiguration
from headrace.surfaces.notifications.handlers import StringHandler
from headrace.surfaces.notifications.identifiers import parse_wanted
from headrace.surfaces.notifications.schema import EventType, IdentifierField
from headrace.surfaces.notifications.selector import NotificationSelector
from headrace.surfaces.notifications.server import NotificationLimits, Notifications
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.notices import STORM, block_of
from support.virtual import VirtualClock, VirtualLoop


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop()


def surface(event_type: EventType) -> Notifications:
    configuration = NotificationsConfiguration(
        event_types={event_type.name: event_type}, strict=True
    )
    return Notifications(
        configuration,
        NotificationLimits(body_bytes=1 << 20, types=10),
        public_url=None,
        takes_passwords=False,
        time=lambda: 0.0,
    )


def test_a_changed_schema_changes_the_plan_from_the_next_start_on(loop: VirtualLoop) -> None:
    station = IdentifierField("severity", StringHandler(), required=False)
    other = msgspec.structs.replace(STORM, fields={**STORM.fields, "severity": station})

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        drafts = draft([b"{}"], tags=["storm.x"], keys=["storm.x"])
        for name in ("notify:storm", "notify:gone"):
            await engine.appender.append(name, drafts, owner=NOTIFICATIONS, create=LogConfig())
        log = engine.live("notify:storm").log
        hashes = []
        for event_type in (STORM, STORM, other, STORM):
            await surface(event_type).open(engine)
            hashes.append(plan_of(log).hash)
        assert hashes[0] == hashes[1] == hashes[3] != hashes[2]
        assert engine.live("notify:gone").log.search is None

    try:
        loop.run(story())
    finally:
        loop.close()


def test_who_looks_at_shapes_looks_at_fewer_records_before_others_have_a_turn(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = parse_wanted(STORM, "storm", {"point": "80,80"})
    selector = NotificationSelector(wanted)
    assert NotificationSelector(parse_wanted(STORM, "storm", {"region": "west"})).cost > 1
    assert READ_SCANNED_MAX // selector.cost < 5_000
    monkeypatch.setattr("headrace.engine.logs.reader.READ_SCANNED_MAX", 4 * selector.cost)
    sent = {
        "region": "west",
        "severity": 1,
        "anomaly": 1,
        "station": "s",
        "polygon": "0,0,0,1,1,1,0,0",
    }

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        one = block_of([sent])
        for _ in range(10):
            drafts = draft([one.data_at(0)], tags=one.tags, keys=one.keys)
            await engine.appender.append(
                "notify:storm", drafts, owner=NOTIFICATIONS, create=LogConfig()
            )
        live, after, steps = engine.live("notify:storm"), 0, []
        while after < 10:
            page = await engine.reader.read(
                live, after, records_max=100, bytes_max=1 << 20, selector=selector
            )
            after = page.next
            steps.append(after)
            await asyncio.sleep(0)
        assert steps == [4, 8, 10]

    try:
        loop.run(story())
    finally:
        loop.close()
