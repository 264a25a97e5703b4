"""Every disk call while notifications are stored as crash point: each subject keeps its newest."""

from __future__ import annotations

import asyncio
from textwrap import dedent
from typing import NamedTuple

import msgspec
import pytest

from headrace.core.owners import NOTIFICATIONS
from headrace.engine.logs.key_rules import KeyRules
from headrace.engine.open_log import OpenLog
from headrace.surfaces.notifications.catalog import EventTypeCatalog
from headrace.surfaces.notifications.configuration import parse_configuration
from headrace.surfaces.notifications.identifiers import parse_notified
from headrace.surfaces.notifications.names import log_of
from headrace.surfaces.notifications.records import make_drafts
from support.engine_harness import boot, view
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

from .test_crash_sweep import SHORT, Recorder

CONFIGURATION = """\
    notification_schema:
      latest:
        topic: {base: latest, key_order: [region]}
        identifier:
          region: {type: IntHandler, range: [0, 9], required: true}
        payload: {required: true}
        storage_policy: {allow_duplicates: false, max_messages: 3}
      every:
        topic: {base: every, key_order: [region]}
        identifier:
          region: {type: IntHandler, range: [0, 9], required: true}
        payload: {required: true}
"""
REGIONS = (0, 1, 2, 0, 0, 2, 1, 3, 0, 3, 3, 1, 0, 2)
"""Where the notification of each number goes; four regions, of which the caps leave three."""


class Told(NamedTuple):
    """How many notifications were offered and acknowledged until a moment."""

    offered: int = 0
    acknowledged: int = 0


class Story:
    def __init__(self, loop: VirtualLoop) -> None:
        self._catalog = EventTypeCatalog(
            parse_configuration(dedent(CONFIGURATION).encode(), "n.yaml"), 10
        )
        self.clock = VirtualClock(loop)
        self.told = Told()

    async def live(self, disk: HostileDisk) -> None:
        """Store one notification after the other, as the surface does, and seal some."""
        started = await boot(disk, self.clock, pace=SHORT)
        upkeep = asyncio.create_task(started.upkeep.run())
        for number, region in enumerate(REGIONS):
            self.told = self.told._replace(offered=number + 1)
            for name in self._catalog.types:
                event_type = self._catalog.find(name)
                await started.engine.appender.append(
                    log_of(name),
                    make_drafts(
                        parse_notified(event_type, name, {"region": region}), b"%d" % number
                    ),
                    owner=NOTIFICATIONS,
                    create=self._catalog.log_config(event_type),
                )
            self.told = self.told._replace(acknowledged=number + 1)
            if number == len(REGIONS) // 2:
                await started.engine.seal()
        await asyncio.sleep(3)  # of the virtual clock: upkeep does what is left
        upkeep.cancel()

    async def judge(self, disk: HostileDisk, told: Told) -> None:
        """What is found is what some number of notifications leaves, none acknowledged missing."""
        engine = (await boot(disk, self.clock)).engine
        possible = range(told.acknowledged, told.offered + 1)
        for name, leaves in (("every", _all), ("latest", _newest)):
            found: list[int] = []
            if log_of(name) in engine.state.by_name:
                held = await view(engine, log_of(name))
                payloads = [msgspec.json.decode(each.data) for each in held.records.values()]
                found = [each["payload"] for each in payloads]
                subjects = [each.key for each in held.records.values()]
                assert subjects == [f"{name}.{REGIONS[number]}" for number in found]
            assert any(found == leaves(count) for count in possible), f"{name}: {found}, {told}"


def _all(count: int) -> list[int]:
    return list(range(count))


def _newest(count: int) -> list[int]:
    newest = {REGIONS[number]: number for number in range(count)}
    return sorted(newest.values())[-3:]


async def _nothing(rules: KeyRules, live: OpenLog) -> None:
    """No rule is new here: what the journal tells is what is left, without a look at keys."""


def test_a_crash_leaves_the_newest_of_each_subject(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyRules, "enforce", _nothing)
    story, disk = Story(loop), HostileDisk()
    recorder = Recorder(disk, lambda: story.told)  # type: ignore[arg-type, return-value]
    loop.run(story.live(disk))
    assert story.told == Told(len(REGIONS), len(REGIONS))
    assert len(recorder.moments) > 50, "the story does too little"
    known: set[object] = set()
    for moment in recorder.moments:
        for how, _, left in moment.survivors():
            case = (moment.mark, left.world.contents())
            if case not in known:
                known.add(case)
                try:
                    loop.run(story.judge(left, moment.mark))  # type: ignore[arg-type]
                except AssertionError as problem:
                    raise AssertionError(f"{moment.call}, {how}: {problem}") from None
